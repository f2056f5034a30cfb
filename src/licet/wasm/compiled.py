"""What is known of a compiled module, and of the wasmtime that is installed. Imports no wasmtime.

Compiled code in memory that nobody can change any more: what was checked is what workers map and run.

The cache is on disk, where a file may be replaced or deleted at any time, also while workers run from it. On systems
without such memory, workers map the checked file itself.

Which walls stand around a WASM tool: wasmtime in a process of its own always, and those of the kernel around it.

At `restricted`, wasmtime alone keeps the guarantee: a guest has no files, network or processes. The walls of the kernel
are a second layer. On Linux they are required, unless the manifest has `sandbox: {allow_degraded: true}`; on other
systems there are none. At `isolated` the kernel enforces the denies inside a grant, so all walls are required.

The specification of a WASM tool for its worker: compiled file, limits, and preopened directories of WASI.
"""

import errno
import hashlib
import importlib.metadata
import os
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.core.policy.layer import Level
from licet.declare import Tool
from licet.declare.wasm import PYTHON, WasmTool, parameters_of
from licet.guard.execution import Layers, SandboxUnavailable
from licet.guard.grant import Grant
from licet.own_files import open_regular
from licet.sandbox.bridge.wire import RESULT_BYTES
from licet.sandbox.grant_paths import kernel_paths
from licet.sandbox.probe import Support

_CHUNK = 1 << 20
_NOEXEC_SEAL = 8  # MFD_NOEXEC_SEAL


class SealedCode:
    """A sealed copy of a compiled file. The memory is given back with the last reference to it and the last worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)


class Changed(Exception):
    """A compiled file that is not as it was made."""


def sealed(file: Path, sha256: str) -> SealedCode | None:
    """A sealed copy of a file with this digest; None on a system without such memory. Raises `Changed` or `OSError`."""
    if not hasattr(os, "memfd_create"):
        return None
    import fcntl  # not on every platform

    copy = SealedCode(_memory())
    running = hashlib.sha256()
    with open_regular(file, links=False) as source:
        while data := os.read(source, _CHUNK):
            running.update(data)
            _write(copy.fd, data)
    if running.hexdigest() != sha256:
        raise Changed(f"{file} has changed since it was made")
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(copy.fd, fcntl.F_ADD_SEALS, seals)
    return copy


def _memory() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # No file that can be executed: some systems permit no other. Its pages can still be mapped as code.
        return os.memfd_create("licet-code", flags | _NOEXEC_SEAL)
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # a kernel before 6.3 does not know the flag
            raise
    return os.memfd_create("licet-code", flags)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


EXTRA = "install it with `pip install 'licet[wasm]'`"


class Described(Struct, frozen=True):
    """What a module is: its kind, what it imports and exports, and the memory that it starts with."""

    kind: str  # `module` or `component`
    imports: tuple[Mapping[str, Any], ...]
    exports: tuple[Mapping[str, Any], ...]
    memory_bytes: int = 0
    memory_most_bytes: int = 0


class Compiled(Struct, frozen=True):
    """A compiled module: its file, what the module is, and its code in sealed memory where there is such memory."""

    file: str
    module: Described
    code: SealedCode | None = None


def wasmtime_version() -> str:
    """The version of wasmtime, without importing it. Raises `SandboxUnavailable` if it is not installed."""
    try:
        return importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise SandboxUnavailable(f"WASM tools need wasmtime, which is not installed: {EXTRA}") from None


WALLS = ("landlock", "seccomp", "hardening")
_DEGRADED = (
    "or let WASM tools run without them, behind wasmtime alone: `sandbox: {allow_degraded: true}` in the manifest"
)


def wasm_layers(support: Support, level: Level, *, allow_degraded: bool) -> Layers:
    """The layers around a WASM tool, and those that are missing. Raises `SandboxUnavailable` if it may not run."""
    if level == "native":
        raise SandboxUnavailable("a WASM module never runs in the process of the host: use `restricted` or `isolated`")
    version = wasmtime_version()
    if level == "isolated":
        support.require(level)
    missing = tuple(wall for wall in WALLS if not support.wall_holds(wall))
    if missing and on_linux() and not allow_degraded:
        text = "; ".join((*support.missing(level), *support.advice(level), _DEGRADED))
        raise SandboxUnavailable(f"`{level}` cannot be kept here: {text}")
    held = [f"landlock-{support.landlock}" if wall == "landlock" else wall for wall in WALLS if wall not in missing]
    return Layers(("handles", "process", f"wasmtime-{version}", *held), missing)


def on_linux() -> bool:
    """Whether this system has the walls of the kernel at all."""
    return sys.platform == "linux"


def walls_in_spec(support: Support, missing: tuple[str, ...] = ()) -> dict[str, object]:
    """The part of a worker's specification that says which walls it builds."""
    return {"landlock": support.landlock, "walls": [wall for wall in WALLS if wall not in missing]}


_OWN_MEMORY = 256 << 20  # bytes that the interpreter and wasmtime may use besides the memory of the guest


Preopen = tuple[str, str, bool]  # a directory, its name for the guest, and whether it is writable


def guest_spec(tool: Tool, compiled: Compiled, limits: Mapping[str, int], workdir: str) -> dict[str, Any]:
    """The parts of a worker's specification that differ for a WASM tool. Preopens are added for each worker."""
    assert isinstance(tool, WasmTool)  # noqa: S101
    return {
        "wasm": {
            "name": tool.name,
            "kind": compiled.module.kind,
            "compiled": compiled.file,
            "function": tool.module.function,
            "python": tool.module.file == PYTHON,
            "workdir": workdir,
            "parameters": list(parameters_of(tool.schema)),
            "fuel": limits["fuel"],
            "cpu_seconds": limits["cpu_seconds"],
            "memory_bytes": limits["memory_mb"] << 20,
            "output_bytes": RESULT_BYTES,
            "preopens": [],
        },
        "limits": {
            "cpu_seconds": limits["cpu_seconds"] * 2,
            "memory_bytes": (limits["memory_mb"] << 20) + _OWN_MEMORY,
            "open_files": limits["open_files"],
            "file_bytes": max(limits["file_mb"] << 20, RESULT_BYTES),
            "address_bytes": 0,  # wasmtime reserves more addresses than it uses
        },
    }


def preopens(grant: Grant, workdir: str) -> list[Preopen]:
    """The granted directories that exist now, for WASI to open ahead.

    WASI opens directories, so a grant of a single file is reached through the host function alone. Landlock enforces
    the denies inside.
    """
    paths = kernel_paths(grant, private_root=False)
    found: list[Preopen] = []
    for path in dict.fromkeys((*paths.read, *paths.write)):
        if os.path.isdir(path):
            found.append((path, path, path in paths.write))
            if inside(path, (workdir,)):
                found.append((path, os.path.relpath(path, workdir), path in paths.write))  # for relative paths
    return found
