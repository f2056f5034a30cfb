"""The table of `licet surface`, drawn by rich: riskiest tool first, plain and 80 columns wide in a pipe.

In a terminal that is too narrow for columns, the same is written below each other.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import click
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from licet.cli.output import coloured, counted
from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.scope import visible
from licet.core.review.diff import Reached, reached_by, reached_in
from licet.core.review.risk import NOTHING, Risk
from licet.core.review.surface import Surface, ToolSurface, kind_of, withheld_lines
from licet.core.review.surface_entries import ReachEntry
from licet.core.values import money_text
from licet.map.cards import ANY_COMMAND, DELETES, bundle_facts, spending

Short = Callable[[str], str]

_CLOSED = "no grant writes policy files, code of tools, interpreter, libraries or licet's state: --json lists them"
_SERVER = {
    "isolated": "one process behind walls that holds at most {}; "
    "inside them, only needs and argument rules tell its tools apart",
    "native": "unrestricted code of this user, without walls",
    "remote": "remote, at {}: what it does there is not seen or limited here",
}
_MOST_UNUSED = 10  # rules that the note about unused ones lists
_STANDING = {"callable": "bold", "undeclared": "yellow", "blocked": "red"}
_RISK = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "green", "none": "dim"}
_NARROW = 60  # columns; below that, columns next to each other break most words


def print_surface(surface: Surface, short: Short) -> None:
    """Print a surface: the agent, what each tool reaches, and notes."""
    console = _console()
    with console.capture() as drawn:
        _print_agent(console, surface, short)
    _echo(console, drawn.get())


def print_tools(surfaces: Mapping[str, Surface], short: Short) -> None:
    """Print the surfaces of several agents, tool by tool."""
    console = _console()
    with console.capture() as drawn:
        for number, shown in enumerate(_riskiest_first(surfaces).values()):
            if number:
                console.print("\n")
            _print_agent(console, shown, short)
    _echo(console, drawn.get())


def print_agents(surfaces: Mapping[str, Surface], short: Short) -> None:
    """Print what each agent reaches with all its tools, riskiest agent first."""
    rows = []
    for title, shown in _riskiest_first(surfaces).items():
        every = (*shown.tools, *filter(None, (shown.commands,)))
        held = reached_by((tool.name, tool.entries) for tool in every)
        facts = [counted(sum(tool.reachable for tool in shown.tools), "tool"), f"at most {shown.max_effect}"]
        rows.append(
            (Text(f"{visible(shown.agent)}\n{visible(title)}"), _facts(shown.risk, facts), _listed(held, short))
        )
    _print_rows(("agent", "risk", "reaches"), rows)


def print_workspace(surfaces: Mapping[str, Surface], short: Short) -> None:
    """Print every target that any agent reaches, and who reaches it; riskiest target first."""
    rows: list[Row] = []
    for one in reached_in(surfaces):
        ways = f"{one.kind}  {', '.join(one.ways)}"
        target = Text(short(visible(one.target + _without(one))))
        rows.append((target, _facts(one.risk, [ways]), Text("\n".join(map(visible, one.holders)))))
    _print_rows(("target", "risk", "reached by"), rows)


def _riskiest_first(surfaces: Mapping[str, Surface]) -> dict[str, Surface]:
    return dict(sorted(surfaces.items(), key=lambda item: item[1].risk.rank))


Row = tuple[Text, Text, RenderableType]


def _print_rows(titles: tuple[str, str, str], rows: Sequence[Row]) -> None:
    console = _console()
    with console.capture() as drawn:
        console.print(_columns(console, titles, rows) if rows else "nothing can be reached")
    _echo(console, drawn.get())


def _columns(console: Console, titles: tuple[str, str, str], rows: Sequence[Row]) -> RenderableType:
    if console.width < _NARROW:
        stacked = Table.grid(expand=True)
        stacked.add_column(overflow="fold")
        for number, row in enumerate(rows):
            for part in (*(("",) if number else ()), *row):
                stacked.add_row(part)
        return stacked
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, header_style="bold")
    table.add_column(titles[0], overflow="fold", max_width=24)
    table.add_column(titles[1], overflow="fold", max_width=20)
    table.add_column(titles[2], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _console() -> Console:
    colours = coloured()
    system: Literal["standard"] | None = "standard" if colours else None  # without one, no bold text either
    return Console(highlight=False, markup=False, emoji=False, color_system=system, force_terminal=colours or None)


def _echo(console: Console, text: str) -> None:
    for line in text.splitlines():
        click.echo(line.rstrip(), color=console.color_system is not None)


def _print_agent(console: Console, surface: Surface, short: Short) -> None:
    console.print(_grid(console, heading(surface)))
    if not all(tool.withheld for tool in surface.tools) or surface.commands:
        console.print()
        console.print(_tools(console, surface, short))
    console.print()
    console.print(_grid(console, notes(surface, short)))


def _facts(risk: Risk, facts: Iterable[str]) -> Text:
    text = Text(f"{'no' if risk == NOTHING else risk.level} risk", style=_RISK[risk.level])
    return text.append("\n" + "\n".join(map(visible, facts)), style="default")


def _listed(held: Iterable[Reached], short: Short) -> RenderableType:
    grid, kinds = _kinds_grid(), dict[str, list[str]]()
    for one in held:
        kinds.setdefault(one.kind, []).append(short(visible(f"{one.target}{_ways(one.kind, one.ways)}{_without(one)}")))
    for kind in (kind for kind in RESOURCE_KINDS if kind in kinds):
        grid.add_row(kind, Text("\n".join(kinds[kind])))
    return grid if kinds else Text("nothing", style="dim")


def _kinds_grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold")
    grid.add_column(overflow="fold")
    return grid


def _without(one: Reached | ReachEntry) -> str:
    return f" except {', '.join(one.excepts)}" if one.excepts else ""


def _ways(kind: str, ways: tuple[str, ...]) -> str:
    shown = kind in ("hosts", "paths") or (kind == "storage" and set(ways) != {"read", "write"})
    return f"  {', '.join(ways)}" if shown else ""


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
    if surface.allow_degraded:
        yield "sandbox", "programs may run without namespaces, and can then see the names of all files (allow_degraded)"
    if not surface.tools:
        yield "tools", "none: only commands, with `licet run`" if surface.commands else "none: nothing can be called"


def _tools(console: Console, surface: Surface, short: Short) -> RenderableType:
    rows: list[Row] = []
    each = [(visible(tool.name), tool) for tool in surface.riskiest_first if not tool.withheld]
    if surface.commands:
        each.append((ANY_COMMAND.replace(" ", "\n"), surface.commands))
    for title, tool in each:
        name = Text(title, style=_STANDING[tool.standing])
        runs = _facts(tool.risk, how_it_runs(tool)) if tool.reachable else Text("\n".join(how_it_runs(tool)))
        rows.append((name, runs, _reached(tool, short)))
    return _columns(console, ("tool", "runs as", "reaches"), rows)


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


def _reached(tool: ToolSurface, short: Short) -> Table | Text:
    if not tool.entries:
        nothing = "nothing through handles; it is trusted code" if tool.level == "native" else "nothing"
        return Text(nothing if tool.reachable else "cannot be called", style="dim")
    grid = _kinds_grid()
    for kind in RESOURCE_KINDS:
        held = [entry for entry in tool.entries if entry.kind == kind]
        if held:
            # For hosts and paths the actions differ; for everything else a list of names is enough.
            text = ("\n" if kind in ("hosts", "paths") else ", ").join(short(_entry(entry)) for entry in held)
            grid.add_row(kind, Text(text))
    return grid


def _entry(entry: ReachEntry) -> str:
    return visible(entry.target + _ways(entry.kind, entry.ways) + _without(entry))


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
    more = f" and {len(items) - _MOST_UNUSED} more" if len(items) > _MOST_UNUSED else ""
    return ", ".join(items[:_MOST_UNUSED]) + more


def _denied(surface: Surface) -> Iterator[str]:
    """The rules that the policy denies."""
    for deny in surface.denies:
        if not deny.by_licet:
            yield f"{deny.rule} ({deny.origin})" if deny.origin else str(deny.rule)


def _grid(console: Console, rows: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    narrow = console.width < _NARROW
    grid.add_column(style=None if narrow else "dim", no_wrap=not narrow, overflow="fold")
    if not narrow:
        grid.add_column(overflow="fold")
    for title, text in rows:
        shown = Text("\n".join(map(visible, text.splitlines())))
        if narrow:
            grid.add_row(Text(visible(title), style="dim"))
            grid.add_row(shown)
        else:
            grid.add_row(Text(visible(title)), shown)
    return grid
