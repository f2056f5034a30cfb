"""The decision about one call: pure, in one order, and an error on the way is a denial."""

from licet.core.advice import add_to_layer
from licet.core.decision import (
    UNUSED,
    Allow,
    Approval,
    Ask,
    Decision,
    Deny,
    Ground,
    Request,
    Usage,
)
from licet.core.effects import delete_asks
from licet.core.manifest import Manifest
from licet.core.reach import CEILINGS, Reach, reach_of
from licet.core.scope import visible
from licet.core.use import Use


def decide(request: Request, manifest: Manifest, usage: Usage = UNUSED) -> Decision:
    """Whether a call may run, must be asked about, or is refused, and which rules say so."""
    try:
        reach: Reach | None = manifest.folded.get(request.tool) or reach_of(manifest, request.tool)
        if reach is None:
            return _unknown(request, manifest)
        if reach.grounds:
            return Deny(request, reach.grounds)
        refused = reach.grant.lacks(request.uses)
        if refused is not None:
            return Deny(request, reach, refused)
        if reach.plain:
            return Allow(request, reach)
        return (
            _overspent(request, manifest, reach, usage)
            or _asked(request, manifest, reach, usage)
            or Allow(request, reach)
        )
    except Exception as error:  # fail closed: whatever went wrong here must not become a yes
        ground = Ground("DECISION_FAILED", f"deciding failed: {type(error).__name__}")
        tool = request.tool if isinstance(request, Request) else ""
        return Deny(Request(tool if isinstance(tool, str) else ""), (ground,))


def _unknown(request: Request, manifest: Manifest) -> Deny:
    tool = request.tool
    if tool in manifest.seats:
        text, fix = f"`{tool}` is admitted, but nothing declares it", "declare it under `tools:` in the workspace"
        return Deny(request, (Ground("UNKNOWN_TOOL", text, manifest.seats[tool][0].origin, fix),))
    if tool in manifest.tools:
        call = Use(f"tool:call:{tool}")
        closed = [layer for layer in manifest.layers if layer.kind in CEILINGS and not layer.allowed.has(call)]
        text = f"`{tool}` is in no bundle assigned to `{manifest.agent}`"
        grounds = tuple(Ground("TOOL_NOT_IN_BUNDLE", text, one.origin, add_to_layer(one, call)) for one in closed)
        return Deny(request, grounds or (Ground("TOOL_NOT_IN_BUNDLE", text, manifest.origin),))
    text, fix = f"`{visible(tool)}` is not known here", "declare it, and add it to a bundle or to `capabilities.tools`"
    return Deny(request, (Ground("UNKNOWN_TOOL", text, manifest.origin, fix),))


def _overspent(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Deny | None:
    budget, cost = manifest.budget, reach.spec.cost_usd or 0
    limits = (
        ("max_calls_per_session", budget.max_calls_per_session, usage.calls + 1),
        ("max_calls", reach.max_calls, usage.calls_of_tool.get(request.tool, 0) + 1),
        ("max_cost_usd", budget.max_cost_usd, usage.cost_usd + cost),
        ("max_cost_usd_per_day", budget.max_cost_usd_per_day, usage.cost_usd_today + cost),
    )
    for key, limit, wanted in limits:
        if limit is not None and wanted > limit:
            origin = reach.seats[-1].origin if key == "max_calls" else manifest.places.get(key, manifest.origin)
            text, fix = f"{wanted} would exceed {key} {limit}", f"raise `{key}` in {origin.file}"
            return Deny(request, (Ground("BUDGET_EXCEEDED", text, origin, fix),))
    return None


def _asked(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Ask | None:
    """The first thing a person has not yet agreed to, or None."""
    if reach.approval:
        arguments = request.arguments if reach.approval == "call" else ""
        wanted = Approval(manifest.digest, request.tool, request.session, arguments)
        if wanted not in usage.approved:
            when = "once a session" if reach.approval == "session" else "before each call"
            origin = manifest.places.get("approvals", manifest.origin)
            ground = Ground("APPROVAL_REQUIRED", f"class {reach.effect} asks {when}", origin, _settle(reach))
            return Ask(request, wanted, (ground,))
    for use in request.uses:
        if reach.effect and delete_asks(use, reach.effect):
            wanted = Approval(manifest.digest, request.tool, request.session, request.arguments, str(use))
            if wanted not in usage.approved:
                text = f"each delete asks at class {reach.effect}"
                return Ask(request, wanted, (Ground("APPROVAL_REQUIRED", text, manifest.origin),), use)
    return None


def _settle(reach: Reach) -> str:
    if reach.effect == "destructive":
        return ""
    return "approve it, or set `approvals: {write: manifest}` under `capabilities` to approve in the file"
