"""The surface of an agent: everything that its tools can reach under a manifest, as data for tables, JSON and maps.

- The entries of a callable tool cover a use exactly if `decide` allows it or asks about it. Only addresses that licet
  never connects to are left out.
- `commands` is what any command reaches that `licet run` starts.
- Two surfaces are equal if they reach the same. Origins, file names and digests are not compared.

One tool in the surface of an agent: whether it can be called, what it reaches, and how risky that is.

The ceiling of an agent: what its policy allows to tools, whether a tool of today needs it or not.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, TypeVar, cast

from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.rules import Capability, capability
from licet.core.algebra.set import CapabilitySet, TooManyPairs
from licet.core.decision.approval import time_text
from licet.core.decision.argument_rules import ties_under, untied_ground
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import call_denials
from licet.core.decision.folding import connector_ref
from licet.core.decision.foreseen import never_dialled, unfit_grounds, unreachable
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground, Request
from licet.core.decision.validate import Most, Undeclared, too_many_pairs
from licet.core.limits import MOST_TOOLS_ON_A_LINE
from licet.core.policy import keys
from licet.core.policy.argument_ties import ASK, Ties, is_about_flow, without_own_words
from licet.core.policy.flow import ArgumentFlow
from licet.core.policy.flow_terms import argument_flow, argument_flow_text
from licet.core.policy.layer import ELEVATED, EffectClass, Layer, Level, Rule, meet_written_layers
from licet.core.policy.manifest import COMMAND_NEEDS, COMMANDS, Manifest, server_document, with_commands
from licet.core.policy.servers import server_of
from licet.core.policy.terms import Admission, Approvals, Budget, StandingApproval, Terms, WriteApproval, least_limits
from licet.core.policy.tool import ToolSpec
from licet.core.review.risk import NATIVE, Risk, grant_risks, is_ready_made, riskiest
from licet.core.review.surface_entries import (
    ReachEntry,
    RuleOrigins,
    entries_of,
    piece_text,
    target_of,
)
from licet.core.values import Compared, Origin, canonical_json, data_json, money_text

S = TypeVar("S")
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
    flow: tuple[tuple[str, tuple[ArgumentFlow, ...]], ...] = ()  # argument -> where its value must come from
    asked_by: tuple[tuple[str, ...], ...] = ()  # of each list, the task must have a word that begins so
    ties: Ties | None = None  # of its arguments, if its code has no handles
    untied: Ground | None = None  # text in its arguments that is not tied, and what to write
    entries: tuple[ReachEntry, ...]
    grant: CapabilitySet
    optional: tuple[str, ...]  # the needs it declares as optional, allowed or not
    description: str
    takes: str  # its arguments: as written in its source, or as the JSON Schema of a server
    reuse: bool  # one worker may serve many calls
    conditional: bool = False  # it is shown to models only where a check of its own says that it can run
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

    @property
    def asks_about(self) -> tuple[str, ...]:
        """The arguments with values that make a call ask."""
        return tuple(name for name, rules in self.args if any(rule.startswith(f'{{"{ASK}":') for rule in rules))

    @property
    def flow_texts(self) -> dict[str, str]:
        """By argument: where its value must come from, for people to read."""
        return {name: " and ".join(map(argument_flow_text, rules)) for name, rules in self.flow}

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
            **({"flow": self.flow_texts} if self.flow else {}),
            **({"asked_by": list(map(list, self.asked_by))} if self.asked_by else {}),
            **({"tied": list(self.ties.tied), "untied": list(self.ties.untied)} if self.ties is not None else {}),
            "reach": _reach_document(self.entries),
            **({"optional": list(self.optional)} if self.optional else {}),
            "description": self.description or None,
            "takes": self.takes or None,
            "reuse": self.reuse,
            **({"conditional": True} if self.conditional else {}),
            "origin": self.origin.full if self.origin else None,
        }


def withheld_lines(tools: Iterable[ToolSurface]) -> list[str]:
    """Why tools of servers cannot be called: a line for each server and reason, since mostly one is true for all."""
    alike: dict[tuple[str, str], list[str]] = {}
    for tool in tools:
        if tool.withheld:
            alike.setdefault((tool.name.partition(".")[0], tool.withheld), []).append(tool.name)
    return [f"{_several(names)} cannot be called: {why}" for (_, why), names in alike.items()]


def _several(names: list[str]) -> str:
    few = ", ".join(names[:MOST_TOOLS_ON_A_LINE])
    return few if len(names) == 1 else f"{len(names)} tools ({few}{' …' if names[MOST_TOOLS_ON_A_LINE:] else ''})"


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


_NOTHING = CapabilitySet()
_BINARIES = CapabilitySet(("process:exec:*",))
_OF_COMMANDS = CapabilitySet(COMMAND_NEEDS)
_DELETES = CapabilitySet(("fs:delete:*", "network:delete:*"))


class Denied(Compared, frozen=True):
    """A rule that is denied to every tool of the agent."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin", "by_licet"})

    rule: Capability
    origin: Origin | None = None
    by_licet: bool = False  # added by licet, to protect policy files and the code of tools


class Surface(Compared, frozen=True, kw_only=True):
    """Everything that one agent can reach, with the agent-wide settings that limit it."""

    _not_compared: ClassVar[frozenset[str]] = frozenset(
        {"held", "unadmitted", "unused", "digest", "pinned", "standing", "files"}
    )

    agent: str
    version: str
    app: str
    personality: str | None
    tools: tuple[ToolSurface, ...]
    commands: (
        ToolSurface | None
    )  # what any command reaches under `licet run`; None if no binary is allowed but for tools
    max_effect: EffectClass
    native: tuple[str, ...]
    private: tuple[str, ...]
    connectors: tuple[tuple[str, tuple[str, ...]], ...]  # name -> version ranges; all apply
    definitions: tuple[tuple[str, str], ...]  # name -> its definition in the workspace, as canonical JSON
    approvals: Approvals
    budget: Budget
    bundles: tuple[Terms, ...]  # of bundles with stricter terms than the agent's own policy
    limits: tuple[tuple[str, int], ...]
    allow_degraded: bool
    record: str
    values: Mapping[str, object] = {}  # of the keys that have no field here
    denies: tuple[Denied, ...]
    ceiling: CapabilitySet  # what the policy allows to tools, whether they need it or not
    unused: tuple[str, ...]  # of the ceiling: what no tool of today can reach
    servers: tuple[tuple[str, str], ...]  # name -> the server with its grants, as canonical JSON
    held: tuple[tuple[str, tuple[str, ...]], ...]  # name -> what its process holds at most: what both allow
    unadmitted: tuple[str, ...]  # tools that are declared, but not admitted for this agent
    digest: str
    standing: StandingApproval | None  # of deletes, here and now
    pinned: str  # where the digest is pinned; empty if it is not, and then the file cannot approve writes
    files: tuple[str, ...]
    organisations: tuple[tuple[str, str], ...] = ()  # files that narrow all of this, each with its digest

    @property
    def risk(self) -> Risk:
        """The riskiest thing that the agent can do, through its tools, commands and servers."""
        used = [kind_of(text) for name, text in self.servers if any(tool.of_server(name) for tool in self.tools)]
        every = (*self.tools, *filter(None, (self.commands,)))
        return riskiest((*(tool.risk for tool in every), *(NATIVE for kind in used if kind == "native")))

    def of(self, key: keys.Key[S]) -> S:
        """The value of a key of the policy."""
        return cast(S, getattr(self, key.field) if key.field else self.values[key.name])

    @property
    def riskiest_first(self) -> tuple[ToolSurface, ...]:
        """The tools in the order in which a reviewer looks at them."""
        return tuple(sorted(self.tools, key=lambda tool: tool.risk.rank))

    def document(self) -> dict[str, Any]:
        """The surface as plain data."""
        held = dict(self.held)
        return {
            "agent": self.agent,
            "version": self.version,
            "app": self.app or None,
            "personality": self.personality,
            "digest": self.digest,
            **({"pinned": self.pinned} if self.pinned else {}),
            **({"standing_approval": _standing_document(self.standing)} if self.standing is not None else {}),
            "files": list(self.files),
            **(
                {"organisations": [{"file": file, "digest": digest} for file, digest in self.organisations]}
                if self.organisations
                else {}
            ),
            "risk": self.risk.document(),
            "tools": [tool.document() for tool in self.tools],
            "commands": self.commands.document() if self.commands else None,
            "unadmitted": list(self.unadmitted),
            **{part: value for key in keys.KEYS for part, value in key.document(self.of(key)).items()},
            "denies": [
                {"rule": str(deny.rule), "origin": deny.origin.full if deny.origin else None}
                for deny in self.denies
                if not deny.by_licet
            ],
            "ceiling": [str(rule) for rule in self.ceiling.allow],
            "unused": list(self.unused),
            "servers": {
                name: {"kind": kind_of(server), **json.loads(server), "holds": list(held.get(name, ()))}
                for name, server in self.servers
            },
        }


def surface(manifest: Manifest, judged: Manifest | None = None) -> Surface:
    """Everything that an agent can reach under a manifest.

    `judged` is the same manifest as a gate would use it. A tool that does not fit `judged` is shown as blocked. Without
    `judged`, such a tool is shown with the part of its needs that is allowed, as a gate that narrows would grant it.
    """
    admitted, manifest = manifest.admissions, with_commands(manifest)
    tools = _Tools(manifest, judged)
    each = tuple(map(tools.surface_of, sorted(admitted)))
    ceiling = written_ceiling(manifest)
    held = {name: _held_by(manifest, name) for name in sorted(manifest.servers)}
    # Which part of it the tools of an unlocked server need is not known before the lock.
    waiting = [held[name] for name in held if any(tool.withheld and tool.of_server(name) for tool in each)]
    return Surface(
        agent=manifest.agent,
        version=manifest.version,
        app=manifest.app,
        personality=manifest.personality,
        tools=each,
        commands=tools.commands(tool.grant for tool in each if tool.standing == "callable"),
        max_effect=keys.MAX_EFFECT.of(manifest),
        native=keys.NATIVE.of(manifest),
        private=keys.PRIVATE.of(manifest),
        connectors=keys.CONNECTORS.of(manifest),
        definitions=keys.DEFINITIONS.of(manifest),
        approvals=keys.APPROVALS.of(manifest),
        budget=keys.BUDGET.of(manifest),
        bundles=keys.BUNDLES.of(manifest),
        limits=keys.LIMITS.of(manifest),
        allow_degraded=keys.SANDBOX.of(manifest),
        record=keys.RECORD.of(manifest),
        values={key.name: key.of(manifest) for key in keys.VALUED},
        denies=tuple(_denied(manifest)),
        ceiling=ceiling,
        # Without tools the policy is for `licet run`, which can reach all of it.
        unused=unused_parts(ceiling, {*(tool.grant for tool in each), *waiting}) if each else (),
        servers=tuple((name, _server_text(manifest.servers[name])) for name in sorted(manifest.servers)),
        held=tuple((name, tuple(map(str, rules.allow))) for name, rules in held.items()),
        unadmitted=tuple(sorted(manifest.tools.keys() - admitted.keys() - {COMMANDS})),
        digest=manifest.digest,
        standing=manifest.standing,
        pinned=manifest.pinned,
        files=manifest.files,
        organisations=tuple((above.origin.file, above.digest) for above in manifest.organisations),
    )


def _standing_document(standing: StandingApproval) -> dict[str, Any]:
    return {"id": standing.id, "deletes": list(standing.deletes), "expires": time_text(standing.expires)}


class _Tools:
    """Makes the surface of each tool. Entries are cached, since many tools have equal grants and layers."""

    def __init__(self, manifest: Manifest, judged: Manifest | None) -> None:
        self._manifest, self._judged = manifest, judged
        self._undeclared = Undeclared(manifest)
        self._origins: dict[tuple[Layer, ...], RuleOrigins] = {}
        self._entries: dict[tuple[CapabilitySet, tuple[Layer, ...]], tuple[ReachEntry, ...]] = {}
        self._deletes: dict[tuple[CapabilitySet, CapabilitySet], bool] = {}
        self._risks: dict[tuple[CapabilitySet, bool], tuple[Risk, ...]] = {}

    def surface_of(self, name: str) -> ToolSurface:
        manifest = self._manifest
        admissions = manifest.admissions[name]
        answer = decide(Request(name), manifest)
        # This request has spent nothing yet. Spending only grows, so a call that is refused now is always refused.
        grounds = answer.rules if isinstance(answer, Deny) else ()
        grounds = (*grounds, *self._unfit(name))
        reach: Reach | Most | None = reach_of(manifest, name)
        level, asks = (reach.level, reach.approval) if isinstance(reach, Reach) else (None, None)
        approved_by = reach.approved_by if reach else ""
        standing: Standing = "blocked" if grounds else "callable"
        denied = call_denials(manifest, name)
        # A server's tool is declared by the lock alone: without it no declaration can make it callable.
        withheld = manifest.withheld.get(name, "")
        if reach is None and not denied and not withheld and (most := self._undeclared.most_of(name)) is not None:
            reach, level, asks, standing = most, most.level, most.asks, "undeclared"
            approved_by = most.approved_by
        grant = _NOTHING if standing == "blocked" or reach is None else reach.grant
        if name == COMMANDS and keys.STAND_INS.of(manifest):
            # A program has stand-ins, and reads no secret: `stand_ins` has where each is placed.
            grant = grant & _OF_COMMANDS
        free = _NOTHING if standing == "blocked" or reach is None else reach.free_deletes
        spec = manifest.tools.get(name)
        ties = ties_under(reach) if isinstance(reach, Reach) else None
        return ToolSurface(
            name=name,
            standing=standing,
            bundles=tuple(sorted({admission.bundle for admission in admissions if admission.bundle})),
            effect=reach.effect if reach else None,
            level=level,
            connector=_connector(manifest, spec),
            cost_usd=spec.cost_usd if spec else None,
            asks=asks,
            asks_writes=asks is not None and not approved_by,
            deletes_ask=reach is not None and reach.effect in ELEVATED and self._asks_deletes(grant, free),
            deletes=reach.delete_approval if reach and free else None,
            free_deletes=free,
            max_calls=reach.max_calls if reach else None,
            max_cost_usd=reach.max_cost_usd if reach else None,
            limits=_limits(manifest, admissions),
            args=_args((spec.args if spec else {}, *(admission.args for admission in admissions))),
            flow=_flow_rules(admissions),
            asked_by=tuple(sorted({admission.asked_by for admission in admissions if admission.asked_by})),
            ties=ties,
            untied=untied_ground(reach, ties) if isinstance(reach, Reach) and ties is not None else None,
            entries=self._reached(name, self._entries_of(grant, reach.layers)) if reach else (),
            grant=grant,
            optional=_optional(manifest, spec) if spec else (),
            description=spec.description if spec else "",
            takes=_takes(spec) if spec else "",
            reuse=spec.reuse if spec else False,
            conditional=spec.conditional if spec else False,
            grounds=grounds,
            withheld=withheld,
            origin=spec.origin if spec and spec.origin else admissions[0].origin,
            risks=self._risks_of(
                grant, standing != "blocked" and level == "native" and not is_ready_made(manifest, name)
            ),
        )

    def _risks_of(self, grant: CapabilitySet, native: bool) -> tuple[Risk, ...]:
        """The risks of a tool. Native code of licet itself is trusted to keep to its handles."""
        key = grant, native
        if key not in self._risks:
            self._risks[key] = grant_risks(grant, native=native)
        return self._risks[key]

    def _unfit(self, name: str) -> tuple[Ground, ...]:
        """The reasons why a gate would deny every call of a tool, even if `decide` would not."""
        try:
            reach = reach_of(self._judged, name) if self._judged is not None else None
        except TooManyPairs:
            return (too_many_pairs(name),)
        return unfit_grounds(reach) if reach is not None else ()

    def _reached(self, name: str, entries: tuple[ReachEntry, ...]) -> tuple[ReachEntry, ...]:
        """The entries without hosts whose addresses the lists of `private` close."""
        reach = reach_of(self._judged, name) if self._judged is not None and entries else None
        if reach is None or not any(entry.kind == "hosts" for entry in entries):
            return entries
        return tuple(one for one in entries if not all(unreachable(piece.rule, reach) for piece in one.pieces))

    def commands(self, grants: Iterable[CapabilitySet]) -> ToolSurface | None:
        """What any command reaches under `licet run`; None if no binary is allowed but those that tools need.

        `grants` are what the tools hold. A policy whose binaries all serve its tools is not meant for commands.
        """
        reach = reach_of(self._manifest, COMMANDS)
        binaries = reach.grant & _BINARIES if reach is not None else _NOTHING
        if not binaries:
            return None
        of_tools = reduce(or_, {grant & _BINARIES for grant in grants}, _NOTHING)
        return None if binaries <= of_tools else self.surface_of(COMMANDS)

    def _entries_of(self, grant: CapabilitySet, layers: tuple[Layer, ...]) -> tuple[ReachEntry, ...]:
        if layers not in self._origins:
            self._origins[layers] = RuleOrigins(layers)
        key = grant, layers
        if key not in self._entries:
            found = entries_of(grant, self._origins[layers])
            # A rule may name an address that licet never connects to. It is granted, but cannot be reached.
            self._entries[key] = tuple(entry for entry in found if not never_dialled(entry.pieces[0].rule))
        return self._entries[key]

    def _asks_deletes(self, grant: CapabilitySet, free: CapabilitySet) -> bool:
        key = grant, free
        if key not in self._deletes:
            self._deletes[key] = not (grant & _DELETES) <= free
        return self._deletes[key]


def _optional(manifest: Manifest, spec: ToolSpec) -> tuple[str, ...]:
    """What a tool can do without. A tool of a server that states no needs may touch all that its process holds."""
    server = manifest.servers.get(spec.name.partition(".")[0], {})
    grants, roots = CapabilitySet(server.get("grants", ())), manifest.roots
    if roots:
        grants = grants.expand(roots.get("${workdir}", ""), roots.get("~", ""))
    implied = frozenset(map(str, grants.allow))
    return tuple(text for rule in spec.optional.allow if (text := str(rule)) not in implied)


def _connector(manifest: Manifest, spec: ToolSpec | None) -> str:
    """The connector of a tool; of a server's tool, with the version that is locked, or that the server claims."""
    if spec is None or spec.connector is None:
        return ""
    if spec.package is None or spec.package.source == "installed":
        return str(spec.connector)
    return str(connector_ref(manifest, spec, spec.connector.name))


def _takes(spec: ToolSpec) -> str:
    return spec.signature if spec.schema is None else data_json(dict(spec.schema)).decode()


def _limits(manifest: Manifest, admissions: Iterable[Admission]) -> tuple[tuple[str, int], ...]:
    limits: Mapping[str, int] = manifest.limits
    for admission in admissions:
        limits = least_limits(limits, admission.limits)
    return tuple(sorted(limits.items()))


def _args(stated: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    rules: dict[str, set[str]] = {}
    for args in stated:
        for name, rule in args.items():
            if not is_about_flow(rule):
                rules.setdefault(name, set()).update(data_json(one).decode() for one in _each(rule))
    return tuple((name, tuple(sorted(rules[name]))) for name in sorted(rules))


def _flow_rules(admissions: Iterable[Admission]) -> tuple[tuple[str, tuple[ArgumentFlow, ...]], ...]:
    """By argument: the rules of all policies on where its value must come from."""
    stated: dict[str, set[ArgumentFlow]] = {}
    for name, rule in (pair for admission in admissions for pair in admission.args.items()):
        if (one := argument_flow(rule)) is not None:
            stated.setdefault(name, set()).add(one)
    return tuple((name, tuple(sorted(stated[name], key=argument_flow_text))) for name in sorted(stated))


def _each(rule: Any) -> Iterator[Any]:
    """A rule on an argument as several that mean the same: more of them always allow less without being asked."""
    if not isinstance(rule, Mapping) or ASK not in rule:
        yield without_own_words(rule)
        return
    if kept := without_own_words(rule):
        yield kept
    asked = rule[ASK]
    several = asked["anyOf"] if isinstance(asked, Mapping) and asked.keys() == {"anyOf"} else [asked]
    yield from ({ASK: one} for one in several)


def _denied(manifest: Manifest) -> Iterator[Denied]:
    """The denies of all layers in normal form, each with its origin."""
    written: dict[tuple[str, str, int | None], list[Rule]] = {}
    by_users: set[tuple[str, str, int | None]] = set()
    for layer in manifest.layers:
        for deny in layer.denies:
            written.setdefault(_target_key(deny.capability), []).append(deny)
            if layer.kind != "protected paths":
                by_users.add(_target_key(deny.capability))
    for rule in manifest.ceiling.deny:
        here = written.get(_target_key(rule), [])
        # Normal form may have joined several rules, such as `read` and `write`. Then the origin is that of any of them.
        exact = [deny for deny in here if deny.capability == rule]
        joined = [deny for deny in here if deny.capability.atoms & rule.atoms]
        origin = next((deny.origin for deny in exact or joined), None)
        yield Denied(rule, origin, bool(here) and _target_key(rule) not in by_users)


def _target_key(rule: Capability) -> tuple[str, str, int | None]:
    return rule.domain, rule.key, rule.port


_HELD = ("command", "url", "headers", "grants", "env", "secrets")


def _held_by(manifest: Manifest, name: str) -> CapabilitySet:
    """What the process of a server holds at most: its grants, variables and secrets, as far as the agent may."""
    server = server_of(name, {key: value for key, value in manifest.servers[name].items() if key in _HELD})
    return CapabilitySet(_expanded(rule, manifest.roots) for rule in server.holds.allow) & written_ceiling(manifest)


def _expanded(rule: Capability, roots: Mapping[str, str]) -> Capability:
    root, slash, rest = rule.key.partition("/")
    if rule.domain not in PATH_DOMAINS or root not in roots:
        return rule
    return capability(rule.domain, rule.atoms, roots[root] + slash + rest, None)


def kind_of(server: str) -> str:
    """How a server of a surface runs: isolated, native or remote."""
    said = json.loads(server)
    return "remote" if said.get("url") else str(said.get("sandbox", "isolated"))


def _server_text(server: Mapping[str, Any]) -> str:
    return canonical_json(server_document(server)).decode()
