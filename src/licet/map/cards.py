"""The content of the map: a card for the agent, each bundle, tool and target, and the links between them.

Also the phrases that the map and the table of `licet surface` share.

The words of a surface: the facts about an agent, how a tool runs, and what a reader must know besides.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.policy import keys
from licet.core.policy.flow import LABELS, NO_FLOW, Flow
from licet.core.policy.flow_terms import where_text
from licet.core.policy.inspection import stand_in_text, stand_ins
from licet.core.policy.manifest import command_text
from licet.core.policy.servers import host_rule
from licet.core.policy.terms import Budget, Terms, WriteApproval
from licet.core.review.surface import Surface, ToolSurface, kind_of, withheld_lines
from licet.core.review.surface_entries import ReachEntry, entries_of, piece_text, target_of, ways_of
from licet.core.values import data_json, money_text
from licet.map.limits import (
    MOST_BUNDLES,
    MOST_DENIED,
    MOST_NOTES,
    MOST_TARGETS,
    MOST_TIPS,
    MOST_TOLD,
    MOST_TOOLS,
    MOST_UNUSED,
)
from licet.map.model import Card, Line, Links, Picture, drawn, more

ANY_COMMAND = "any command"
DELETES: dict[WriteApproval | None, str] = {"session": "once a session", "manifest": "by a standing approval"}


_DELETES_ASK: dict[WriteApproval, str] = {"call": "one by one", "session": "once a session", "manifest": "nobody"}


def bundle_facts(surface: Surface, bundle: Terms) -> Iterator[str]:
    """The parts that a bundle adds to the policy of its tools, one phrase each."""
    for _, budget in bundle.budgets:
        yield from spending(budget)
    asks, own = bundle.approvals, surface.approvals
    if asks.write != own.write:
        yield f"writes ask per {asks.write}"
    if asks.delete != own.delete:
        yield f"deletes ask {_DELETES_ASK[asks.delete]}"
    if asks.expires_seconds != own.expires_seconds:
        yield f"answers hold {asks.expires_seconds} s"
    if asks.quorum != own.quorum:
        yield f"{asks.quorum} people approve"
    if asks.keys != own.keys:
        yield f"approved by {', '.join(map(asks.signer, asks.keys or ())) or 'nobody'}"
    if bundle.connectors != surface.connectors:
        yield f"connectors {', '.join(name for name, _ in bundle.connectors) or 'none'}"
    if bundle.private != surface.private:
        yield f"private {', '.join(bundle.private) or 'none'}"
    if bundle.inspection.inspect != surface.of(keys.INSPECT):
        yield f"looked into: {', '.join(bundle.inspection.inspect)}"
    if bundle.inspection.stand_ins != surface.of(keys.STAND_INS):
        yield f"keys: {'; '.join(map(stand_in_text, bundle.inspection.stand_ins)) or 'none'}"


def spending(budget: Budget) -> Iterator[str]:
    """The limits of a budget, one phrase for each."""
    if budget.max_calls_per_session is not None:
        yield f"{budget.max_calls_per_session} calls a session"
    if budget.max_calls_per_day is not None:
        yield f"{budget.max_calls_per_day} calls a day"
    if budget.max_cost_usd is not None:
        yield f"{money_text(budget.max_cost_usd)} USD a session"
    if budget.max_cost_usd_per_day is not None:
        yield f"{money_text(budget.max_cost_usd_per_day)} USD a day"


HEADINGS = {
    "hosts": "Hosts",
    "paths": "Paths",
    "secrets": "Secrets",
    "binaries": "Binaries",
    "env": "Environment",
    "storage": "Storage",
    "tools": "Other tools",
    "connectors": "Connectors",
    "sockets": "Sockets of this machine",
    "denied": "Denied to every tool",
}
_NOUNS = {
    "hosts": ("host", "hosts"),
    "paths": ("path", "paths"),
    "secrets": ("secret", "secrets"),
    "binaries": ("binary", "binaries"),
    "env": ("variable", "variables"),
    "storage": ("store", "stores"),
    "tools": ("other tool", "other tools"),
    "connectors": ("connector", "connectors"),
    "sockets": ("socket", "sockets"),
}
_OWN = "policy files and code of tools"


Held = list[tuple[str, ReachEntry]]  # the tools that reach a target, and how


def picture_of(surface: Surface) -> Picture:
    """Make the cards and links that show a surface."""
    holders = [(_tool(tool), tool.bundles or ("",), tool.entries) for tool in surface.tools]
    holders += [_server(name, json.loads(text)) for name, text in surface.servers]
    if surface.commands:
        holders.append((_commands(surface.commands), ("~commands",), surface.commands.entries))
    reached: dict[tuple[str, str], Held] = {}
    for card, _, entries in holders:
        for entry in entries:
            reached.setdefault((entry.kind, entry.target), []).append((card.tip[0], entry))
    links = Links()
    cards = [_agent(surface), *_bundle_cards(surface, links)]
    tools, others = drawn(holders, MOST_TOOLS, lambda holder: any(entry.writes for entry in holder[2]))
    cards += [card for card, _, _ in tools]
    if others:
        cards.append(more(len(others), 2, "~more", "tool loose"))
        links.stand_for(cards[-1], [card.key for card, _, _ in others])
    if surface.unadmitted:
        cards.append(_unadmitted(surface.unadmitted))
    for kind in RESOURCE_KINDS:
        cards += _target_cards(kind, {place: reached[place] for place in sorted(reached) if place[0] == kind}, links)
    for card, bundles, entries in holders:
        guess = " guess" if "loose" in card.look else ""
        for bundle in bundles:
            links.add(f"bundle:{bundle}", card.key, guess.strip())
        for entry in entries:
            look = f"reach l-{entry.kind}{' writes' if entry.writes else ''}{guess}"
            links.add(card.key, f"{entry.kind}:{entry.target}", look, partial(_tip, card, entry))
    cards += _denied(surface)
    return Picture(_summary(surface, reached), tuple(cards), tuple(links))


def _tip(holder: Card, entry: ReachEntry) -> str:
    return f"{holder.tip[0]} → {_described(entry)}"


def _described(entry: ReachEntry) -> str:
    """Describe an entry, with as many exceptions as fit into a tooltip."""
    return "; ".join(
        piece_text(Piece(piece.rule, piece.excepts[:MOST_TOLD])) + (" …" if len(piece.excepts) > MOST_TOLD else "")
        for piece in entry.pieces
    )


def _stacked(name: str, *facts: str, size: float = 13, pill: str = "") -> tuple[tuple[Line, ...], float]:
    """A name with smaller lines below it, and their height."""
    lines = [Line(name, size + 8, "name" if size == 13 else "title", size, pill)]
    for fact in facts:
        lines.append(Line(fact, lines[-1].baseline + 17, "muted small", 11))
    return tuple(lines), lines[-1].baseline + 11


# The agent and its bundles -------------------------------------------------------------------------------------------


def _agent(surface: Surface) -> Card:
    lines, height = _stacked(surface.agent, *_facts(surface), size=15)
    return Card("agent", 0, "", "agent", height, lines, (surface.agent, *_facts(surface), *surface.files))


def _facts(surface: Surface) -> Iterator[str]:
    if surface.version:
        yield f"version {surface.version}"
    yield from (f"under {file}" for file, _ in surface.organisations)
    yield f"at most {surface.max_effect}"
    if surface.approvals.write != "manifest":
        yield f"writes ask per {surface.approvals.write}"
    else:
        yield "writes ask nobody" if surface.pinned else "writes ask per session: not pinned"
    if surface.approvals.delete != "call":
        lacking = surface.approvals.delete == "manifest" and surface.standing is None
        yield (
            "deletes ask once a session, or only what is new goes: no standing approval"
            if lacking
            else f"deletes ask {_DELETES_ASK[surface.approvals.delete]}"
        )
    if not surface.budget:
        yield "no budget"
    yield from spending(surface.budget)
    if surface.native:
        yield f"native: {', '.join(surface.native)}"
    if surface.private:
        yield f"private: {', '.join(surface.private)}"
    if surface.allow_degraded:
        yield "sandbox may degrade"
    if surface.record == "full":
        yield "records everything"


def _bundles(surface: Surface) -> dict[str, list[str]]:
    """Every bundle with its tools; those without one are under the empty name."""
    bundles: dict[str, list[str]] = {}
    for tool in surface.tools:
        for bundle in tool.bundles or ("",):
            bundles.setdefault(bundle, []).append(tool.name)
    if surface.servers:
        bundles["~servers"] = [name for name, _ in surface.servers]
    if surface.commands:
        bundles["~commands"] = [surface.commands.name]
    return bundles


def _bundle_cards(surface: Surface, links: Links) -> list[Card]:
    bundles = _bundles(surface)
    facts = {bundle.name: tuple(bundle_facts(surface, bundle)) for bundle in surface.bundles}
    names, others = drawn([*bundles], MOST_BUNDLES, lambda name: name.startswith("~"))
    cards = [_bundle(name, bundles[name], facts.get(name, ())) for name in names]
    if others:
        cards.append(more(len(others), 1, "~more", "bundle loose"))
        links.stand_for(cards[-1], [f"bundle:{name}" for name in others])
    for card in cards:
        links.add("agent", card.key, "")
    return cards


def _bundle(name: str, members: list[str], facts: tuple[str, ...]) -> Card:
    shown = {"": "no bundle", "~servers": "servers", "~commands": "command line"}.get(name, name)
    nouns = ("server", "servers") if name == "~servers" else ("tool", "tools")
    lines, height = _stacked(shown, *members if name == "~commands" else (_counted(len(members), *nouns),))
    look = "bundle" if shown == name else "bundle loose"
    return Card(f"bundle:{name}", 1, "", look, height, lines, (shown, ", ".join(members), *facts))


# Tools and servers ---------------------------------------------------------------------------------------------------


def _tool(tool: ToolSurface) -> Card:
    agreed = ", ".join(word for word in (tool.asks or "", "delete" if tool.deletes_ask else "") if word)
    asks = f"asks per {agreed}" if agreed else ""
    facts = {
        "callable": (tool.effect or "", asks),
        "undeclared": ("undeclared", f"at most {tool.effect}"),
        "blocked": ("cannot be called",),
    }[tool.standing]
    lines, height = _stacked(tool.name, _joined(facts), pill=tool.level or "")
    look = {"callable": "tool", "undeclared": "tool loose", "blocked": "tool loose off"}[tool.standing]
    tip = (
        tool.name,
        tool.note,
        _joined((tool.effect or "no class", tool.level or "no level", asks)),
        f"deletes and renames of files: {DELETES[tool.deletes]}" if tool.free_deletes else "",
        f"connector {tool.connector}" if tool.connector else "",
        f"costs at most {money_text(tool.cost_usd)} USD a call" if tool.cost_usd is not None else "",
        f"at most {tool.max_calls} calls a session" if tool.max_calls is not None else "",
        f"at most {money_text(tool.max_cost_usd)} USD a session" if tool.max_cost_usd is not None else "",
        f"rules on {', '.join(name for name, _ in tool.args)}" if tool.args else "",
        f"asks about {', '.join(f'`{name}`' for name in tool.asks_about)}" if tool.asks_about else "",
        f"tied to what it declares: {', '.join(tool.ties.tied) or 'no argument'}" if tool.ties is not None else "",
    )
    group = tool.bundles[0] if tool.bundles else ""
    return Card(f"tool:{tool.name}", 2, group, look, height, lines, tip, tool.effect or "")


def _commands(commands: ToolSurface) -> Card:
    """The reach of any command, drawn as a tool without a name."""
    card = _tool(commands)
    first, *facts = card.lines
    return replace(card, key="commands", group="~commands", lines=(replace(first, text=ANY_COMMAND), *facts))


def _server(name: str, server: dict[str, Any]) -> tuple[Card, tuple[str, ...], tuple[ReachEntry, ...]]:
    url = server.get("url", "")
    command = url or command_text(server["command"])
    kind = "remote server" if url else "native server" if server.get("sandbox") == "native" else "server"
    lines, height = _stacked(name, f"{kind} · {command}")
    rules = [*server["grants"], *(f"env:read:{variable}" for variable in server["env"])]
    named = [secret for key in ("secrets", "headers") for secret in server.get(key, {}).values()]
    rules += [f"secret:read:{one['secret'] if isinstance(one, dict) else one}" for one in named]
    rules += [host_rule(url)] if url else []
    card = Card(f"server:{name}", 2, "~servers", "tool", height, lines, (name, command))
    return card, ("~servers",), entries_of(CapabilitySet(rules))


def _unadmitted(names: tuple[str, ...]) -> Card:
    lines, height = _stacked(", ".join(names), "declared, not for this agent")
    return Card("unadmitted", 2, "~unadmitted", "loose off", height, lines, ("declared, not for this agent", *names))


# Targets -------------------------------------------------------------------------------------------------------------


def _target_cards(kind: str, reached: dict[tuple[str, str], Held], links: Links) -> list[Card]:
    places, others = drawn(
        [*reached], MOST_TARGETS, lambda place: any(entry.writes for entry in _distinct(reached[place]))
    )
    cards = [_target(*place, reached[place]) for place in places]
    if others:
        held = [item for place in others for item in reached[place]]
        cards.append(more(len(others), 3, kind, f"k-{kind}", _aside(kind, held)))
        links.stand_for(cards[-1], [f"{kind}:{target}" for _, target in others])
    return cards


def _target(kind: str, target: str, held: Held) -> Card:
    lines = [Line(target, 18, "target", 12.5, aside=_aside(kind, held))]
    for look, note in _notes(held):
        lines.append(Line(note, lines[-1].baseline + 16, look, 11))
    tip = (target, *(f"{who}: {_described(entry)}" for who, entry in held[:MOST_TIPS]))
    if len(held) > MOST_TIPS:
        tip += (f"… and {len(held) - MOST_TIPS} more",)
    return Card(f"{kind}:{target}", 3, kind, f"k-{kind}", lines[-1].baseline + 10, tuple(lines), tip)


def _distinct(held: Held) -> list[ReachEntry]:
    """The entries of a target; tools that reach the same share one."""
    return [*dict.fromkeys(entry for _, entry in held)]


def _aside(kind: str, held: Held) -> str:
    rules = (piece.rule for entry in _distinct(held) for piece in entry.pieces)
    return _ways(rules) if kind in ("hosts", "paths", "storage") else ""


def _ways(rules: Iterable[Capability]) -> str:
    """What several rules allow on one target, in short."""
    together = sorted(CapabilitySet(rules), key=lambda rule: rule.atoms & -rule.atoms)
    return ", ".join(dict.fromkeys(way for rule in together for way in ways_of(rule)))


def _notes(held: Held) -> Iterator[tuple[str, str]]:
    """The denied parts of a target: struck through if no tool reaches them, in words otherwise."""
    parts = [(entry.ways, dict.fromkeys(entry.excepts)) for entry in _distinct(held)]
    ways = dict.fromkeys(way for some, _ in parts for way in some)
    holes = [*dict.fromkeys(hole for _, excepts in parts for hole in excepts)]
    shown = len(holes) if len(holes) <= MOST_NOTES else MOST_NOTES - 1
    for hole in holes[:shown]:
        left = {way for some, excepts in parts if hole not in excepts for way in some}
        lost = [way for way in ways if way not in left]
        if not left:
            yield "struck small", hole
        elif lost:
            yield "muted small", f"no {', '.join(lost)}: {hole}"
        else:
            yield "muted small", f"not for every tool: {hole}"
    if shown < len(holes):
        yield "muted small", f"and {len(holes) - shown} more exceptions"


def _denied(surface: Surface) -> Iterator[Card]:
    places: dict[tuple[str, str], list[Capability]] = {}
    own = [deny.rule for deny in surface.denies if deny.by_licet]
    for deny in surface.denies:
        if not deny.by_licet:
            places.setdefault((deny.rule.domain, target_of(deny.rule)), []).append(deny.rule)
    found, others = drawn([*places.items()], MOST_DENIED, lambda place: False)
    for (domain, target), rules in found:
        yield _denial(f"{domain}:{target}", target, rules, tuple(map(str, rules)))
    if others:
        yield more(len(others), 3, "denied", "denied")
    if own:  # not by path: these are paths of this machine, and a picture is made to be shared
        yield _denial("~own", _OWN, own, (_OWN, "`licet surface --json` lists them"))


def _denial(key: str, text: str, rules: Iterable[Capability], tip: tuple[str, ...]) -> Card:
    line = Line(text, 18, "struck target", 12.5, aside=_ways(rules))
    return Card(f"denied:{key}", 3, "denied", "denied", 28, (line,), tip)


def _summary(surface: Surface, reached: Iterable[tuple[str, str]]) -> str:
    blocked = sum(not tool.reachable for tool in surface.tools)
    undeclared = sum(tool.standing == "undeclared" for tool in surface.tools)
    kinds = [kind for kind, _ in reached]
    counts = [_counted(kinds.count(kind), *_NOUNS[kind]) for kind in RESOURCE_KINDS if kind in kinds]
    return _joined(
        (
            _counted(len(surface.tools), "tool", "tools") + (f", {blocked} of them blocked" if blocked else ""),
            f"{undeclared} undeclared, shown with the most that could be reached" if undeclared else "",
            f"reaching {', '.join(counts)}" if counts else "reaching nothing",
            surface.digest[:19],
        )
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


Short = Callable[[str], str]  # makes the paths in a text short

_CLOSED = "no grant writes policy files, code of tools, interpreter, libraries or licet's state: --json lists them"
_SERVER = {
    "isolated": "one process behind walls that holds at most {}; "
    "inside them, only needs and argument rules tell its tools apart",
    "native": "unrestricted code of this user, without walls",
    "remote": "remote, at {}: what it does there is not seen or limited here",
}


def heading(surface: Surface) -> Iterator[tuple[str, str]]:
    """The facts about an agent, each with its title."""
    yield "agent", f"{surface.agent} {surface.version}".strip()
    if surface.personality:
        yield "personality", surface.personality
    if surface.app:
        yield "app", surface.app
    yield "risk", _risk_text(surface)
    yield "digest", surface.digest
    yield "files", ", ".join(dict.fromkeys(surface.files))
    for file, digest in surface.organisations:
        yield "under", f"{file} ({digest})"
    yield "at most", surface.max_effect
    if surface.budget:
        yield "budget", ", ".join(spending(surface.budget))
    for bundle in surface.bundles:
        yield f"in {bundle.name}", ", ".join(bundle_facts(surface, bundle))
    for title, listed in (("native", surface.native), ("private", surface.private)):
        if listed:
            yield title, ", ".join(listed)
    if placed := surface.of(keys.STAND_INS):
        yield "keys", "; ".join(map(stand_in_text, placed))
    if surface.of(keys.FLOW) != NO_FLOW:
        yield "flow", flow_text(surface.of(keys.FLOW))
    for key in keys.VALUED:
        if key in (keys.STAND_INS, keys.FLOW):
            continue
        for title, value in key.document(surface.of(key)).items():
            yield title, ", ".join(map(str, value)) if isinstance(value, list) else data_json(value).decode()
    if surface.allow_degraded:
        yield "sandbox", "programs may run without namespaces and without a supervisor of their calls (allow_degraded)"
    if not surface.tools:
        yield "tools", "none: only commands, with `licet run`" if surface.commands else "none: nothing can be called"


def _risk_text(surface: Surface) -> str:
    risk = surface.risk
    named = [tool.name for tool in surface.tools if tool.risk == risk]
    few = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if named[3:] else "")
    about = f"{risk} ({few})" if few else str(risk)
    return about if risk.level != "none" else "none: nothing can be reached"


def how_it_runs(tool: ToolSurface) -> Iterator[str]:
    """How a tool runs: class, level, bundle, approvals and limits."""
    yield tool.effect or "no class"
    yield tool.level or "no level"
    if tool.bundles:
        yield f"in {', '.join(tool.bundles)}"
    if tool.conditional:
        yield "shown if `available`"
    if tool.asks:
        yield f"asks per {tool.asks}"
    if tool.asks_about:
        yield f"asks about {', '.join(f'`{name}`' for name in tool.asks_about)}"
    for name, text in tool.flow_texts.items():
        yield f"`{name}`: {text}"
    for words in tool.asked_by:
        yield f"asked for by {' or '.join(words)}"
    if tool.free_deletes:
        yield f"deletes: {DELETES[tool.deletes]}"
    if tool.deletes_ask:
        yield "other deletes: each asks" if tool.free_deletes else "asks per delete"
    if tool.max_calls is not None:
        yield f"{tool.max_calls} calls"
    if tool.max_cost_usd is not None:
        yield f"{money_text(tool.max_cost_usd)} USD"
    if tool.cost_usd is not None:
        yield f"{money_text(tool.cost_usd)} USD a call"


def notes(surface: Surface, short: Short) -> Iterator[tuple[str, str]]:
    """What a reader must know besides the table, each with its title."""
    undeclared = [tool.name for tool in surface.tools if tool.standing == "undeclared"]
    if undeclared:
        verb = "is" if len(undeclared) == 1 else "are"
        yield (
            "undeclared",
            f"{', '.join(undeclared)} {verb} admitted but not declared; shown is the most that any declaration gives",
        )
    for tool in (*surface.tools, *filter(None, (surface.commands,))):
        if tool.standing == "blocked" and not tool.withheld:
            yield "blocked", f"{tool.name} {tool.note}"
    yield from (("blocked", text) for text in withheld_lines(surface.tools))
    for needs in dict.fromkeys(tool.optional for tool in surface.tools if tool.optional):
        names = tuple(tool.name for tool in surface.tools if tool.optional == needs)
        yield "optional", short(f"{_few(names)} can do without {', '.join(needs)}")
    if surface.commands:
        yield ANY_COMMAND, f"what `{surface.commands.name}` starts can reach this, unless --tool names a tool"
    tools = (*surface.tools, *filter(None, (surface.commands,)))
    if any(entry.kind == "binaries" for tool in tools for entry in tool.entries):
        yield (
            "binaries",
            "what licet starts; these run whatever they can read, so to keep a program from running, deny reading it",
        )
    held = dict(surface.held)
    for name, text in surface.servers:
        server = json.loads(text)
        own = [tool for tool in surface.tools if tool.of_server(name)]
        about = _SERVER[kind_of(text)].format(server.get("url") or ", ".join(held[name]) or "nothing")
        about += f"; looked into: {', '.join(server['inspect'])}" if "inspect" in server else ""
        placed = stand_ins({key: one for key, one in server["secrets"].items() if isinstance(one, dict)})
        about += f"; keys: {'; '.join(map(stand_in_text, placed))}" if placed else ""
        about += f"; its code is in {', '.join(server['code'])}" if "code" in server else ""
        yield f"server {name}", short(about if own else f"{about}; this agent has none of its tools")
    if surface.unadmitted:
        yield "left out", f"{', '.join(surface.unadmitted)}: declared, but not for this agent"
    if surface.unused:
        yield "not used", short(f"allowed, and no tool of today can reach it: {_few(surface.unused)}")
    if native := [tool.name for tool in surface.tools if tool.level == "native" and tool.reachable]:
        verb = "is" if len(native) == 1 else "are"
        yield "trusted", f"{', '.join(native)} {verb} trusted code of this program: nothing but its handles is checked"
    for tool in surface.tools:
        if tool.ties is not None and tool.reachable:
            named = ", ".join(tool.ties.tied) or "no argument"
            yield "tied", f"{tool.name}: {named}, to what it declares; a call that names anything else is refused"
        if tool.untied is not None and tool.reachable:
            yield "not tied", short(f"{tool.untied.text}; {tool.untied.fix}")
    if believed := list(beliefs(surface.of(keys.FLOW))):
        yield "what we believe", short("\n".join(believed))
    if denied := list(_denied_rules(surface)):
        yield "denied", short("\n".join(denied))
    yield "closed", _CLOSED


def _few(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - MOST_UNUSED} more" if len(items) > MOST_UNUSED else ""
    return ", ".join(items[:MOST_UNUSED]) + more


def _denied_rules(surface: Surface) -> Iterator[str]:
    """The rules that the policy denies."""
    for deny in surface.denies:
        if not deny.by_licet:
            yield f"{deny.rule} ({deny.origin})" if deny.origin else str(deny.rule)


# Flow -----------------------------------------------------------------------------------------------------------------


def flow_text(flow: Flow) -> str:
    """What a policy says about flow, in one line.

    >>> flow_text(Flow(preset="guarded", otherwise="deny", own=("example.com",)))
    'guarded, otherwise deny; own: example.com'
    """
    parts = [" and ".join(flow.presets) + (", otherwise deny" if flow.otherwise == "deny" else "")]
    parts += [f"own: {', '.join(flow.own)}"] if flow.own else []
    parts += [f"the role `{role}` takes {', '.join(origins) or 'nothing'}" for role, origins in flow.roles.items()]
    parts += ["a client may say the task"] if flow.task_through_client else []
    parts += ["the prompt is the task"] if flow.prompt_is_task else []
    for secret in flow.secrets:
        what = secret.use or secret.tool + (f":{','.join(secret.fields)}" if secret.fields else "")
        parts.append(f"secret: {what}, for {', '.join(secret.readers) or 'nobody'}")
    return "; ".join(parts)


def beliefs(flow: Flow) -> Iterator[str]:
    """What a policy believes of what is read: a line for each label and rule, `authored` first.

    `identity` is one of them: under `guarded`, it opens the role `to`.
    """
    for label in ("authored", "trusted", "identity"):
        for tool, entries in flow.results.items():
            for entry in entries:
                fields = [name for name, given in entry.fields if given == label]
                if entry.label == label:
                    others = ", ".join(f"`{name}` ({given})" for name, given in entry.fields if given != label)
                    yield f"{label}: all of `{tool}`{where_text(entry.under)}" + (f", but {others}" if others else "")
                elif fields:
                    yield f"{label}: {', '.join(f'`{tool}:{name}`' for name in fields)}{where_text(entry.under)}"
    for source in sorted(flow.sources, key=lambda one: -LABELS.index(one.label)):
        yield f"{source.label}: what is read through {source.use}"
