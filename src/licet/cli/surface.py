"""`licet surface`: everything that agents can reach, as a table, as JSON, as a picture or as a page.

The table is drawn by rich: riskiest tool first, plain and 80 columns wide in a pipe. In a terminal that is too narrow
for columns, the same is written below each other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from licet.assemble import Places
from licet.assemble.never_writable import closed_paths, closed_to_grants
from licet.cli.diff import exit_code, fail_on_option, failing_tools, manifests_of
from licet.cli.discovery import named_or_found
from licet.cli.options import FILE, Setting, json_option, read_sound, setting_options
from licet.cli.output import check_target, coloured, counted, is_output, print_report, shortened, wants_json, write_out
from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.core.review.diff import Reached, reached_by, reached_in
from licet.core.review.risk import NOTHING, Risk
from licet.core.review.surface import Surface, ToolSurface, surface
from licet.core.review.surface_entries import ReachEntry
from licet.map.cards import ANY_COMMAND, Short, heading, how_it_runs, notes
from licet.packages.locked_tools import pinned_here


@click.command(name="surface")
@click.argument("manifests", metavar="[MANIFEST|DIRECTORY]...", type=FILE, nargs=-1)
@setting_options
@click.option(
    "--by",
    type=click.Choice(("tool", "agent", "workspace")),
    default="tool",
    show_default=True,
    help="One row for each tool, for each agent, or for each host, path and secret of all agents.",
)
@fail_on_option(
    "none",
    default="none",
    text="Exit with 1 if something has this risk or a higher one: `risk:critical`, `risk:high`, `risk:medium` or "
    "`risk:low`.",
)
@json_option
@click.option("--svg", metavar="FILE", type=FILE, help="Write a map as SVG to a file; `-` is standard output.")
@click.option("--html", metavar="FILE", type=FILE, help="Write a page for a report to a file; `-` is standard output.")
@click.pass_context
def command(
    ctx: click.Context,
    manifests: tuple[Path, ...],
    setting: Setting,
    by: str,
    fail_on: str,
    svg: Path | None,
    html: Path | None,
) -> None:
    """Show everything that an agent can reach, tool by tool, riskiest first.

    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. Several manifests are shown
    together, and a directory stands for all manifests of agents in it and in its .licet.

    The answer is exact and comes from the files alone: a tool reaches what it declares and the policy allows. A tool
    that no file declares is shown with the most that any declaration could give it. A tool that cannot be called
    reaches nothing. If a binary is allowed that no tool needs, the last row shows what any command of `licet run`
    reaches. Paths that no grant ever writes (policy, code of tools, interpreter, libraries, licet's state) are one
    line; --json lists them.

    \b
    Exit codes:
      0  shown
      1  the files have errors, or see --fail-on
      2  bad command line
    """
    if wants_json() and (svg is not None or html is not None):
        raise click.UsageError("--json excludes --svg and --html")
    if svg is not None and html is not None and is_output(svg) and is_output(html):
        raise click.UsageError("--svg and --html cannot both be written to the standard output")
    for file, suffix in ((svg, ".svg"), (html, ".html")):
        if file is not None:
            check_target(file, suffix)
    policies = _policies(manifests, setting)
    if svg is not None and len(policies) > 1:
        raise click.UsageError("--svg draws one agent: name one manifest, or use --html")
    places = Places.here(setting.workdir)  # readers of the JSON need both to interpret a path
    shown = {key: surface(policy, closed_to_grants(policy, places.workdir)) for key, policy in policies.items()}
    short = shortened(setting.workdir)
    if svg is not None:
        from licet.map.draw import svg_map

        write_out(svg, svg_map(next(iter(shown.values())), short))
    if html is not None:
        from licet.map.pages import surface_page

        write_out(html, surface_page(shown, short))
    if svg is None and html is None:
        one = len(manifests) < 2 and len(shown) == 1 and not any(path.is_dir() for path in manifests)
        print_report(_Shown(shown, policies, places, one), lambda found: _print(found.surfaces, by, short))
    ctx.exit(exit_code(fail_on, failing_tools(fail_on, shown)))


def _policies(named: tuple[Path, ...], setting: Setting) -> dict[str, Manifest]:
    """The manifests that were named, by the names of their files."""
    found: dict[str, Manifest] = {}
    for path in named or (named_or_found(None, "MANIFEST").path,):
        files = manifests_of(path) if path.is_dir() else (path,)
        if not files:
            raise click.UsageError(f"there is no manifest of an agent in {visible(str(path))}")
        found |= {str(file): pinned_here(read_sound(file, setting)) for file in files}
    return found


class _Shown(Struct, frozen=True):
    """The surfaces of some agents, with the policies that they come from, by the names of their files."""

    surfaces: dict[str, Surface]
    policies: dict[str, Manifest]
    places: Places
    single: bool

    def document(self) -> dict[str, object]:
        """As plain data: of one agent as it is, of several by the name of their file."""
        agents = {key: self._of_one(key) for key in self.policies}
        return agents[next(iter(agents))] if self.single else {"agents": agents, "reach": reached_in(self.surfaces)}

    def _of_one(self, key: str) -> dict[str, object]:
        workdir, home = self.places.workdir, self.places.home
        closed = closed_paths(self.policies[key], workdir)
        return {**self.surfaces[key].document(), "never_writable": closed, "workdir": workdir, "home": home}


def _print(shown: dict[str, Surface], by: str, short: Callable[[str], str]) -> None:
    if by == "agent":
        print_agents(shown, short)
    elif by == "workspace":
        print_workspace(shown, short)
    elif len(shown) == 1:
        print_surface(next(iter(shown.values())), short)
    else:
        print_tools(shown, short)


# The table ------------------------------------------------------------------------------------------------------------

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
