"""What an organisation says about every agent of a machine, as a value. It only narrows the manifest of an agent.

The file is read in `policy_files/organisation.py`; `Manifest.under` narrows a manifest by it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from licet.core.canonical import digest, plain
from licet.core.origin import Origin
from licet.core.policy.connector import ConnectorRule
from licet.core.policy.effects import EffectClass
from licet.core.policy.layer import Layer
from licet.core.policy.terms import BUDGET_KEYS, Admission, Approvals, Budget, MaxEffect

TITLE = "the organisation"
# The keys whose limits hold only where licet decides about a call, and not where it only watches a program.
DECIDED_BY_CALL = ("max_side_effect_class", "connectors", "approvals")


class Organisation(Struct, frozen=True, kw_only=True):
    """One organisation file. A key that it leaves out does not narrow."""

    origin: Origin  # where the file begins
    layers: tuple[Layer, ...] = ()  # its destinations, and the connectors that it denies
    max_effect: MaxEffect | None = None
    connectors: tuple[ConnectorRule, ...] | None = None  # None does not narrow; an empty list allows none
    approvals: Mapping[str, Any] = {}  # only the keys that it states
    budget: Budget = Budget()  # of each agent
    places: Mapping[str, Origin] = {}  # where its keys are written, also those of its budget and approvals

    @property
    def digest(self) -> str:
        """The digest of what the file means. Receipts have it beside the digest of the manifest."""
        approvals = {key: value for key, value in self.approvals.items() if key != "names"}
        if approvals.get("keys") is not None:
            approvals["keys"] = sorted(set(approvals["keys"]))
        document: dict[str, Any] = plain(
            {
                "format": 1,
                "destinations": [
                    {
                        "allow": sorted(str(rule) for rule in layer.allowed.allow),
                        "deny": sorted(str(rule) for rule in layer.allowed.deny),
                    }
                    for layer in self.layers
                ],
                "connectors": None
                if self.connectors is None
                else sorted({(rule.name, rule.versions) for rule in self.connectors}),
                "max_side_effect_class": None if self.max_effect is None else self.max_effect.effect,
                "approvals": approvals,
                "budget": {key: getattr(self.budget, key) for key in BUDGET_KEYS},
            }
        )
        return digest(document)

    def place(self, key: str) -> Origin:
        """Where a key is written; if it is left out, where the file begins."""
        return self.places.get(key, self.origin)

    @property
    def effect(self) -> EffectClass | None:
        """The strongest class that any tool may have; None if the file states none."""
        return self.max_effect.effect if self.max_effect is not None else None

    def admission(self) -> tuple[Admission, ...]:
        """What the file says about the writes of each tool, as an admission next to the tool's own."""
        if (write := self.approvals.get("write")) is None or write == "manifest":  # the loosest one changes nothing
            return ()
        place = self.place("approvals.write")
        return (Admission(place, approval=write, approval_origin=place, approval_key="approvals.write"),)

    def tightened(self, approvals: Approvals, budget: Budget) -> dict[str, Origin]:
        """The places of the values that are tighter here than in these approvals and this budget."""
        both = approvals.narrowed_by(self.approvals)
        stated = [f"approvals.{key}" for key in self.approvals if getattr(both, key, None) != getattr(approvals, key)]
        for key in BUDGET_KEYS:
            mine, theirs = getattr(self.budget, key), getattr(budget, key)
            stated += [key] if mine is not None and (theirs is None or mine < theirs) else []
        return {key: self.places[key] for key in stated if key in self.places}
