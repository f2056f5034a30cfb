"""The specification of a WASM tool for its worker: compiled file, limits, and preopened directories of WASI."""

import os
from collections.abc import Mapping
from typing import Any

from licet.core.algebra.scope import inside
from licet.declare import Tool
from licet.declare.wasm import PYTHON, WasmTool, parameters_of
from licet.guard.grant import Grant
from licet.sandbox.grant_paths import kernel_paths
from licet.sandbox.wasi.compiled import Compiled
from licet.sandbox.workers.wire import RESULT_BYTES

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
