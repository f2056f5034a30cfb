"""The ceiling of an agent: what its policy allows to tools, whether a tool of today needs it or not."""

from collections.abc import Iterable, Iterator

from licet.core.algebra.capability import Capability
from licet.core.algebra.grid import TooManyPairs
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import meet_written_layers
from licet.core.policy.manifest import Manifest
from licet.core.review.entries import piece_text, target_of

_TOUCHED = CapabilitySet(("fs:*:*", "network:*:*", "process:*:*", "env:*:*", "secret:*:*"))
_WRITE = Capability("fs:write:*").atoms


def written_ceiling(manifest: Manifest) -> CapabilitySet:
    """What the policy allows of hosts, paths, programs, variables and secrets, without what licet always closes."""
    return meet_written_layers(manifest.layers) & _TOUCHED


def unused_parts(ceiling: CapabilitySet, grants: Iterable[CapabilitySet]) -> tuple[str, ...]:
    """The hosts, paths and names of a ceiling that no tool can reach. The next tool that declares them gets them.

    One entry of `destinations` allows every method, and one of `fs_reach.write` deletes too: a host that a tool reads,
    and a path that it writes, count as used.
    """
    used = CapabilitySet(rule for grant in grants for held in grant.allow for rule in _as_written(held))
    try:
        return tuple(piece_text(piece) for piece in ceiling - used)
    except TooManyPairs:
        return ()


def _as_written(rule: Capability) -> Iterator[Capability]:
    yield rule
    if rule.domain == "fs" and rule.atoms & _WRITE:
        yield Capability(f"fs:delete:{rule.scope}")
    if rule.domain == "network":
        yield Capability(f"network:*:{target_of(rule)}")
