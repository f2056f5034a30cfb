"""Makes modules ready for calls: built if they are the Python of licet, compiled, and their imports judged.

Modules are compiled in threads of their own, a few at once, and each only once however many calls wait for it. So a
module that takes long to compile delays its own calls alone. One that cannot be compiled is not tried again in this
process.
"""

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from licet.declare.wasm import PYTHON, WasmModule
from licet.guard.execution import SandboxUnavailable
from licet.sandbox.wasi.cache import OWN, STRANGERS, InvalidModule, compiled
from licet.sandbox.wasi.compiled import Compiled
from licet.sandbox.wasi.imports import asked_for
from licet.sandbox.wasi.python.build import BuildFailed
from licet.sandbox.wasi.python.kept import runner

_AT_ONCE = 2  # modules that are compiled
_MOST_INVALID = 512  # modules that are remembered


class ReadyModules:
    """The modules that are being made ready, and those that cannot be."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget everything: in a fork of the host, the threads of its parent do not exist."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._under_way: dict[str, Future[Compiled]] = {}
        self._invalid: dict[str, str] = {}

    async def compiled(self, module: WasmModule, walls: Mapping[str, Any]) -> Compiled:
        """The compiled module, all of whose imports can be given. Raises `InvalidModule` or `SandboxUnavailable`."""
        key = module.sha256 or module.file
        with self._lock:
            if key in self._invalid:
                raise InvalidModule(self._invalid[key])
            found = self._under_way.get(key)
            if found is None:
                found = self._under_way[key] = Future()
                # A daemon: a program that ends does not wait for it.
                threading.Thread(target=self._make, args=(key, module, walls, found), daemon=True).start()
        return await asyncio.shield(asyncio.wrap_future(found))

    def _make(self, key: str, module: WasmModule, walls: Mapping[str, Any], found: "Future[Compiled]") -> None:
        made: Compiled | None = None
        wrong: BaseException | None = None
        try:
            with self._slots:
                made = _made(module, walls)
        except BaseException as error:
            wrong = error
        with self._lock:
            del self._under_way[key]
            if isinstance(wrong, InvalidModule) and wrong.lasting and len(self._invalid) < _MOST_INVALID:
                self._invalid[key] = str(wrong)
        if made is not None:
            found.set_result(made)
        else:
            found.set_exception(wrong)


def _made(module: WasmModule, walls: Mapping[str, Any]) -> Compiled:
    limits = STRANGERS
    if module.file == PYTHON:
        limits = OWN
        try:
            module = runner().module
        except BuildFailed as failed:
            raise SandboxUnavailable(str(failed)) from None
    made = compiled(module, walls, limits)
    if refusal := asked_for(made.module.kind, made.module.imports).refusal():
        raise InvalidModule(f"{os.path.basename(module.file)} cannot run: {refusal}")
    return made


modules = ReadyModules()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=modules.start_afresh)
