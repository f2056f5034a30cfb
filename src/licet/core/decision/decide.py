"""The decision about one call: allow, deny or ask.

The order of the checks is fixed: the tool itself, its uses, budgets, flow, approvals. An error in a check is a denial.

How the writes and deletes of a tool are approved: when a person is asked, where that is written, what changes it.

`approvals.write` and `approvals.delete` share one approval. A call that asks about both asks once, and the approval of
the call covers the deletes that `approvals.delete` does not leave to be asked one by one. It does not matter whether
`fs_reach.write` or `grants` allow a delete.
"""

from collections.abc import Iterator
from decimal import Decimal

from licet.core.algebra.rules import Use
from licet.core.decision.approval import time_text
from licet.core.decision.decision import Allow, Ask, Decision, Deny
from licet.core.decision.fixes import settle, stand
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import (
    NOTHING,
    UNUSED,
    Approval,
    Ground,
    Request,
    Usage,
    is_sound,
    overspent,
    overspent_bundle,
    spent_of,
)
from licet.core.policy.keys import FLOW
from licet.core.policy.layer import delete_asks, distinct
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import WRITE_APPROVALS, WriteApproval
from licet.core.values import Origin

_NO_KEY = "approve each delete as it comes: no key settles that"


def consent(reach: Reach) -> str:
    """How writes and deletes are approved, and where this is written; empty if there are none and no call asks."""
    return "; ".join((*_writes(reach), *_deletes(reach)))


def _writes(reach: Reach) -> Iterator[str]:
    if reach.approved_by:
        origin = approval_origin(reach, "manifest")
        yield f"its writes are approved in the policy, pinned by `{reach.approved_by}` ({origin})"
    elif reach.approval is not None:
        yield f"it asks {_when(reach.approval)} ({approval_origin(reach, reach.approval)})"


def _deletes(reach: Reach) -> Iterator[str]:
    if reach.asks_deletes:
        yield f"its deletes of files are approved {_with_call(reach)} ({reach.delete_origin})"
    elif (standing := reach.standing) is not None:
        by = f"the standing approval {standing.id}, until {time_text(standing.expires)}"
        yield f"its deletes of files are approved by {by} ({reach.delete_origin})"


def _when(approval: WriteApproval) -> str:
    return "once a session" if approval == "session" else "before each call"


def approval_origin(reach: Reach, mode: WriteApproval) -> Origin:
    """Where a mode of approval is stated for a tool, or should be; an unpinned `manifest` means `session`."""
    if reach.effect == "destructive" and reach.class_origin is not None:  # the class itself requires the approval
        return reach.class_origin
    modes = (mode, "manifest") if mode == "session" else (mode,)
    stated = (admission.approval_origin for one in modes for admission in reach.admissions if admission.approval == one)
    return next(filter(None, stated), write_origin(reach.manifest))


def write_origin(manifest: Manifest) -> Origin:
    """Where the `approvals.write` of a manifest that counts is written, or should be: it may be an organisation's."""
    for above in manifest.organisations:
        if above.approvals.get("write") == manifest.approvals.write != manifest.own.approvals.write:
            return above.place("approvals.write")
    return manifest.places.get("approvals", manifest.origin)


def deletes_ground(reach: Reach) -> Ground:
    """Why the call needs an approval for the deletes that it may make without asking again."""
    text = f"deletes of files ask {_with_call(reach)}"
    fix = ""
    if reach.effect != "destructive":
        if reach.approvals.delete == "manifest":
            text += f", since {reach.manifest.standing_problem or 'nobody has given a standing approval of them'}"
        settled = _settled(reach, "manifest")
        fix = f"approve it, or {settled}" if settled else "approve it"
    return Ground("APPROVAL_REQUIRED", text, reach.delete_origin, fix)


def delete_ground(reach: Reach, use: Use) -> Ground:
    """Why one delete needs an approval of its own."""
    fix = f"approve each delete as it comes, or {_settled(reach, 'session')}" if use.domain == "fs" else _NO_KEY
    return Ground("APPROVAL_REQUIRED", f"each delete asks at class {reach.effect}", reach.class_origin, fix)


def unapproved_deletes_ground(reach: Reach) -> Ground:
    """Why a program was refused to remove what it has not made itself."""
    text = "nobody has approved deletes, so only what was made meanwhile may go"
    return Ground("APPROVAL_REQUIRED", text, reach.delete_origin, _settled(reach, "manifest"))


def _with_call(reach: Reach) -> str:
    return "once a session" if reach.approval == "session" else "together with the call"


def _settled(reach: Reach, wanted: WriteApproval) -> str:
    """The edits after which deletes of files ask no more than `wanted` says; empty if there are none."""
    manifest, places = reach.manifest, []
    if _stricter(manifest.own.approvals.delete, wanted):
        ceilings = [layer for layer in manifest.layers if layer.kind in ("manifest", "personality")]
        places += [
            f"`{'capabilities.' if layer.kind == 'manifest' else ''}approvals.delete: {wanted}` in {layer.origin.file}"
            for layer in ceilings
        ]
    places += [
        f"`bundles.{bundle.name}.approvals.delete: {wanted}` in {bundle.place('approvals.delete').file}"
        for bundle in reach.bundles
        if _stricter(bundle.approvals.get("delete", "manifest"), wanted)
    ]
    places += [
        f"`approvals.delete: {wanted}` in {above.place('approvals.delete').file}"
        for above in manifest.organisations
        if _stricter(above.approvals.get("delete", "manifest"), wanted)
    ]
    steps = [f"set {' and '.join(places)}"] if places else []
    if wanted == "manifest":
        given = stand(manifest)
        steps = [*steps, given] if given else []
    return ", and ".join(steps)


def _stricter(one: WriteApproval, two: WriteApproval) -> bool:
    return WRITE_APPROVALS.index(one) < WRITE_APPROVALS.index(two)


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
        if (unmet := _unmet(usage)) and FLOW.of(manifest).otherwise == "deny":
            return Deny(request, unmet)
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


def _unmet(usage: Usage) -> tuple[Ground, ...]:
    """The rules of flow that the call does not meet; empty if it meets all, or they are only watched."""
    if usage.flow is None or not usage.flow.stops:
        return ()
    return tuple(Ground(one.reason, one.text, one.place, one.fix) for one in usage.flow.unmet)


def _asked(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Ask | None:
    """Ask for the first missing approval, and list the others; None if none is missing."""
    if request.narrowed:
        reach = reach.without_approved_deletes
    if request.asked or _unmet(usage):
        found = [*_arguments_ask(request, manifest, reach, usage)]
    else:
        found = [*_call_asks(request, manifest, reach, reach.approval, usage)] if reach.approval else []
    if request.uses:
        found += _deletes_ask(request, request.uses, manifest, reach, usage)
    if not found:
        return None
    # A person who is asked anyway is not asked a second time, when the tool deletes what its arguments name.
    held = tuple(use for use in request.likely if use not in request.uses and reach.grant.has(use))
    found += _deletes_ask(request, held, manifest, reach, usage)
    wanted, _, use = found[0]
    also = distinct(tuple(approval for approval, _, _ in found if approval != wanted))
    return Ask(request, wanted, distinct(tuple(ground for _, ground, _ in found)), use, also)


def _arguments_ask(request: Request, manifest: Manifest, reach: Reach, usage: Usage) -> Iterator[_Asking]:
    """Ask about a call for the values of its arguments and their origins, even if nothing else about it asks.

    Only an approval of exactly these arguments counts, and it settles what else the call would ask. If rules of flow
    are not met, it must have been given to just these: an approval from before the session read them does not count.
    """
    unmet = _unmet(usage)
    flow = usage.flow.subject if unmet and usage.flow is not None else ""
    digest, name = manifest.digest, request.tool
    exact = Approval(digest, name, request.session, request.arguments, deletes=reach.asks_deletes, flow=flow)
    if exact in usage.approved and request.arguments:
        return
    for unmet_ground in unmet:
        yield exact, unmet_ground, None
    for argument in request.asked:
        yield exact, asked_ground(reach, argument), None
    for _, ground, _ in _call_asks(request, manifest, reach, reach.approval, usage) if reach.approval else ():
        yield exact, ground, None


def asked_ground(reach: Reach, argument: str) -> Ground:
    """Why the value of an argument needs an approval."""
    stated = (one.origin for one in reach.admissions if argument in one.asking)
    origin = next(stated, reach.manifest.origin)
    fix = f"approve it, or change `args.{argument}.ask` of `{reach.spec.name}` in {origin.file}"
    return Ground("APPROVAL_REQUIRED", f"the value of `{argument}` asks before each call", origin, fix)


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
    if not places and ("approvals" in manifest.places or manifest.organisations):
        places = {manifest.approvals.write: write_origin(manifest)}
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
