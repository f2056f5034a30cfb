"""Tools in the caller's own task: a cancel that a tool asks for itself ends the tool, and not whoever called it.

Cancels are counted around each step of the tool. What is asked for during a step is the tool's own; between two steps
others run, and what they ask for is meant for the caller. A task for each call would tell them apart as well, but costs
more than the call.
"""

import asyncio
import signal
import types
from collections.abc import Coroutine, Generator
from typing import Any


@types.coroutine
def stepped(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await a coroutine step by step, and take back the cancels that it asked for itself."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a call has a deadline, and that a task
    begun, own = task.cancelling(), 0
    value, failure, thrown = None, None, False
    given: Any = None
    while True:
        before = task.cancelling()
        try:
            waited = coroutine.throw(given) if thrown else coroutine.send(given)
        except StopIteration as end:
            value = end.value
            break
        except BaseException as error:
            failure = error
            break
        finally:
            own += task.cancelling() - before
        try:
            given, thrown = (yield waited), False
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            given, thrown = error, True
    if own > 0 and not _interrupted(task):
        for _ in range(own):
            task.uncancel()
        try:
            yield  # a cancel that was asked for and has not come yet, comes now
        except asyncio.CancelledError:
            if task.cancelling() > begun:  # another one, from outside
                raise
    if failure is None:
        return value
    try:
        raise failure
    finally:
        del failure, given  # an error that is held by its own frame would wait for the garbage collector


def _interrupted(task: "asyncio.Task[Any]") -> bool:
    """Whether the cancel came by Ctrl-C: `asyncio.run` asks for it in the midst of whatever step runs just then."""
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    meant = getattr(handler, "keywords", {}).get("main_task")
    return isinstance(runner, asyncio.Runner) and meant is task and getattr(runner, "_interrupt_count", 0) > 0
