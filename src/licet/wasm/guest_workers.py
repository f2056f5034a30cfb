"""Runs tools in workers, WASM tools too: the engine that gates use, and what the worker of such a tool gets.

Its specification has the compiled file, the limits, and the preopened directories of WASI. The worker imports wasmtime;
the host does not.
"""

import os
from typing import Any

from licet.core.algebra.scope import inside
from licet.core.policy.layer import Level
from licet.declare import Tool
from licet.declare.decorator import WasmTool
from licet.declare.wasm import PYTHON, parameters_of
from licet.guard.bind import BoundContext, parts_of
from licet.guard.execution import Layers, Stopped, ToolCall
from licet.guard.grant import Grant
from licet.sandbox.grant_paths import kernel_paths
from licet.sandbox.limits import RESULT_BYTES
from licet.sandbox.workers.engine import Workers
from licet.sandbox.workers.pool import DEFAULTS, GuestParts
from licet.wasm.cache import Compiled, InvalidModule, wasm_layers
from licet.wasm.compile_queue import modules
from licet.wasm.limits import FUEL, OWN_MEMORY, REPORTED

_LOADER = ("licet.wasm.guest", "Guest")  # by name: it imports wasmtime, which workers do alone
Preopen = tuple[str, str, bool]  # a directory, its name for the guest, and whether it is writable


class WasmWorkers(Workers):
    """Runs WASM tools too, behind wasmtime and the walls of the kernel."""

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The layers around one tool: those of its level, or those of a WASM tool."""
        if isinstance(tool, WasmTool):
            return wasm_layers(self.support(), level, allow_degraded=allow_degraded)
        return super().tool_layers(tool, level, allow_degraded=allow_degraded)

    async def guest(self, level: Level, call: ToolCall, context: BoundContext) -> GuestParts | None:
        """The compiled module of a WASM tool, and what its workers get with it; None for a Python function."""
        tool, support = call.tool, self.support()
        if not isinstance(tool, WasmTool):
            return None
        degraded = parts_of(context).grant.reach.manifest.allow_degraded
        missing = wasm_layers(support, level, allow_degraded=degraded).missing
        try:
            made = await modules.compiled(tool.module, support.walls_in_spec(missing), call.seconds, call.deadline)
        except InvalidModule as wrong:
            raise Stopped("TOOL_FAILED", str(wrong), ran=False) from None
        readable = () if made.code is not None else (made.file,)
        opened = preopens if level == "isolated" else None
        return GuestParts(
            _guest_spec(tool, made, call, context.workdir), REPORTED, missing, made.code, readable, opened
        )


def _guest_spec(tool: WasmTool, compiled: Compiled, call: ToolCall, workdir: str) -> dict[str, Any]:
    """The parts of a worker's specification that differ for a WASM tool. Preopens are added for each worker."""
    limits = {**DEFAULTS, "fuel": FUEL, **call.limits}
    return {
        "guest": {
            "loader": _LOADER,
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
            "memory_bytes": (limits["memory_mb"] << 20) + OWN_MEMORY,
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
