"""A surface as a table for a terminal, drawn by rich; plain and 80 columns wide where nobody watches."""

from collections.abc import Callable, Iterable, Iterator

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from licet.core.canonical import money_text
from licet.core.entries import KINDS, Entry
from licet.core.scope import visible
from licet.core.surface import Surface, ToolSurface
from licet.surfaces.words import ANY_COMMAND, bundle_facts, spending

Short = Callable[[str], str]

_CLOSED = "no grant writes policy files, code of tools, interpreter, libraries or licet's state: --json lists them"
_STANDING = {"callable": "bold", "undeclared": "yellow", "blocked": "red"}


def print_surface(surface: Surface, short: Short) -> None:
    """Print a surface: the agent, each tool with what it reaches, and what a reader must know besides."""
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        console.print(_grid(_heading(surface)))
        if surface.tools or surface.commands:
            console.print()
            console.print(_tools(surface, short))
        console.print()
        console.print(_grid(_notes(surface, short)))
    for line in drawn.get().splitlines():
        click.echo(line.rstrip(), color=console.color_system is not None)


def _heading(surface: Surface) -> Iterator[tuple[str, str]]:
    yield "agent", f"{surface.agent} {surface.version}".strip()
    if surface.personality:
        yield "personality", surface.personality
    if surface.app:
        yield "app", surface.app
    yield "digest", surface.digest
    yield "files", ", ".join(dict.fromkeys(surface.files))
    yield "at most", surface.max_effect
    if surface.budget:
        yield "budget", ", ".join(spending(surface.budget))
    for bundle in surface.bundles:
        yield f"in {bundle.name}", ", ".join(bundle_facts(surface, bundle))
    for title, listed in (("native", surface.native), ("private", surface.private)):
        if listed:
            yield title, ", ".join(listed)
    if surface.allow_degraded:
        yield "sandbox", "programs may run without namespaces: they see names of foreign files (allow_degraded)"
    if not surface.tools:
        yield "tools", "none: nothing can be called"


def _tools(surface: Surface, short: Short) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, header_style="bold")
    table.add_column("tool", overflow="fold", max_width=24)
    table.add_column("runs as", overflow="fold", max_width=20)
    table.add_column("reaches", overflow="fold", ratio=1)
    rows = [(visible(tool.name), tool) for tool in surface.tools]
    if surface.commands:
        rows.append((ANY_COMMAND.replace(" ", "\n"), surface.commands))
    for title, tool in rows:
        name = Text(title, style=_STANDING[tool.standing])
        table.add_row(name, Text("\n".join(map(visible, _standing(tool)))), _reached(tool, short))
    return table


def _standing(tool: ToolSurface) -> Iterator[str]:
    """What a tool runs as: class, level, bundle, and when a person is asked."""
    yield tool.effect or "no class"
    yield tool.level or "no level"
    if tool.bundles:
        yield f"in {', '.join(tool.bundles)}"
    if tool.asks:
        yield f"asks per {tool.asks}"
    if tool.deletes_ask:
        yield "asks per delete"
    if tool.max_calls is not None:
        yield f"{tool.max_calls} calls"
    if tool.max_cost_usd is not None:
        yield f"{money_text(tool.max_cost_usd)} USD"
    if tool.cost_usd is not None:
        yield f"{money_text(tool.cost_usd)} USD a call"


def _reached(tool: ToolSurface, short: Short) -> Table | Text:
    if not tool.entries:
        return Text("nothing" if tool.reachable else "cannot be called", style="dim")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold")
    grid.add_column(overflow="fold")
    for kind in KINDS:
        held = [entry for entry in tool.entries if entry.kind == kind]
        if held:
            # Hosts and paths differ in what may be done there; of the rest a list of names tells everything.
            text = ("\n" if kind in ("hosts", "paths") else ", ").join(short(_entry(entry)) for entry in held)
            grid.add_row(kind, Text(text))
    return grid


def _entry(entry: Entry) -> str:
    told = entry.kind in ("hosts", "paths") or (entry.kind == "storage" and set(entry.ways) != {"read", "write"})
    ways = f"  {', '.join(entry.ways)}" if told else ""
    without = f" except {', '.join(entry.excepts)}" if entry.excepts else ""
    return visible(entry.target + ways + without)


def _notes(surface: Surface, short: Short) -> Iterator[tuple[str, str]]:
    undeclared = [tool.name for tool in surface.tools if tool.standing == "undeclared"]
    if undeclared:
        verb = "is" if len(undeclared) == 1 else "are"
        yield "undeclared", f"{', '.join(undeclared)} {verb} admitted, but no file says what for; shown is the most"
    for tool in (*surface.tools, *filter(None, (surface.commands,))):
        if tool.standing == "blocked":
            yield "blocked", f"{tool.name} {tool.note}"
    for tool in surface.tools:
        if tool.optional:
            yield "optional", short(f"{tool.name} can do without {', '.join(tool.optional)}")
    if surface.commands:
        yield ANY_COMMAND, f"what `{surface.commands.name}` starts holds this, unless --tool names a tool"
    if surface.unadmitted:
        yield "left out", f"{', '.join(surface.unadmitted)}: declared, but not for this agent"
    if denied := list(_denied(surface)):
        yield "denied", short("\n".join(denied))
    yield "closed", _CLOSED


def _denied(surface: Surface) -> Iterator[str]:
    """What the policy denies, whatever else it allows."""
    for deny in surface.denies:
        if not deny.by_licet:
            yield f"{deny.rule} ({deny.origin})" if deny.origin else str(deny.rule)


def _grid(rows: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for title, text in rows:
        grid.add_row(Text(visible(title)), Text("\n".join(map(visible, text.splitlines()))))
    return grid
