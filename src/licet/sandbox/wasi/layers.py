"""Which walls stand around a WASM tool: wasmtime in a process of its own always, and those of the kernel around it.

At `restricted`, wasmtime alone keeps the guarantee: a guest has no files, network or processes. The walls of the kernel
are a second layer. On Linux they are required, unless the manifest has `sandbox: {allow_degraded: true}`; on other
systems there are none. At `isolated` the kernel enforces the denies inside a grant, so all walls are required.
"""

import sys

from licet.core.policy.effects import Level
from licet.guard.execution import Layers, SandboxUnavailable
from licet.sandbox.probe import Support
from licet.sandbox.wasi.compiled import wasmtime_version

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
