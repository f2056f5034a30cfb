"""Makes modules ready for calls: built if they are the Python of licet, compiled, and refused for an impossible import.

Modules are compiled in threads of their own, a few at once, and each only once however many calls wait for it. So a
module that takes long to compile delays its own calls alone. One that cannot be compiled is not tried again in this
process.
"""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Any

from licet.declare.wasm import PYTHON, WasmModule
from licet.guard.execution import Pausable, SandboxUnavailable, Stopped
from licet.guard.limits import GIVE_UP_EARLY
from licet.wasm.cache import OWN, STRANGERS, Compiled, InvalidModule, Turn, compiled
from licet.wasm.limits import COMPILED_AT_ONCE, LOOK_SECONDS, MOST_INVALID
from licet.wasm.module_imports import asked_for
from licet.wasm.python.build import BuildFailed, runner


class ReadyModules:
    """The modules that are being made ready, and those that cannot be."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget everything: in a fork of the host, the threads of its parent do not exist."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(COMPILED_AT_ONCE)
        self._under_way: dict[str, _Making] = {}
        self._invalid: dict[str, str] = {}

    async def compiled(
        self, module: WasmModule, walls: Mapping[str, Any], seconds: float, deadline: Pausable | None
    ) -> Compiled:
        """The compiled module, all of whose imports can be given. Raises `InvalidModule` or `SandboxUnavailable`.

        The deadline of the call is paused while the module is built or compiled, which happens once. It is not while
        another process does that, or other modules come first: `Stopped` after this many seconds.
        """
        key = module.sha256 or module.file
        with self._lock:
            if key in self._invalid:
                raise InvalidModule(self._invalid[key])
            found = self._under_way.get(key)
            if found is None:
                found = self._under_way[key] = _Making()
                # A daemon: a program that ends does not wait for it.
                threading.Thread(target=self._make, args=(key, module, walls, found), daemon=True).start()
        return await _waited(found, seconds, deadline)

    @contextmanager
    def _turn(self, making: "_Making") -> Iterator[None]:
        with self._slots:
            making.working = True
            try:
                yield
            finally:
                making.working = False

    def _make(self, key: str, module: WasmModule, walls: Mapping[str, Any], making: "_Making") -> None:
        made: Compiled | None = None
        wrong: BaseException | None = None
        found = making.compiled
        try:
            made = _made(module, walls, lambda: self._turn(making))
        except BaseException as error:
            wrong = error
        with self._lock:
            del self._under_way[key]
            if isinstance(wrong, InvalidModule) and wrong.lasting and len(self._invalid) < MOST_INVALID:
                self._invalid[key] = str(wrong)
        if made is not None:
            found.set_result(made)
        else:
            found.set_exception(wrong)


class _Making:
    """A module that is being made ready."""

    __slots__ = ("compiled", "working")

    def __init__(self) -> None:
        self.compiled: Future[Compiled] = Future()
        self.working = False  # and not waiting for another process, or for its turn


async def _waited(making: _Making, seconds: float, deadline: Pausable | None) -> Compiled:
    """Wait until a module is ready. Only the time in which nothing is done counts."""
    found, paused, waited, last = asyncio.wrap_future(making.compiled), False, 0.0, monotonic()
    found.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look at it
    try:
        while not found.done():
            waited, last = waited + (0.0 if paused else monotonic() - last), monotonic()
            if waited > max(0.0, seconds - GIVE_UP_EARLY):
                text = f"waited {waited:.1f} seconds for another process that builds or compiles it"
                raise Stopped("LIMIT_TIME", text, ran=False)
            if making.working != paused and deadline is not None:
                deadline.pause() if making.working else deadline.resume()
            paused = making.working
            await asyncio.wait([found], timeout=LOOK_SECONDS)
        return found.result()
    finally:
        if paused and deadline is not None:
            deadline.resume()


def _made(module: WasmModule, walls: Mapping[str, Any], turn: Turn) -> Compiled:
    limits = STRANGERS
    if module.file == PYTHON:
        limits = OWN
        try:
            module = runner(turn=turn).module
        except BuildFailed as failed:
            raise SandboxUnavailable(str(failed)) from None
    made = compiled(module, walls, limits, turn)
    if refusal := asked_for(made.module.kind, made.module.imports).refusal():
        raise InvalidModule(f"{os.path.basename(module.file)} cannot run: {refusal}")
    return made


modules = ReadyModules()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=modules.start_afresh)
