"""Compiled modules: native code that is made once, kept in licet's data directory, and checked at each use.

A compiled file is named by the digest of the module and of what compiled it. `kept_files` says how it is kept.
"""

import contextlib
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from licet.core.canonical import digest
from licet.declare.wasm import MOST_BYTES, WasmModule
from licet.guard.execution import SandboxUnavailable
from licet.regular_files import read_regular
from licet.sandbox.wasi.compiled import Compiled, Described, wasmtime_version
from licet.sandbox.wasi.kept_files import Note, checked, keep, locked, private_directory
from licet.sandbox.workers.errand import ErrandFailed, run_errand

_COMPILER = ("licet.sandbox.wasi.compiler", "compile_file")  # by name: it imports wasmtime, which workers do alone
OUTPUT = "compiled"  # what the compiler calls its file
_FORMAT = 2
_SECONDS = 600.0  # for one module; the largest take some 20 seconds
_LIMITS = {
    "cpu_seconds": 1200,
    "memory_bytes": 4 << 30,
    "open_files": 64,
    "file_bytes": 1 << 30,
    "address_bytes": 0,  # wasmtime reserves more addresses than it uses
}
_MOST_COMPILED = 1 << 30
# The C interface of wasmtime ends its process at such a type.
_ENDED = "; one reason is an imported or exported function that takes or returns vectors (v128), which cannot be called"


class _Note(Note, frozen=True):
    """What is known of a compiled file, and of its module."""

    module: Described


class InvalidModule(Exception):
    """A file that wasmtime cannot compile. The text says why."""


def compiled(module: WasmModule, walls: Mapping[str, Any]) -> Compiled:
    """The compiled form of a module: from the cache, or compiled now in a worker with these walls. Blocks.

    Raises `InvalidModule`, or `SandboxUnavailable` if wasmtime or a place for the file is missing.
    """
    version = wasmtime_version()
    directory = private_directory("compiled", "compiled modules")
    # Wasmtime refuses code for a processor with other features by itself.
    made_by = ["wasmtime", version, platform.machine(), platform.system(), _FORMAT]
    name = digest({"module": module.sha256, "by": made_by}).removeprefix("sha256:")
    target = directory / f"{name}.cwasm"
    with locked(target):
        note = checked(target, _Note, _FORMAT)
        if note is None:
            note = _compile(module, target, walls)
    return Compiled(str(target), note.module)


def _compile(module: WasmModule, target: Path, walls: Mapping[str, Any]) -> _Note:
    """Compile a module into its place in the cache."""
    with _copy(module) as source:
        try:
            return run_errand(
                *_COMPILER,
                {"source": source},
                lambda scratch, described: _keep(scratch, described, target),
                walls=walls,
                read=[source],
                seconds=_SECONDS,
                limits=_LIMITS,
                scratch_bytes=_MOST_COMPILED,
            )
        except ErrandFailed as failed:
            if failed.kind in ("NoModule", "MemoryError", "Ended"):
                hint = _ENDED if failed.kind == "Ended" else ""
                raise InvalidModule(f"{module.file} cannot be compiled: {failed}{hint}") from None
            raise SandboxUnavailable(f"{module.file} cannot be compiled: {failed.kind}: {failed}") from None
        except OSError as wrong:
            raise SandboxUnavailable(f"what was compiled cannot be kept: {wrong.strerror or wrong}") from None


@contextlib.contextmanager
def _copy(module: WasmModule) -> Iterator[str]:
    """The module in a file that only this user can change, with the bytes that were declared."""
    try:
        data = read_regular(module.file, MOST_BYTES)
    except OSError as wrong:
        raise SandboxUnavailable(f"{module.file} cannot be read: {wrong.strerror or wrong}") from None
    if hashlib.sha256(data).hexdigest() != module.sha256:
        raise SandboxUnavailable(f"{module.file} has changed since the tool was declared: start the program again")
    with tempfile.NamedTemporaryFile(prefix="licet-module-", suffix=".wasm") as file:
        file.write(data)
        file.flush()
        yield file.name


def _keep(scratch: str, described: Any, target: Path) -> _Note:
    """Move what a worker compiled into the cache, under its digest. The worker is not trusted with more than code."""
    module = msgspec.convert(described, Described)
    return keep(os.path.join(scratch, OUTPUT), target, lambda sha256, size: _Note(_FORMAT, sha256, size, module))
