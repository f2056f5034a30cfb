"""The decision about one call: pure, in one order, and an error on the way is a denial."""

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
from licet.core.reach import Reach, reach_of


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
        return Deny(request if isinstance(request, Request) else Request(""), (ground,))


def _unknown(request: Request, manifest: Manifest) -> Deny:
    tool = request.tool
    if tool in manifest.tools:
        text, fix = (
            f"`{tool}` is in no bundle assigned to `{manifest.agent}`",
            f"add `{tool}` under `capabilities.tools`",
        )
        return Deny(request, (Ground("TOOL_NOT_IN_BUNDLE", text, manifest.origin, fix),))
    if tool in manifest.seats:
        text, fix = f"`{tool}` is admitted, but nothing declares it", "declare it under `tools:` in the workspace"
        return Deny(request, (Ground("UNKNOWN_TOOL", text, manifest.seats[tool][0].origin, fix),))
    text, fix = f"`{tool}` is not known here", "declare it, and add it to a bundle or to `capabilities.tools`"
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
            text, fix = f"{wanted} would exceed {key} {limit}", f"raise `{key}`"
            return Deny(request, (Ground("BUDGET_EXCEEDED", text, manifest.origin, fix),))
    return None


def _asked(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Ask | None:
    """The first thing a person has not yet agreed to, or None."""
    if reach.approval:
        arguments = request.arguments if reach.approval == "call" else ""
        wanted = Approval(manifest.digest, request.tool, request.session, arguments)
        if wanted not in usage.approved:
            text = f"class {reach.effect} asks before each {reach.approval}"
            return Ask(request, wanted, (Ground("APPROVAL_REQUIRED", text, manifest.origin, _settle(reach)),))
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
