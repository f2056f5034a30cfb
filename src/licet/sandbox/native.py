"""Tools in the caller's own task: a cancel that a tool asks for itself ends the tool, and not whoever called it.

Cancels are counted around each step of the tool. What is asked for during a step is the tool's own; between two steps
others run, and what they ask for is meant for the caller. A task for each call would tell them apart as well, but costs
more than the call.

The level `native`: trusted tools of the operator, in this process. Every other level is refused here.

An async tool runs in the caller's task. A function runs in a thread of its own, where its handles block; a thread
cannot be ended from outside, so past its deadline only its call ends, and its handles refuse.
"""

import asyncio
import concurrent.futures
import contextvars
import inspect
import signal
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from licet.core.policy.effects import Level
from licet.declare import Tool
from licet.declare.plain_json import PLAIN, data_again
from licet.errors import Refused
from licet.guard.close import result_text
from licet.guard.execution import Raised, SandboxUnavailable, Stopped, ToolCall, Walls, raised
from licet.guard.handles.kv import ScopedKv


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


_LAYERS = ("handles",)


class InProcess:
    """Runs tools at level `native`, and nothing at any other."""

    def layers(self, level: Level) -> tuple[str, ...]:
        """What will be in force at a level."""
        if level != "native":
            raise _unavailable(level)
        return _LAYERS

    def walls(self, held: Any) -> Walls:
        """The walls of a child process."""
        raise SandboxUnavailable("no walls can be put around a program here: no sandbox is installed")

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a tool in this process."""
        if level != "native":
            raise _unavailable(level)
        tool, arguments = call.tool, call.arguments
        if tool.is_async:
            if tool.context_parameter is not None:
                arguments = {**arguments, tool.context_parameter: context}
            return _in_this_task(tool, arguments)
        waiting: Waiting = set()
        if tool.context_parameter is not None:
            outside = Blocking(context, asyncio.get_running_loop(), waiting)
            arguments = {**arguments, tool.context_parameter: outside}
        return _in_a_thread(lambda: tool.fn(**arguments), waiting)


def _unavailable(level: Level) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the level `{level}` cannot be kept here: no sandbox is installed; "
        "if it is trusted code of yours, say `native` where its level is stated (on the tool, else in its "
        "bundle or entry) and name it under `native`"
    )


async def _in_this_task(tool: Tool, arguments: dict[str, Any]) -> Any:
    try:
        coroutine: Coroutine[Any, Any, Any] = tool.fn(**arguments)
        return await (stepped(coroutine) if tool.suspends else coroutine)
    except (Stopped, Raised, SandboxUnavailable) as error:  # what engines say of a tool, a tool cannot say of itself
        raise raised(error) from None


Waiting = set[concurrent.futures.Future[Any]]  # what a thread waits for; it ends with the call


class Blocking:
    """An object whose async methods can be called from another thread: each waits for the loop to answer."""

    __slots__ = ("_loop", "_target", "_waiting")

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop, waiting: Waiting) -> None:
        self._target, self._loop, self._waiting = target, loop, waiting

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return found if isinstance(found, str | int | None) else self._wrapped(found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._target(*args, **kwargs)
        if isinstance(answer, ScopedKv):  # `ctx.kv.of(…)`: a handle, not an answer
            return self._wrapped(answer)
        if not inspect.isawaitable(answer):
            return answer
        waited = asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop)
        self._waiting.add(waited)
        try:
            return waited.result()
        finally:
            self._waiting.discard(waited)

    def _wrapped(self, found: Any) -> "Blocking":
        return Blocking(found, self._loop, self._waiting)


async def _awaited(answer: Any) -> Any:
    return await answer


async def _in_a_thread(work: Callable[[], Any], waiting: Waiting) -> Any:
    # Not from a pool: a tool that never returns would keep its place in it for ever.
    loop = asyncio.get_running_loop()
    # Errors too come as a result: thrown into the caller's task, `GeneratorExit` would close all that waits there.
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(answer: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((answer, error))

    def body() -> None:
        answer, wrong = None, None
        try:
            answer = context.run(work)
            if answer is not None and type(answer) not in PLAIN:
                # Here, where the deadline still counts: code of the tool's own may take any time to say what it is.
                answer = data_again(result_text(answer))
        except BaseException as error:
            wrong = error if type(error) is Refused else raised(error)
        try:
            loop.call_soon_threadsafe(tell, answer, wrong)
        except RuntimeError:
            return  # the loop is gone, and the call with it

    threading.Thread(target=body, name="licet-tool", daemon=True).start()
    try:
        answer, error = await done
        if error is not None:
            raise error
        return answer
    finally:
        for waited in tuple(waiting):  # a request that is still on its way when its call ends is not sent any more
            waited.cancel()
