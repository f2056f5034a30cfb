"""Makes modules ready for calls: built if they are the Python of licet, compiled, and their imports judged.

Modules are compiled in threads of their own, a few at once, and each only once however many calls wait for it. So a
module that takes long to compile delays its own calls alone. One that cannot be compiled is not tried again in this
process.

Which imports of a module can be given: parts of WASI, and the host function of licet. A guest gets nothing else.

Plain data in, answers out: the command `licet wasm inspect` and the engine ask the same question. The names come from
the module, so they are hostile text, and are cut and escaped here before anybody shows them.
"""

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.declare.wasm import PYTHON, WasmModule
from licet.guard.execution import Pausable, SandboxUnavailable, Stopped
from licet.guard.limits import GIVE_UP_EARLY
from licet.wasm.cache import OWN, STRANGERS, Compiled, InvalidModule, Turn, compiled
from licet.wasm.limits import COMPILED_AT_ONCE, LONGEST_NAME, LOOK_SECONDS, MOST_INVALID, MOST_NAMED
from licet.wasm.python.build import BuildFailed, runner

_PREVIEW_1 = "wasi_snapshot_preview1"
_HOST_TYPES = {  # of core modules
    "licet.call": "func(i32, i32, i32, i32) -> (i32)",
    "licet.take": "func(i32, i32) -> (i32)",
}
_COMPONENT_CALL = re.compile(r"func\([^:,]+: string, [^:,]+: string\) -> result<string, string>")
_INTERFACE = re.compile(r"(wasi:[a-z-]+/[a-z-]+)@0\.2\.\d+")
_PLAIN_TYPE = "type"  # of an import that needs nothing from the host

SOCKETS = "sockets"
_STREAMS, _FILES, _CLOCK, _WAITING = "standard streams", "files", "clock", "waiting"
_RANDOM, _ARGUMENTS, _ENVIRONMENT, _EXIT = "random", "arguments", "environment", "exit"
PARTS = (_STREAMS, _ARGUMENTS, _ENVIRONMENT, _FILES, _CLOCK, _WAITING, _RANDOM, _EXIT, SOCKETS)

# Every function of WASI preview 1 that wasmtime has, by what it is for.
_PREVIEW_1_PARTS: Mapping[str, str] = {
    name: part
    for part, names in {
        _STREAMS: "fd_read fd_write fd_close fd_seek fd_fdstat_get",
        _ARGUMENTS: "args_get args_sizes_get",
        _ENVIRONMENT: "environ_get environ_sizes_get",
        _FILES: (
            "fd_advise fd_allocate fd_datasync fd_fdstat_set_flags fd_fdstat_set_rights fd_filestat_get "
            "fd_filestat_set_size fd_filestat_set_times fd_pread fd_prestat_dir_name fd_prestat_get fd_pwrite "
            "fd_readdir fd_renumber fd_sync fd_tell path_create_directory path_filestat_get path_filestat_set_times "
            "path_link path_open path_readlink path_remove_directory path_rename path_symlink path_unlink_file"
        ),
        _CLOCK: "clock_res_get clock_time_get",
        _WAITING: "poll_oneoff sched_yield",
        _RANDOM: "random_get",
        _EXIT: "proc_exit proc_raise",
        SOCKETS: "sock_accept sock_recv sock_send sock_shutdown",
    }.items()
    for name in names.split()
}
# The interfaces of WASI preview 2 that wasmtime has.
_INTERFACE_PARTS: Mapping[str, str] = {
    "wasi:cli/environment": _ENVIRONMENT,
    "wasi:cli/exit": _EXIT,
    **{f"wasi:cli/{name}": _STREAMS for name in ("stdin", "stdout", "stderr", "terminal-input", "terminal-output")},
    **{f"wasi:cli/terminal-{name}": _STREAMS for name in ("stdin", "stdout", "stderr")},
    "wasi:clocks/monotonic-clock": _CLOCK,
    "wasi:clocks/wall-clock": _CLOCK,
    "wasi:filesystem/preopens": _FILES,
    "wasi:filesystem/types": _FILES,
    "wasi:io/error": _STREAMS,
    "wasi:io/poll": _WAITING,
    "wasi:io/streams": _STREAMS,
    "wasi:random/insecure": _RANDOM,
    "wasi:random/insecure-seed": _RANDOM,
    "wasi:random/random": _RANDOM,
}
_NO_HTTP = "a guest has no HTTP of its own: use the host function with `fetch`"
_NOT_GIVEN = "a guest has WASI and the host function of licet, and nothing else"
_OLD_WASI = "this is an old version of WASI: build the module for `wasm32-wasip1` or `wasm32-wasip2`"
_OTHER_WASI = "this is no part of WASI that a guest has"


class Impossible(Struct, frozen=True):
    """An import that no grant can give, and why."""

    name: str  # escaped and cut
    why: str


class Asked(Struct, frozen=True):
    """What a module asks for: parts of WASI with the names of the imports, the host function, and the impossible."""

    wasi: Mapping[str, tuple[str, ...]]
    host: tuple[str, ...]
    impossible: tuple[Impossible, ...]

    def refusal(self) -> str:
        """Why a module with these imports cannot run, in one line; empty if it can."""
        if not self.impossible:
            return ""
        named = "; ".join(f"`{one.name}` ({one.why})" for one in self.impossible[:MOST_NAMED])
        more = f"; and {len(self.impossible) - MOST_NAMED} more" if len(self.impossible) > MOST_NAMED else ""
        return f"it imports what no grant can give: {named}{more}"


def asked_for(kind: str, imports: Iterable[Mapping[str, Any]]) -> Asked:
    """Sort the imports of a module, as a compiler described them.

    Sockets may be imported, although each use of them fails: compilers import them for programs that never open one.
    """
    sort = _component_import if kind == "component" else _core_import
    wasi: dict[str, dict[str, None]] = {}
    host: dict[str, None] = {}
    impossible: dict[str, Impossible] = {}
    for one in imports:
        name, type_ = str(one["name"]), str(one["type"])
        for part, said in sort(name, type_):
            if part == "host":
                host[shown_name(name)] = None
            elif part in PARTS:
                wasi.setdefault(part, {})[shown_name(said)] = None
            else:
                impossible.setdefault(said, Impossible(shown_name(said), part))
    parts = {part: tuple(wasi[part]) for part in PARTS if part in wasi}
    return Asked(parts, tuple(host), tuple(impossible.values()))


def shown_name(name: str) -> str:
    """A name from a module, fit for a terminal: escaped, and not too long."""
    return visible(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…")


def _core_import(name: str, type_: str) -> Iterator[tuple[str, str]]:
    """The part that an import belongs to, or why it cannot be given, with the name to show."""
    if name in _HOST_TYPES:
        wrong = f"expected the type {_HOST_TYPES[name]}, found {shown_name(type_)}"
        yield ("host" if type_ == _HOST_TYPES[name] else wrong), name
        return
    module, _, function = name.partition(".")
    if module == _PREVIEW_1 and type_.startswith("func("):
        yield _PREVIEW_1_PARTS.get(function, _OTHER_WASI), function if function in _PREVIEW_1_PARTS else name
    elif module in ("wasi_unstable", "wasi"):
        yield _OLD_WASI, name
    else:
        yield _NOT_GIVEN, name


def _component_import(name: str, type_: str) -> Iterator[tuple[str, str]]:
    if name == "call":
        wrong = "expected the type func(op: string, args: string) -> result<string, string>"
        yield ("host" if _COMPONENT_CALL.fullmatch(type_) else f"{wrong}, found {shown_name(type_)}"), name
        return
    if type_ in (_PLAIN_TYPE, "interface"):  # an interface with nothing in it is linked from nothing
        return
    interface, _, function = name.partition("#")
    found = _INTERFACE.fullmatch(interface)
    part = _INTERFACE_PARTS.get(found[1]) if found else None
    if interface.startswith("wasi:sockets/"):
        yield SOCKETS, interface
    elif interface.startswith("wasi:http/"):
        yield _NO_HTTP, interface
    elif part is not None:
        yield (_ARGUMENTS if function in ("get-arguments", "initial-cwd") else part), interface
    else:
        yield (_OTHER_WASI if interface.startswith("wasi:") else _NOT_GIVEN), interface


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
