"""`licet surface`: everything an agent can reach, as a table, as JSON or as a picture.

The table is drawn by rich; in a pipe it is plain and 80 columns wide.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from licet.assemble import Places
from licet.assemble.never_writable import closed_paths, closed_to_grants
from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.scope import visible
from licet.core.canonical import money_text
from licet.core.review.entries import ReachEntry
from licet.core.review.surface import Surface, kind_of, surface
from licet.core.review.tool_surface import ToolSurface
from licet.surfaces.cli.discovery import named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, read_sound, setting_options
from licet.surfaces.cli.output import is_output, is_special, shortened, show, show_json, write_file
from licet.surfaces.map.cards import ANY_COMMAND, DELETES, bundle_facts, spending


@click.command(name="surface")
@click.argument("manifest", type=FILE, required=False)
@setting_options
@json_option
@click.option("--svg", metavar="FILE", type=FILE, help="Write a map as SVG to a file; `-` is standard output.")
def command(
    manifest: Path | None,
    setting: Setting,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Show everything that an agent can reach, tool by tool.

    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml.

    The answer is exact and comes from the files alone: a tool reaches what it declares and the policy allows. A tool
    that no file declares is shown with the most that any declaration could give it. A tool that cannot be called
    reaches nothing. If a binary is allowed, the last row shows what any command of `licet run` reaches. Paths that no
    grant ever writes (policy, code of tools, interpreter, libraries, licet's state) are one line; --json lists them.

    \b
    Exit codes:
      0  shown
      1  the files have errors
      2  bad command line
    """
    if as_json and svg is not None:
        raise click.UsageError("--json and --svg exclude each other")
    if svg is not None and svg.suffix != ".svg" and os.path.lexists(svg) and not (is_output(svg) or is_special(svg)):
        raise click.UsageError(f"{visible(str(svg))} exists and does not end in .svg, so it is not replaced")
    policy = read_sound(named_or_found(manifest, "MANIFEST").path, setting, as_json)
    places = Places.here(setting.workdir)  # readers of the JSON need both to interpret a path
    shown = surface(policy, closed_to_grants(policy, places.workdir))
    if as_json:
        closed = [
            {"path": one.path, "why": one.why, "readable": one.readable} for one in closed_paths(policy, places.workdir)
        ]
        show_json({**shown.document(), "never_writable": closed, "workdir": places.workdir, "home": places.home})
    elif svg is not None:
        from licet.surfaces.map.draw import svg_map

        picture = svg_map(shown, shortened(setting.workdir))
        if is_output(svg):
            click.echo(picture)
        else:
            write_file(svg, picture, replace=True)
            show(f"wrote {svg}", err=True)
    else:
        print_surface(shown, shortened(setting.workdir))


Short = Callable[[str], str]

_CLOSED = "no grant writes policy files, code of tools, interpreter, libraries or licet's state: --json lists them"
_SERVER = {
    "isolated": "one process behind walls that holds {}, as far as this agent may; "
    "inside them, only needs and argument rules tell its tools apart",
    "native": "unrestricted code of this user, without walls",
    "remote": "remote, at {}: what it does there is not seen or limited here",
}
_MOST_UNUSED = 10  # rules that the note about unused ones lists
_STANDING = {"callable": "bold", "undeclared": "yellow", "blocked": "red"}


def print_surface(surface: Surface, short: Short) -> None:
    """Print a surface: the agent, what each tool reaches, and notes."""
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
        yield "sandbox", "programs may run without namespaces, and can then see the names of all files (allow_degraded)"
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
        table.add_row(name, Text("\n".join(map(visible, _how_it_runs(tool)))), _reached(tool, short))
    return table


def _how_it_runs(tool: ToolSurface) -> Iterator[str]:
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
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold")
    grid.add_column(overflow="fold")
    for kind in RESOURCE_KINDS:
        held = [entry for entry in tool.entries if entry.kind == kind]
        if held:
            # For hosts and paths the actions differ; for everything else a list of names is enough.
            text = ("\n" if kind in ("hosts", "paths") else ", ").join(short(_entry(entry)) for entry in held)
            grid.add_row(kind, Text(text))
    return grid


def _entry(entry: ReachEntry) -> str:
    with_ways = entry.kind in ("hosts", "paths") or (entry.kind == "storage" and set(entry.ways) != {"read", "write"})
    ways = f"  {', '.join(entry.ways)}" if with_ways else ""
    without = f" except {', '.join(entry.excepts)}" if entry.excepts else ""
    return visible(entry.target + ways + without)


def _notes(surface: Surface, short: Short) -> Iterator[tuple[str, str]]:
    undeclared = [tool.name for tool in surface.tools if tool.standing == "undeclared"]
    if undeclared:
        verb = "is" if len(undeclared) == 1 else "are"
        yield (
            "undeclared",
            f"{', '.join(undeclared)} {verb} admitted but not declared; shown is the most that any declaration gives",
        )
    for tool in (*surface.tools, *filter(None, (surface.commands,))):
        if tool.standing == "blocked":
            yield "blocked", f"{tool.name} {tool.note}"
    for tool in surface.tools:
        if tool.optional:
            yield "optional", short(f"{tool.name} can do without {', '.join(tool.optional)}")
    if surface.commands:
        yield ANY_COMMAND, f"what `{surface.commands.name}` starts can reach this, unless --tool names a tool"
    for name, text in surface.servers:
        server = json.loads(text)
        used = any(tool.name.startswith(f"{name}.") for tool in surface.tools)
        about = _SERVER[kind_of(text)].format(server.get("url") or _held(server))
        yield f"server {name}", short(about if used else f"{about}; this agent has none of its tools")
    if surface.unadmitted:
        yield "left out", f"{', '.join(surface.unadmitted)}: declared, but not for this agent"
    if surface.unused:
        yield "not used", short(f"allowed, and no tool of today can reach it: {_few(surface.unused)}")
    if native := [tool.name for tool in surface.tools if tool.level == "native" and tool.reachable]:
        verb = "is" if len(native) == 1 else "are"
        yield "trusted", f"{', '.join(native)} {verb} trusted code of this program: nothing but its handles is checked"
    if denied := list(_denied(surface)):
        yield "denied", short("\n".join(denied))
    yield "closed", _CLOSED


def _few(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - _MOST_UNUSED} more" if len(items) > _MOST_UNUSED else ""
    return ", ".join(items[:_MOST_UNUSED]) + more


def _held(server: dict[str, Any]) -> str:
    held = [*server["grants"], *(f"env:read:{one}" for one in server["env"])]
    held += [f"secret:read:{one}" for one in server["secrets"].values()]
    return ", ".join(held) or "nothing"


def _denied(surface: Surface) -> Iterator[str]:
    """The rules that the policy denies."""
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
