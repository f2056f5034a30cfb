"""Judges the imports of a WASM module: parts of WASI, and the host function of licet. A guest gets nothing else.

Plain data in, answers out: the command `licet wasm inspect` and the engine ask the same question. The names come from
the module, so they are hostile text, and are cut and escaped here before anybody shows them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.wasm.limits import LONGEST_NAME, MOST_NAMED

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
