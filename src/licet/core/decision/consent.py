"""How the writes and deletes of a tool are approved: when a person is asked, where that is written, what changes it.

`approvals.write` and `approvals.delete` share one approval. A call that asks about both asks once, and the approval of
the call covers the deletes that `approvals.delete` does not leave to be asked one by one. It does not matter whether
`fs_reach.write` or `grants` allow a delete.
"""

from collections.abc import Iterator

from licet.core.algebra.use import Use
from licet.core.decision.approval import time_text
from licet.core.decision.fixes import stand
from licet.core.decision.reach import Reach
from licet.core.decision.request import Ground
from licet.core.origin import Origin
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import WRITE_APPROVALS, WriteApproval

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
