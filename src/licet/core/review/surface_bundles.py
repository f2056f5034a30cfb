"""The terms of bundles in the surface of an agent: budgets, approvals, connectors and private addresses."""

from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from licet.core.canonical import money_text
from licet.core.compared import Compared
from licet.core.decision.bundle_rules import approvals_of, connectors_of, private_of
from licet.core.origin import Origin
from licet.core.policy.addresses import common_ranges
from licet.core.policy.connector import Connectors
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals, Budget

Versions = tuple[tuple[str, tuple[str, ...]], ...]  # connector -> version ranges; all apply


class Terms(Compared, frozen=True, kw_only=True):
    """The terms that apply to the tools of some bundles, the agent's own terms included."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin"})

    name: str = ""  # of the bundle
    budgets: tuple[tuple[str, Budget], ...] = ()  # of bundles, by name
    approvals: Approvals
    connectors: Versions
    private: tuple[str, ...]
    origin: Origin | None = None

    def document(self) -> dict[str, Any]:
        """The terms as plain data."""
        return {
            "budget": budget_document(dict(self.budgets).get(self.name, Budget())),
            "approvals": approvals_document(self.approvals),
            "connectors": {name: list(versions) for name, versions in self.connectors},
            "private": list(self.private),
            "origin": self.origin.full if self.origin else None,
        }


def agent_terms(manifest: Manifest) -> Terms:
    """The terms that apply to every tool of the agent."""
    return terms_of(manifest, ())


def bundle_terms(manifest: Manifest) -> Iterator[Terms]:
    """The terms of each bundle that differ from those of the agent."""
    agent = agent_terms(manifest)
    for name in used_bundles(manifest):
        terms = terms_of(manifest, (name,))
        if replace(terms, name="") != agent:
            yield terms


def used_bundles(manifest: Manifest) -> tuple[str, ...]:
    """The bundles through which tools are admitted."""
    used = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
    return tuple(sorted(used & manifest.bundles.keys()))


def terms_of(manifest: Manifest, names: tuple[str, ...]) -> Terms:
    """The terms that apply to a tool in these bundles."""
    bundles = [manifest.bundles[name] for name in names if name in manifest.bundles]
    return Terms(
        name=names[0] if len(names) == 1 else "",
        budgets=tuple((bundle.name, bundle.budget) for bundle in bundles if bundle.budget),
        approvals=_sorted_keys(approvals_of(manifest, bundles)),
        connectors=versions_of(connectors_of(manifest, bundles)),
        private=common_ranges(private_of(manifest, bundles)) if manifest.private else (),
        origin=bundles[0].origin if bundles else None,
    )


def versions_of(connectors: Connectors) -> Versions:
    """Each connector that all lists allow, with one range for each list that limits its versions."""
    return tuple((name, _versions(about)) for name, about in connectors.by_name().items())


def _versions(about: Connectors) -> tuple[str, ...]:
    clauses = set()
    for rules in (about.tenant, about.app, *about.profiles):
        versions = {rule.versions for rule in rules or ()}
        if versions and "" not in versions:
            clauses.add(" or ".join(sorted(versions)))
    return tuple(sorted(clauses))


def _sorted_keys(approvals: Approvals) -> Approvals:
    keys = None if approvals.keys is None else tuple(sorted(set(approvals.keys)))
    return replace(approvals, keys=keys)


def approvals_document(approvals: Approvals) -> dict[str, Any]:
    """How calls are approved, as plain data."""
    return {
        "write": approvals.write,
        "expires_seconds": approvals.expires_seconds,
        "quorum": approvals.quorum,
        "keys": None if approvals.keys is None else list(approvals.keys),
        "names": dict(approvals.names),
        "delete": approvals.delete,
        "through_client": approvals.through_client,
    }


def budget_document(budget: Budget) -> dict[str, Any]:
    """What a budget limits, as plain data."""
    money = (budget.max_cost_usd, budget.max_cost_usd_per_day)
    in_session, on_day = (None if amount is None else money_text(amount) for amount in money)
    return {
        "max_calls_per_session": budget.max_calls_per_session,
        "max_calls_per_day": budget.max_calls_per_day,
        "max_cost_usd": in_session,
        "max_cost_usd_per_day": on_day,
    }
