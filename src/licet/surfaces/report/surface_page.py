"""The page of `licet surface --html`: agents side by side, each with its tools and its map, and who reaches what."""

from collections.abc import Callable, Iterator, Mapping

from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.review.surface import Surface
from licet.core.review.tool_surface import ToolSurface
from licet.core.review.workspace import Reached, reached_in
from licet.surfaces.cli.surface_table import heading, how_it_runs, notes
from licet.surfaces.map.cards import ANY_COMMAND
from licet.surfaces.map.draw import safe, svg_map
from licet.surfaces.report.page import badge, facts, folded, listed, page, table

Say = Callable[[str], str]


def surface_page(surfaces: Mapping[str, Surface], say: Say) -> str:
    """Everything that some agents can reach, as one HTML file; `say` may shorten its texts."""
    ordered = sorted(surfaces.items(), key=lambda item: item[1].risk.rank)
    one = ordered[0][1] if len(ordered) == 1 else None
    title = f"What {one.agent} can reach" if one else f"What {len(ordered)} agents can reach"
    lead = "A tool reaches what it declares and the policy allows. The riskiest come first."
    return page(title, lead, _parts(ordered, say))


def _parts(ordered: list[tuple[str, Surface]], say: Say) -> Iterator[str]:
    if len(ordered) > 1:
        yield "<h2>Agents</h2>"
        rows = (
            (f'<a href="#agent-{number}">{safe(shown.agent)}</a>', safe(key), badge(shown.risk), safe(shown.risk.label))
            for number, (key, shown) in enumerate(ordered)
        )
        yield table(("agent", "file", "risk", "why"), rows)
    for number, (key, shown) in enumerate(ordered):
        yield f'<h2 id="agent-{number}">{safe(shown.agent)} {badge(shown.risk)}</h2>'
        yield from agent_parts(key, shown, say)
    yield "<h2>Who reaches what</h2>"
    targets = (
        (_target(one, say), safe(one.kind), safe(", ".join(one.ways)), badge(one.risk), listed(map(safe, one.holders)))
        for one in reached_in({shown.agent if len(ordered) == 1 else key: shown for key, shown in ordered})
    )
    yield table(("target", "kind", "ways", "risk", "reached by"), targets)


def agent_parts(key: str, shown: Surface, say: Say) -> Iterator[str]:
    """The facts of one agent, its map and its tools."""
    yield facts((("file", key), *((title, say(text)) for title, text in heading(shown))))
    yield folded("Map", f'<div class="wide map">{svg_map(shown, say)}</div>', opened=True)
    each = [(safe(tool.name), tool) for tool in shown.riskiest_first]
    each += [(safe(ANY_COMMAND), shown.commands)] if shown.commands else []
    rows = (
        (name, f"{badge(tool.risk)} {safe(tool.risk.label)}", listed(map(safe, how_it_runs(tool))), _reach(tool, say))
        for name, tool in each
    )
    yield table(("tool", "risk", "runs as", "reaches"), rows)
    yield facts((title, say(text)) for title, text in notes(shown, say))


def _reach(tool: ToolSurface, say: Say) -> str:
    held = [
        f"{safe(say(entry.target))} <span class=muted>{safe(', '.join(entry.ways))}"
        f"{safe(say(' except ' + ', '.join(entry.excepts))) if entry.excepts else ''}</span>"
        for kind in RESOURCE_KINDS
        for entry in tool.entries
        if entry.kind == kind
    ]
    return listed(held) if held else safe("nothing" if tool.reachable else "cannot be called")


def _target(one: Reached, say: Say) -> str:
    return safe(say(one.target + (f" except {', '.join(one.excepts)}" if one.excepts else "")))
