"""The approvals, private addresses and connectors of a tool, from its manifest and its bundles.

The tighter value counts. A key that a bundle leaves out does not narrow.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from licet.core.algebra.set import CapabilitySet
from licet.core.canonical import key_bytes
from licet.core.decision.approval import enough
from licet.core.policy.bundle import Bundle
from licet.core.policy.connector import Connectors
from licet.core.policy.effects import ELEVATED, EffectClass
from licet.core.policy.manifest import Manifest
from licet.core.policy.meet import placed
from licet.core.policy.terms import (
    APPROVED_IN_REVIEW,
    Admission,
    Approvals,
    StandingApproval,
    WriteApproval,
)


def bundles_of(manifest: Manifest, admissions: Iterable[Admission]) -> tuple[Bundle, ...]:
    """The bundles through which a tool is admitted."""
    names = dict.fromkeys(admission.bundle for admission in admissions)
    return tuple(manifest.bundles[name] for name in names if name in manifest.bundles)


def approvals_of(manifest: Manifest, bundles: Iterable[Bundle]) -> Approvals:
    """The stricter value of each approval key of the manifest and these bundles."""
    approvals = manifest.approvals
    for stated in (bundle.approvals for bundle in bundles if bundle.approvals):
        approvals = approvals.narrowed_by(stated)
    return approvals


def private_of(manifest: Manifest, bundles: Iterable[Bundle]) -> tuple[tuple[str, ...], ...]:
    """The lists of private addresses for a tool of these bundles; an address must be in each list."""
    return (*manifest.private, *(bundle.private for bundle in bundles if bundle.private is not None))


def connectors_of(manifest: Manifest, bundles: Iterable[Bundle]) -> Connectors:
    """The allowlists of connectors for a tool of these bundles."""
    connectors, stated = manifest.connectors, [bundle for bundle in bundles if bundle.connectors is not None]
    if not stated:
        return connectors
    return replace(
        connectors,
        profiles=(*connectors.profiles, *(bundle.connectors for bundle in stated if bundle.connectors is not None)),
        profile_places=(
            *placed(manifest),
            *((f"bundles.{bundle.name}.connectors", bundle.place("connectors")) for bundle in stated),
        ),
    )


def delete_approval(
    manifest: Manifest, approvals: Approvals, effect: EffectClass | None, deletes: CapabilitySet
) -> WriteApproval | None:
    """When deletes of files ask; None if the class has none.

    `manifest` counts only with a standing approval of all of them, and below `destructive`; else it means `session`.
    """
    if effect not in ELEVATED:
        return None
    if approvals.delete != "manifest":
        return approvals.delete
    standing = manifest.standing
    if effect == "destructive" or standing is None or not _agreed(standing, approvals):
        return "session"
    return "manifest" if deletes <= CapabilitySet(standing.deletes) else "session"


def _agreed(standing: StandingApproval, approvals: Approvals) -> bool:
    """Whether those who gave a standing approval are enough for a tool: its bundle may ask for more signatures."""
    if standing == APPROVED_IN_REVIEW:
        return True
    listed = None if approvals.keys is None else {key_bytes(key) for key in approvals.keys} - {None}
    by = tuple(one for one in standing.by if listed is None or key_bytes(one) in listed)
    return enough(by, approvals.quorum, approvals.keys)
