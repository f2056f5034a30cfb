"""What the bundles of a tool say about its calls, put together with what the manifest says.

Each function gives the tighter of the two. A key that a bundle leaves out does not narrow.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from licet.core.policy.bundle import Bundle
from licet.core.policy.connector import Connectors
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import WRITE_APPROVALS, Admission, Approvals, both_keys


def bundles_of(manifest: Manifest, admissions: Iterable[Admission]) -> tuple[Bundle, ...]:
    """The bundles through which a tool is admitted."""
    names = dict.fromkeys(admission.bundle for admission in admissions)
    return tuple(manifest.bundles[name] for name in names if name in manifest.bundles)


def approvals_of(manifest: Manifest, bundles: Iterable[Bundle]) -> Approvals:
    """How a tool of these bundles is approved: the stricter value of each key."""
    approvals = manifest.approvals
    for stated in (bundle.approvals for bundle in bundles if bundle.approvals):
        approvals = Approvals(
            min(approvals.write, stated.get("write", approvals.write), key=WRITE_APPROVALS.index),
            min(approvals.expires_seconds, stated.get("expires_seconds", approvals.expires_seconds)),
            max(approvals.quorum, stated.get("quorum", approvals.quorum)),
            both_keys(approvals.keys, stated.get("keys")),
        )
    return approvals


def private_of(manifest: Manifest, bundles: Iterable[Bundle]) -> tuple[tuple[str, ...], ...]:
    """The lists of private addresses that a tool of these bundles is held to: an address must be in each."""
    return (*manifest.private, *(bundle.private for bundle in bundles if bundle.private is not None))


def connectors_of(manifest: Manifest, bundles: Iterable[Bundle]) -> Connectors:
    """The lists of connectors that a tool of these bundles is held to."""
    connectors, stated = manifest.connectors, [bundle for bundle in bundles if bundle.connectors is not None]
    if not stated:
        return connectors
    # The two tuples are read side by side, so that lists without a known place must have one here.
    unplaced = len(connectors.profiles) - len(connectors.profile_places)
    places = (*connectors.profile_places, *[("capabilities.connectors", manifest.origin)] * unplaced)
    return replace(
        connectors,
        profiles=(*connectors.profiles, *(bundle.connectors for bundle in stated if bundle.connectors is not None)),
        profile_places=(
            *places,
            *((f"bundles.{bundle.name}.connectors", bundle.place("connectors")) for bundle in stated),
        ),
    )
