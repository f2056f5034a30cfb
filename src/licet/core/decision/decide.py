"""The decision about one call: allow, deny or ask.

The order of the checks is fixed: the tool itself, its uses, budgets, approvals. An error in a check is a denial.

`tied` and `use_of` find the uses that are known before a call runs, from arguments that the manifest gives a `scope`.
"""

from collections.abc import Iterator
from decimal import Decimal

from licet.core.algebra.use import Use
from licet.core.decision.budget import NOTHING, overspent, overspent_bundle, spent_of
from licet.core.decision.consent import approval_origin, delete_ground, deletes_ground
from licet.core.decision.decision import Allow, Ask, Decision, Deny
from licet.core.decision.fixes import settle
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import UNUSED, Approval, Ground, Request, Usage, is_sound
from licet.core.policy.effects import delete_asks
from licet.core.policy.layer import distinct
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import WRITE_APPROVALS, WriteApproval

_Asking = tuple[Approval, Ground, Use | None]  # the missing approval, the reason, and the use if it is about one


def decide(request: Request, manifest: Manifest, usage: Usage = UNUSED) -> Decision:
    """Decide whether a call may run, is refused, or needs an approval first; the result has the deciding rules."""
    try:
        if not is_sound(request):
            return _failed(request.tool, TypeError())
        reach = reach_of(manifest, request.tool)
        if reach is None:
            return Deny(request, manifest)
        if reach.grounds:
            return Deny(request, reach.grounds)
        refused = reach.grant.lacks(request.uses)
        if refused is not None:
            return Deny(request, reach, refused)
        over = _overspent(request, manifest, reach, usage)
        if over is not None:
            return over
        asked = _asked(request, manifest, reach, usage)
        return Allow(request, reach) if asked is None else asked
    except Exception as error:  # fail closed: an error must never allow a call
        return _failed(request.tool if isinstance(request, Request) else "", error)


def _failed(tool: object, error: Exception) -> Deny:
    ground = Ground("DECISION_FAILED", f"deciding failed: {type(error).__name__}")
    return Deny(Request(tool if isinstance(tool, str) else ""), (ground,))


def _overspent(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Deny | None:
    if reach.unlimited:
        return None
    spent, cost = spent_of(usage, request.tool), reach.spec.cost_usd or NOTHING
    found = overspent(spent, cost, manifest.budget, reach.max_calls, reach.max_cost_usd)
    if found is None:
        return _bundle_overspent(request, reach, usage, cost)
    key, limit = found.key, found.limit
    if found.of_tool:
        origin = next(admission.origin for admission in reach.admissions if getattr(admission, key) == limit)
        whose = f" of `{request.tool}`"
    else:
        origin, whose = manifest.places.get(key, manifest.origin), ""
    text, fix = f"{found.wanted} would exceed {key} {limit}{whose}", f"raise `{key}`{whose} in {origin.file}"
    return Deny(request, (Ground("BUDGET_EXCEEDED", text, origin, fix),))


def _bundle_overspent(request: Request, reach: Reach, usage: Usage, cost: Decimal) -> Deny | None:
    found = overspent_bundle(usage, cost, reach.bundles)
    if found is None:
        return None
    bundle, over = found
    origin, path = bundle.place(f"budget.{over.key}"), f"bundles.{bundle.name}.budget.{over.key}"
    text = f"{over.wanted} would exceed {over.key} {over.limit} of the bundle `{bundle.name}`"
    return Deny(request, (Ground("BUDGET_EXCEEDED", text, origin, f"raise `{path}` in {origin.file}"),))


def _asked(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Ask | None:
    """Ask for the first missing approval, and list the others; None if none is missing."""
    found = [*_call_asks(request, manifest, reach, reach.approval, usage)] if reach.approval else []
    found += _deletes_ask(request, request.uses, manifest, reach, usage)
    if not found:
        return None
    # A person who is asked anyway is not asked a second time, when the tool deletes what its arguments name.
    held = tuple(use for use in request.likely if use not in request.uses and reach.grant.has(use))
    found += _deletes_ask(request, held, manifest, reach, usage)
    wanted, _, use = found[0]
    also = distinct(tuple(approval for approval, _, _ in found if approval != wanted))
    return Ask(request, wanted, distinct(tuple(ground for _, ground, _ in found)), use, also)


def _call_asks(
    request: Request, manifest: Manifest, reach: Reach, approval: WriteApproval, usage: Usage
) -> Iterator[_Asking]:
    arguments = request.arguments if approval == "call" else ""
    wanted = Approval(manifest.digest, request.tool, request.session, arguments, deletes=reach.asks_deletes)
    # The approval of one call must name its arguments. Without them it would approve every call.
    if wanted in usage.approved and (approval != "call" or request.arguments):
        return
    if not reach.approved_by:  # otherwise only the deletes ask
        when = "once a session" if approval == "session" else "before each call"
        modes = {admission.approval for admission in reach.admissions}
        if approval == "session" and "manifest" in modes and "session" not in modes:
            when += ", since a policy that is not pinned approves nothing by itself"
        # The class `destructive` always asks, so no edit of the approvals of writes would change that.
        fix = "" if reach.effect == "destructive" else settle(manifest, reach.admissions)
        text, origin = f"class {reach.effect} asks {when}", approval_origin(reach, approval)
        yield wanted, Ground("APPROVAL_REQUIRED", text, origin, fix), None
        if reach.effect == "destructive" and (ground := _write_ground(manifest, reach)):
            yield wanted, ground, None  # the same approval covers it
    if reach.asks_deletes:
        yield wanted, deletes_ground(reach), None


def _write_ground(manifest: Manifest, reach: Reach) -> Ground | None:
    """Why writes need an approval, apart from the class; None if they do not."""
    places = {admission.approval: admission.approval_origin for admission in reach.admissions if admission.approval}
    if not places and "approvals" in manifest.places:
        places = {manifest.approvals.write: manifest.places["approvals"]}
    write: WriteApproval = min(places, key=WRITE_APPROVALS.index, default="manifest")
    if write == "manifest":
        return None
    when = "once a session" if write == "session" else "before each call"
    return Ground("APPROVAL_REQUIRED", f"writes ask {when}", places[write])


def _deletes_ask(
    request: Request, uses: tuple[Use, ...], manifest: Manifest, reach: Reach, usage: Usage
) -> Iterator[_Asking]:
    for use in uses:
        if reach.effect and delete_asks(use, reach.effect, reach.free_deletes):
            wanted = Approval(manifest.digest, request.tool, request.session, request.arguments, str(use))
            if wanted not in usage.approved:
                yield wanted, delete_ground(reach, use), use
