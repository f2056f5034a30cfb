"""What `licet call` and `licet run` share: the manifest that a call is made under, and telling what came of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from licet.backends.manifest_yaml import load_manifest
from licet.core.manifest import Manifest
from licet.errors import ManifestError
from licet.guard.result import Result
from licet.surfaces.cli.options import Setting, read_sound
from licet.surfaces.cli.show import show


def sound_manifest(path: Path, setting: Setting, as_json: bool) -> Manifest:
    """The manifest in a file; what is wrong with it is shown, and ends the command."""
    try:
        return load_manifest(path, setting.workspace, setting.personality)
    except ManifestError:
        return read_sound(path, setting, as_json)  # shows what is wrong as every command does, and ends


def show_refusal(result: Result, state: str, ways_out: Iterable[str] = ()) -> None:
    """Explain on stderr why a call did not go through, with what else may help before the receipt.

    `state` is the option without which a command would look for the receipt elsewhere; empty if it would not.
    """
    first, *rest, receipt = result.explain().splitlines()
    show(first, err=True, colour="red")
    for line in (*rest, *ways_out, receipt):
        show(line, err=True)
    if state and result.receipt:
        show(f"  to see it     licet explain {result.receipt}{state}", err=True)


def result_document(result: Result) -> dict[str, Any]:
    """What came of a call, as plain data."""
    around = result.programs
    return {
        "ok": result.ok,
        "tool": result.tool,
        "value": result.value,
        "code": result.code,
        "reason": result.reason,
        "error": result.error or None,
        "explanation": None if result.ok else result.explain(),
        "receipt": result.receipt,
        "approvals": [
            {"by": list(one.by), "request": one.request or None, "use": one.approval.use or None}
            for one in result.approvals
        ],
        "cost_usd": str(result.cost_usd),
        "duration_ms": round(result.duration_ms, 3),
        "truncated": result.truncated,
        "sandbox": {
            "access": result.access.document() if result.access is not None else None,
            "layers": list(result.layers),
            "programs": {
                "access": result.program_access.document(),
                "layers": list(around.in_force),
                "missing": list(around.missing),
            }
            if around
            else None,
        },
        "events": [
            {
                "kind": type(event).__name__,
                "capability": event.capability,
                "tool_name": event.tool_name,
                "reason": event.reason or None,
                "rule": event.rule or None,
            }
            for event in result.events
        ],
    }
