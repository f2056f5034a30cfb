"""Compiled modules: native code that is made once, kept in licet's data directory, and checked at each use.

A compiled file is named by the digest of the module and of what compiled it. `kept_files` says how it is kept.
"""

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from licet.core.canonical import digest
from licet.declare.wasm import MOST_BYTES, WasmModule
from licet.guard.execution import SandboxUnavailable
from licet.regular_files import read_regular
from licet.sandbox.wasi.compiled import Compiled, Described, wasmtime_version
from licet.sandbox.wasi.kept_files import Note, Turn, checked, keep, locked, private_directory, unfinished
from licet.sandbox.wasi.sealed import Changed, sealed
from licet.sandbox.workers.errand import ErrandFailed, run_errand

_COMPILER = ("licet.sandbox.wasi.compiler", "compile_file")  # by name: it imports wasmtime, which workers do alone
OUTPUT = "compiled"  # what the compiler calls its file
_FORMAT = 3
_LIMITS = {
    "open_files": 64,
    "file_bytes": 1 << 30,
    "address_bytes": 0,  # wasmtime reserves more addresses than it uses
}
_MOST_COMPILED = 1 << 30
# The C interface of wasmtime ends its process at such a type.
_ENDED = "; one reason is an imported or exported function that takes or returns vectors (v128), which cannot be called"


class CompileLimits(Struct, frozen=True):
    """What compiling one module may take: seconds by the clock and of the processor, and memory."""

    seconds: int
    memory_bytes: int


STRANGERS = CompileLimits(120, 2 << 30)  # ordinary modules take less than a second
OWN = CompileLimits(600, 4 << 30)  # the Python of licet is large, and takes 15 seconds of a machine that is not busy


class _Note(Note, frozen=True):
    """What is known of a compiled file, and of its module."""

    module: Described


class InvalidModule(Exception):
    """A file that wasmtime cannot compile. The text says why; `lasting` whether it would say so again."""

    def __init__(self, text: str, *, lasting: bool = True) -> None:
        self.lasting = lasting
        super().__init__(text)


def compiled(
    module: WasmModule, walls: Mapping[str, Any], limits: CompileLimits = STRANGERS, turn: Turn = contextlib.nullcontext
) -> Compiled:
    """The compiled form of a module: from the cache, or compiled now in a worker with these walls. Blocks.

    `turn` is entered once no other process compiles the module, for as long as there is something to do.
    Raises `InvalidModule`, or `SandboxUnavailable` if wasmtime or a place for the file is missing.
    """
    version = wasmtime_version()
    directory = private_directory("compiled", "compiled modules")
    # Wasmtime refuses code for a processor with other features by itself.
    made_by = ["wasmtime", version, platform.machine(), platform.system(), _FORMAT]
    name = digest({"module": module.sha256, "by": made_by}).removeprefix("sha256:")
    target = directory / f"{name}.cwasm"
    try:
        with locked(target), turn():
            note = checked(target, _Note, _FORMAT)
            if note is None:
                note = _compile(module, target, walls, limits)
            return Compiled(str(target), note.module, sealed(target, note.sha256))
    except (OSError, Changed) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)
        raise SandboxUnavailable(f"compiled code cannot be kept in {directory}: {reason}") from None


def _compile(module: WasmModule, target: Path, walls: Mapping[str, Any], limits: CompileLimits) -> _Note:
    """Compile a module into its place in the cache."""
    with _copy(module, target) as source:
        try:
            return run_errand(
                *_COMPILER,
                {"source": source},
                lambda scratch, described: _keep(scratch, described, module, target),
                walls=walls,
                read=[source],
                seconds=limits.seconds,
                limits={**_LIMITS, "cpu_seconds": limits.seconds, "memory_bytes": limits.memory_bytes},
                scratch_bytes=_MOST_COMPILED,
            )
        except ErrandFailed as failed:
            ended = failed.kind == "Ended"
            text = f"{module.file} cannot be compiled: {failed}{_ENDED if ended else ''}"
            raise InvalidModule(text, lasting=not ended) from None


@contextlib.contextmanager
def _copy(module: WasmModule, target: Path) -> Iterator[str]:
    """The module in a file next to its target, where no grant writes, with the bytes that were declared."""
    try:
        data = read_regular(module.file, MOST_BYTES)
    except OSError as wrong:
        raise SandboxUnavailable(f"{module.file} cannot be read: {wrong.strerror or wrong}") from None
    if hashlib.sha256(data).hexdigest() != module.sha256:
        raise SandboxUnavailable(f"{module.file} has changed since the tool was declared: start the program again")
    with unfinished(target) as directory:
        (directory / "module").write_bytes(data)
        yield str(directory / "module")


def _keep(scratch: str, described: Any, module: WasmModule, target: Path) -> _Note:
    """Move what a worker compiled into the cache, under its digest. The worker is not trusted with more than code."""
    if described.pop("sha256", None) != module.sha256:
        raise ErrandFailed("NoModule", "another file was compiled")
    found = msgspec.convert(described, Described)
    return keep(os.path.join(scratch, OUTPUT), target, lambda sha256, size: _Note(_FORMAT, sha256, size, found))
