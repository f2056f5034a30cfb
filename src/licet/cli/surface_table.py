"""The table of `licet surface`, drawn by rich: riskiest tool first, plain and 80 columns wide in a pipe.

In a terminal that is too narrow for columns, the same is written below each other.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from licet.core.review.surface import Surface, ToolSurface
from licet.core.review.surface_entries import ReachEntry
from licet.map.cards import ANY_COMMAND, Short, heading, how_it_runs, notes

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
