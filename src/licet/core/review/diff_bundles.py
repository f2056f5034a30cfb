"""Compares the terms of bundles between two manifests: budgets, approvals, connectors and private addresses.

A difference that the agent's own policy has too is not repeated for its bundles.
"""

from collections.abc import Iterator
from decimal import Decimal

from licet.core.policy.addresses import beyond
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import BUDGET_KEYS, WRITE_APPROVALS, Approvals, least
from licet.core.review.changes import ChangePlaces, Side, SidedChanges, T, limit_rank
from licet.core.review.surface import Surface
from licet.core.review.surface_bundles import Terms, Versions, agent_terms, terms_of, used_bundles


def bundle_changes(old: Manifest, new: Manifest) -> SidedChanges:
    """Compare every bundle that both manifests use."""
    own = agent_terms(old), agent_terms(new)
    for name in sorted({*used_bundles(old)} & {*used_bundles(new)}):
        was, now = terms_of(old, (name,)), terms_of(new, (name,))
        places, prefix = ChangePlaces(was.origin, now.origin), f"bundle `{name}`: "
        if (was.approvals.write, now.approvals.write) != (own[0].approvals.write, own[1].approvals.write):
            asks = was.approvals.write, now.approvals.write
            yield from places.rank_changed("approval", f"{prefix}approvals.write", *asks, WRITE_APPROVALS.index)
        yield from _changes(was, now, own, places, prefix)


def moved_tools(old: Manifest, new: Manifest, before: Surface, after: Surface) -> SidedChanges:
    """Compare the bundle terms of each tool that was moved to another bundle, since its old terms no longer apply."""
    own, old_tools = (agent_terms(old), agent_terms(new)), {tool.name: tool for tool in before.tools}
    for now in after.tools:
        was = old_tools.get(now.name)
        if was is None or was.bundles == now.bundles or not (was.reachable and now.reachable):
            continue
        terms = terms_of(old, was.bundles), terms_of(new, now.bundles)
        yield from _changes(*terms, own, ChangePlaces(was.origin, now.origin, now.name), "bundle: ")


def _changes(was: Terms, now: Terms, own: tuple[Terms, Terms], places: ChangePlaces, prefix: str) -> SidedChanges:
    for key in BUDGET_KEYS:
        limits = _tightest(was, key), _tightest(now, key)
        yield from places.rank_changed("budget", f"{prefix}{key}", *limits, limit_rank)
    if (was.approvals, now.approvals) != (own[0].approvals, own[1].approvals):
        yield from _approvals(was.approvals, now.approvals, places, prefix)
        if (was.approvals.delete, now.approvals.delete) != (own[0].approvals.delete, own[1].approvals.delete):
            deletes = was.approvals.delete, now.approvals.delete
            yield from places.rank_changed("approval", f"{prefix}approvals.delete", *deletes, WRITE_APPROVALS.index)
    if (was.private, now.private) != (own[0].private, own[1].private):
        for side, here, there in _both_ways(was.private, now.private):
            for text in beyond(here, there):
                yield from places.only_on(side, "private", f"{prefix}private addresses {text}", text)
    if (was.connectors, now.connectors) != (own[0].connectors, own[1].connectors):
        yield from _connectors(was.connectors, now.connectors, places, prefix)


def _tightest(terms: Terms, key: str) -> int | Decimal | None:
    limit: int | Decimal | None = None
    for _, budget in terms.budgets:
        limit = least(limit, getattr(budget, key))  # both are of one kind: calls, or money
    return limit


def _approvals(was: Approvals, now: Approvals, places: ChangePlaces, prefix: str) -> SidedChanges:
    yield from places.rank_changed(
        "approval", f"{prefix}expires_seconds", was.expires_seconds, now.expires_seconds, int
    )
    yield from places.rank_changed("approval", f"{prefix}quorum", was.quorum, now.quorum, lambda quorum: -quorum)
    yield from places.rank_changed("approval", f"{prefix}through_client", was.through_client, now.through_client, int)
    if was.keys != now.keys:
        # More keys let more people approve. Without a list, no signature is needed at all.
        wider = now.keys is None or (was.keys is not None and not {*now.keys} <= {*was.keys})
        yield from places.value_changed(
            "grown" if wider else "shrunk", "approval", f"{prefix}keys", signers_text(was), signers_text(now)
        )


def signers_text(approvals: Approvals) -> str:
    """Whose signatures count, for people to read."""
    return "any approver" if approvals.keys is None else ", ".join(map(approvals.signer, approvals.keys)) or "no key"


def _connectors(was: Versions, now: Versions, places: ChangePlaces, prefix: str) -> SidedChanges:
    for side, here, there in _both_ways(dict(was), dict(now)):
        for name in sorted(here.keys() - there.keys()):
            yield from places.only_on(
                side, "connector", f"{prefix}connector {name}", " and ".join(here[name]) or "any version"
            )
    before, after = dict(was), dict(now)
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            narrower = {*before[name]} < {*after[name]}  # a version must be in every range
            words = (" and ".join(versions) or "any version" for versions in (before[name], after[name]))
            yield from places.value_changed(
                "shrunk" if narrower else "grown", "connector", f"{prefix}versions of {name}", *words
            )


def _both_ways(was: T, now: T) -> Iterator[tuple[Side, T, T]]:
    yield "grown", now, was
    yield "shrunk", was, now
