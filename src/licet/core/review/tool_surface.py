"""One tool in the surface of an agent: whether it can be called, what it reaches, and how risky that is."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, Literal

from licet.core.algebra.set import CapabilitySet
from licet.core.canonical import money_text
from licet.core.compared import Compared
from licet.core.decision.request import Ground
from licet.core.origin import Origin
from licet.core.policy.argument_ties import Ties
from licet.core.policy.effects import EffectClass, Level
from licet.core.policy.terms import WriteApproval
from licet.core.review.entries import ReachEntry
from licet.core.review.risk import Risk

Standing = Literal["callable", "undeclared", "blocked"]


class ToolSurface(Compared, frozen=True, kw_only=True):
    """A tool that the manifest admits: whether it can be called, and what it reaches.

    The `standing` is one of three:
    - `callable`: some calls may be allowed.
    - `undeclared`: admitted, but no file declares its needs. The entries are the ceiling, the most that it could get.
    - `blocked`: every call is refused, so it reaches nothing. Tools of servers that are not locked are among them.
    """

    _not_compared: ClassVar[frozenset[str]] = frozenset(
        {"grant", "optional", "grounds", "withheld", "origin", "risks", "ties", "untied"}
    )

    name: str
    standing: Standing
    bundles: tuple[str, ...]
    effect: EffectClass | None
    level: Level | None
    connector: str
    cost_usd: Decimal | None
    asks: WriteApproval | None  # how often an approver must agree; None if no approval is needed
    asks_writes: bool  # whether it needs an approval for more than its deletes
    deletes_ask: bool  # whether it holds deletes that ask one by one
    deletes: WriteApproval | None  # when `free_deletes` are approved: once a session, or by the file; None without any
    free_deletes: CapabilitySet  # the deletes of files that do not ask one by one
    max_calls: int | None
    max_cost_usd: Decimal | None  # per session, like `max_calls`
    limits: tuple[tuple[str, int], ...]
    args: tuple[tuple[str, tuple[str, ...]], ...]  # argument -> its rules, as canonical JSON
    ties: Ties | None = None  # of its arguments, if its code has no handles
    untied: Ground | None = None  # text in its arguments that is not tied, and what to write
    entries: tuple[ReachEntry, ...]
    grant: CapabilitySet
    optional: tuple[str, ...]  # the needs it declares as optional, allowed or not
    description: str
    takes: str  # its arguments: as written in its source, or as the JSON Schema of a server
    reuse: bool  # one worker may serve many calls
    grounds: tuple[Ground, ...]  # why it cannot be called, as far as files show it
    withheld: str = ""  # why the tool of a server is not declared: mostly, because the server is not locked
    origin: Origin | None
    risks: tuple[Risk, ...]  # what a reviewer looks at, riskiest first

    @property
    def risk(self) -> Risk:
        """The riskiest thing that the tool can do."""
        return self.risks[0]

    @property
    def reachable(self) -> bool:
        return self.standing != "blocked"

    def of_server(self, server: str) -> bool:
        """Whether the tool belongs to this MCP server."""
        return self.name.startswith(f"{server}.")

    @property
    def note(self) -> str:
        """One line on why the tool cannot be called, or why its reach is not certain; empty if it is callable."""
        reasons = "; ".join(map(str, self.grounds))
        if self.standing == "undeclared":
            return f"{reasons}; shown is the most it could get"
        return f"cannot be called: {reasons}" if reasons else ""

    def document(self) -> dict[str, Any]:
        """The tool as plain data."""
        return {
            "name": self.name,
            "standing": self.standing,
            "risk": self.risk.document(),
            "note": self.note,
            "grounds": [_ground(ground) for ground in self.grounds],
            "bundles": list(self.bundles),
            "side_effect_class": self.effect,
            "sandbox": self.level,
            "connector": self.connector or None,
            "cost_usd": _money(self.cost_usd),
            "asks": self.asks,
            "deletes_ask": self.deletes_ask,
            **(
                {"deletes": self.deletes, "free_deletes": [str(rule) for rule in self.free_deletes.allow]}
                if self.free_deletes
                else {}
            ),
            "max_calls": self.max_calls,
            "max_cost_usd": _money(self.max_cost_usd),
            "limits": dict(self.limits),
            "args": {name: [json.loads(rule) for rule in rules] for name, rules in self.args},
            **({"tied": list(self.ties.tied), "untied": list(self.ties.untied)} if self.ties is not None else {}),
            "reach": _reach_document(self.entries),
            **({"optional": list(self.optional)} if self.optional else {}),
            "description": self.description or None,
            "takes": self.takes or None,
            "reuse": self.reuse,
            "origin": self.origin.full if self.origin else None,
        }


_MOST_NAMED = 3  # tools that a line about all of a server names


def withheld_lines(tools: Iterable[ToolSurface]) -> list[str]:
    """Why tools of servers cannot be called: a line for each server and reason, since mostly one is true for all."""
    alike: dict[tuple[str, str], list[str]] = {}
    for tool in tools:
        if tool.withheld:
            alike.setdefault((tool.name.partition(".")[0], tool.withheld), []).append(tool.name)
    return [f"{_several(names)} cannot be called: {why}" for (_, why), names in alike.items()]


def _several(names: list[str]) -> str:
    few = ", ".join(names[:_MOST_NAMED])
    return few if len(names) == 1 else f"{len(names)} tools ({few}{' …' if names[_MOST_NAMED:] else ''})"


def _reach_document(entries: tuple[ReachEntry, ...]) -> dict[str, Any]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:  # sorted by kind already
        kinds.setdefault(entry.kind, []).append(entry.document)
    return kinds


def _ground(ground: Ground) -> dict[str, Any]:
    origin = ground.origin.full if ground.origin else None
    return {"reason": ground.reason, "text": ground.text, "origin": origin, "fix": ground.fix or None}


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else money_text(amount)
