"""What is known of a compiled module, and of the wasmtime that is installed. Imports no wasmtime."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from licet.guard.execution import SandboxUnavailable
from licet.sandbox.wasi.sealed import SealedCode

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
