"""Writes the generated parts of docs/hooks/: what the tables in `licet.hooks.agents` say of each coding agent.

`licet hook` decides with the same tables. What a kind of tool means for a person is in `reference_words.py`.
"""

from collections.abc import Callable, Sequence

from reference_words import HOOK_KINDS, HOOK_MOMENTS, HOOK_SCOPES, HOOK_SEEN, HOOK_SETTINGS, HOOK_TOOLS, LINES_KEEP

from licet.core.review.sensitive import HOME_SWITCHES, MACHINE_SWITCHES, SWITCHES
from licet.hooks.agent_event import AgentTool
from licet.hooks.agents import AGENTS
from licet.hooks.agents.dialect import Dialect

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]


def agent_pages(table: Table) -> dict[str, dict[str, str]]:
    """The generated part of each agent's page, by page and name."""
    return {f"hooks/{name}.md": {"hooks": _page(dialect, table)} for name, dialect in AGENTS.items()}


def _page(dialect: Dialect, table: Table) -> str:
    parts = [facts(dialect, table)]
    for title, said, written in (
        ("What happens to each tool", HOOK_TOOLS, tools),
        ("Events", "", events),
        ("What configures it", HOOK_SETTINGS, settings),
    ):
        parts.append(f"## {title}\n\n" + (f"{said}\n\n" if said else "") + written(dialect, table))
    return "\n".join(parts)


def facts(dialect: Dialect, table: Table) -> str:
    """What licet knows of the agent as a whole, and what its hooks are not told."""
    versions = "; ".join(f"{one.version} ({HOOK_SEEN[one.how]})" for one in dialect.seen)
    asks = "the agent asks its person, in its own prompt"
    refuses = "the call is refused, with the command that approves it; the agent cannot be made to ask"
    failing = "; ".join(dialect.failing_hook_runs) or "none is known"
    ids = "by the agent's id of the call"
    order = "equal calls that are under way together are closed in order: the agent gives calls no id"
    program = " ".join(dialect.line_program)
    default = f"{dialect.timeout:,} {dialect.timeout_unit}" if dialect.timeout else "none"
    rows = [
        ("versions", versions),
        ("a call that needs a person", asks if dialect.asks else refuses),
        ("failures of the hook after which the call **runs**", failing),
        ("setting that makes other failures refuse", f"`{dialect.fail_closed}`" if dialect.fail_closed else "none"),
        ("trust", dialect.needs_trust or "none is needed"),
        ("the agent's own time limit for a hook", default),
        ("from one shell line to the next", LINES_KEEP[dialect.keeps]),
        ("program that runs a shell line", f"`{program}`"),
        ("receipts are closed", ids if dialect.call_ids else order),
    ]
    unseen = "".join(f"- {one[:1].upper()}{one[1:]}.\n" for one in dialect.unseen)
    return table(("what", dialect.product), rows) + f"\nIts hooks are not told, or licet does not know:\n\n{unseen}"


def tools(dialect: Dialect, table: Table) -> str:
    """What licet does with each built-in tool, by kind."""
    made = []
    for kind, does in HOOK_KINDS.items():
        rows = [(f"`{dialect.name}.{tool.name}`", _about(tool), arguments(tool)) for tool in _of(dialect, kind)]
        if rows:
            made.append(f"**{kind}**: {does}\n\n" + table(("tool", "what it does", "what licet reads of a call"), rows))
    return "\n".join(made)


def _of(dialect: Dialect, kind: str) -> list[AgentTool]:
    return [tool for tool in dialect.tools.values() if tool.kind == kind]


def _about(tool: AgentTool) -> str:
    return tool.about if tool.seen else f"{tool.about}; **hooks are not told**"


def arguments(tool: AgentTool) -> str:
    """The arguments that decide about a call, and those that nothing can be decided about."""
    named = dict.fromkeys(filter(None, (tool.text, tool.directory, *tool.paths, *tool.patterns, *tool.urls)))
    read = ", ".join(f"`{name}`" for name in named)
    refused = ", ".join(f"`{name}`" for name in tool.undecided)
    return "; ".join(filter(None, (read, f"a call with {refused} is refused" if refused else ""))) or "–"


def events(dialect: Dialect, table: Table) -> str:
    """The events that the hooks are installed for, and the names of the others."""
    rows = [
        (f"`{name}`", f"{event.about[:1].upper()}{event.about[1:]}", HOOK_MOMENTS[event.moment])
        for name, event in dialect.events.items()
        if event.installed
    ]
    others = ", ".join(f"`{name}`" for name, event in dialect.events.items() if not event.installed)
    return table(("event", "when", "what licet does"), rows) + (f"\nNot installed: {others}.\n" if others else "")


def settings(dialect: Dialect, table: Table) -> str:
    """The files and directories that configure the agent, and those that are closed to it for that reason."""
    rows = [
        (f"`{place.path}`", HOOK_SCOPES[place.scope], ", ".join(place.holds), place.acts) for place in dialect.places
    ]
    machine = {place.path for place in dialect.places if place.scope == "managed"}
    closed = [f"`./{one.path}`" for one in SWITCHES if one.agent == dialect.name]
    closed += [f"`~/{path}`" for path in HOME_SWITCHES[dialect.name]]
    closed += [f"`{path}`" for path in MACHINE_SWITCHES if any(f"{one}/".startswith(f"{path}/") for one in machine)]
    return table(("path", "for", "holds", "a change acts"), rows) + (
        f"\nClosed, with all below, `./` in every directory: {', '.join(closed)}.\n"
    )
