"""What is known of a compiled module, and of the wasmtime that is installed. Imports no wasmtime.

Compiled code in memory that nobody can change any more: what was checked is what workers map and run.

The cache is on disk, where a file may be replaced or deleted at any time, also while workers run from it. On systems
without such memory, workers map the checked file itself.

Which walls stand around a WASM tool: wasmtime in a process of its own always, and those of the kernel around it.

At `restricted`, wasmtime alone keeps the guarantee: a guest has no files, network or processes. The walls of the kernel
are a second layer. On Linux they are required, unless the manifest has `sandbox: {allow_degraded: true}`; on other
systems there are none. At `isolated` the kernel enforces the denies inside a grant, so all walls are required.
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

from licet.core.policy.layer import Level
from licet.guard.execution import Layers, SandboxUnavailable
from licet.own_files import open_regular
from licet.sandbox.probe import WORKER_WALLS, Support
from licet.sandbox.streams import write_all
from licet.wasm.limits import COPIED_AT_ONCE

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
        while data := os.read(source, COPIED_AT_ONCE):
            running.update(data)
            write_all(copy.fd, data)
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
    missing = tuple(wall for wall in WORKER_WALLS if not support.wall_holds(wall))
    if missing and on_linux() and not allow_degraded:
        text = "; ".join((*support.missing(level), *support.advice(level), _DEGRADED))
        raise SandboxUnavailable(f"`{level}` cannot be kept here: {text}")
    return Layers(("handles", "process", f"wasmtime-{version}", *support.layers(level, missing)), missing)


def on_linux() -> bool:
    """Whether this system has the walls of the kernel at all."""
    return sys.platform == "linux"
