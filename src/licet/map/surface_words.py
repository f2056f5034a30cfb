"""The words of a surface: the facts about an agent, how a tool runs, and what a reader must know besides."""

import json
from collections.abc import Callable, Iterator

from licet.core.policy import keys
from licet.core.review.surface import Surface, ToolSurface, kind_of, withheld_lines
from licet.core.values import canonical_json, money_text
from licet.map.cards import ANY_COMMAND, DELETES, bundle_facts, spending
from licet.map.limits import MOST_UNUSED

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
    for key in keys.VALUED:
        for title, value in key.document(surface.of(key)).items():
            yield title, ", ".join(map(str, value)) if isinstance(value, list) else canonical_json(value).decode()
    if surface.allow_degraded:
        yield "sandbox", "programs may run without namespaces, and can then see the names of all files (allow_degraded)"
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
    if tool.asks:
        yield f"asks per {tool.asks}"
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
    if denied := list(_denied(surface)):
        yield "denied", short("\n".join(denied))
    yield "closed", _CLOSED


def _few(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - MOST_UNUSED} more" if len(items) > MOST_UNUSED else ""
    return ", ".join(items[:MOST_UNUSED]) + more


def _denied(surface: Surface) -> Iterator[str]:
    """The rules that the policy denies."""
    for deny in surface.denies:
        if not deny.by_licet:
            yield f"{deny.rule} ({deny.origin})" if deny.origin else str(deny.rule)
