"""WebAssembly modules from their text form. Tests that use them need wasmtime, and are skipped without it."""

from pathlib import Path

import pytest

EMPTY = b"\0asm\1\0\0\0"  # the smallest module: nothing but its header


def wasm(text: str) -> bytes:
    """A module from its text form."""
    wasmtime = pytest.importorskip("wasmtime")
    return bytes(wasmtime.wat2wasm(text))


def write_wasm(file: Path, text: str = "(module)") -> Path:
    """Write a module from its text form to a file."""
    file.write_bytes(wasm(text))
    return file
