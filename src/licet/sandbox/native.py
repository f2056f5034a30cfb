"""The level `native`: trusted tools of the operator, in this process. Every other level is refused here.

An async tool runs in the caller's task. A function runs in a thread of its own, where its handles block. A thread
cannot be ended from outside: after its deadline the call ends, and its handles refuse.

A cancel that an async tool requests itself ends the tool, not its caller. Cancels are counted around each step of the
coroutine: those during a step come from the tool, those between two steps from other tasks. A task for each call would
separate them too, but costs more than the call.
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

from licet.core.policy.layer import Level
from licet.declare import Tool
from licet.declare.plain_json import PLAIN, data_again
from licet.errors import Refused
from licet.guard.execution import Raised, SandboxUnavailable, Stopped, ToolCall, Walls, raised, result_text
from licet.guard.handles.secrets_and_kv import ScopedKv


@types.coroutine
def stepped(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await a coroutine step by step, and undo the cancels that it requested itself."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a deadline needs a task, and each call has one
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
            yield  # a requested cancel that was not delivered yet is delivered here
        except asyncio.CancelledError:
            if task.cancelling() > begun:  # by another task
                raise
    if failure is None:
        return value
    try:
        raise failure
    finally:
        del failure, given  # an error that its own frame refers to is freed only by the garbage collector


def _interrupted(task: "asyncio.Task[Any]") -> bool:
    """Whether the cancel came from Ctrl-C: `asyncio.run` requests it during whichever step runs then."""
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    meant = getattr(handler, "keywords", {}).get("main_task")
    return isinstance(runner, asyncio.Runner) and meant is task and getattr(runner, "_interrupt_count", 0) > 0


# What its code does without a handle is not checked, so receipts say that its needs are a promise.
_LAYERS = ("handles", "declared, not enforced")


class InProcess:
    """Runs tools at level `native`, and nothing at any other."""

    def layers(self, level: Level) -> tuple[str, ...]:
        """The layers in force at a level."""
        if level != "native":
            raise _unavailable(level)
        return _LAYERS

    def walls(self, held: object) -> Walls:
        """The walls of a program: there are none here."""
        raise SandboxUnavailable("no walls can be put around a program here: no sandbox is installed")

    def run(self, level: Level, call: ToolCall, context: object) -> Awaitable[Any]:
        """Run a tool in this process."""
        if level != "native":
            raise _unavailable(level)
        tool, arguments = call.tool, call.arguments
        if tool.is_async:
            if tool.context_parameter is not None:
                arguments = {**arguments, tool.context_parameter: context}
            return _in_this_task(tool, arguments)
        waiting: Pending = set()
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
        return await stepped(coroutine)
    except (Stopped, Raised, SandboxUnavailable) as error:  # a tool cannot raise the errors of an engine
        raise raised(error) from None


Pending = set[concurrent.futures.Future[Any]]  # answers that a thread waits for; they end with the call


class Blocking:
    """An object whose async methods can be called from another thread: each blocks until the loop has answered."""

    __slots__ = ("_loop", "_target", "_waiting")

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop, waiting: Pending) -> None:
        self._target, self._loop, self._waiting = target, loop, waiting

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return found if isinstance(found, str | int | None) else self._wrapped(found)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        answer = self._target(*args, **kwargs)
        if isinstance(answer, ScopedKv):  # `ctx.kv.of(…)` returns a handle
            return self._wrapped(answer)
        if not inspect.isawaitable(answer):
            return answer
        waited = asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop)
        self._waiting.add(waited)
        try:
            return waited.result()
        finally:
            self._waiting.discard(waited)

    def _wrapped(self, found: object) -> "Blocking":
        return Blocking(found, self._loop, self._waiting)


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


async def _in_a_thread(work: Callable[[], Any], waiting: Pending) -> Any:
    # Not in a thread pool: a tool that never returns would occupy a thread for ever.
    loop = asyncio.get_running_loop()
    # Errors are set as a result too: a `GeneratorExit` raised in the caller's task would close its coroutines.
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def tell(answer: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((answer, error))

    def body() -> None:
        answer, wrong = None, None
        try:
            answer = context.run(work)
            if answer is not None and type(answer) not in PLAIN:
                # Here, under the deadline: methods of the tool's own classes may take any time.
                answer = data_again(result_text(answer))
        except BaseException as error:
            wrong = error if type(error) is Refused else raised(error)
        try:
            loop.call_soon_threadsafe(tell, answer, wrong)
        except RuntimeError:
            return  # the loop was closed, and the call ended with it

    threading.Thread(target=body, name="licet-tool", daemon=True).start()
    try:
        answer, error = await done
        if error is not None:
            raise error
        return answer
    finally:
        for waited in tuple(waiting):  # a pending request is not sent after its call has ended
            waited.cancel()
