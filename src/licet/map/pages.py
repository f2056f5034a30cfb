"""The frame of every page: one file without scripts, fonts or anything from elsewhere, in light and dark.

All text comes from files that somebody else may have written. So everything goes through `safe`, and a content security
policy forbids scripts and requests even if something should slip through.

The page of `licet diff --html`: what grew, shrank and changed for each agent, riskiest first, and the new map.

The page of `licet surface --html`: agents side by side, each with its tools and its map, and who reaches what.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from licet import __version__
from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.review.changes import Change, Changes, Side
from licet.core.review.diff import Reached, reached_in
from licet.core.review.risk import NOTHING, RISK_LEVELS, Risk, riskiest
from licet.core.review.surface import Surface, ToolSurface
from licet.map.cards import ANY_COMMAND, heading, how_it_runs, notes
from licet.map.draw import element, safe, svg_map

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_COLOURS = {"critical": "#b42318", "high": "#c2410c", "medium": "#a16207", "low": "#2f7d4f", "none": "#5c6672"}
_NIGHT_COLOURS = {"critical": "#ff8f85", "high": "#ffab70", "medium": "#f2c744", "low": "#5fd494", "none": "#98a2af"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --page: #fafbfc; --card: #fff; --edge: #d5dbe2; --muted: #5c6672;
  --grown: #b42318; --shrunk: #2f7d4f; --changed: #a16207; DAY }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --page: #0f1216; --card: #181c22; --edge: #3d4652;
  --muted: #98a2af; --grown: #ff8f85; --shrunk: #5fd494; --changed: #f2c744; NIGHT } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
h1, h2, h3, td, li, dd { overflow-wrap: anywhere; }
p.muted, .muted { color: var(--muted); } code { font: .92em ui-monospace, monospace; }
.wide { overflow-x: auto; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; padding: .5rem .75rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem; border-top: 1px solid var(--edge); }
thead th { border-top: 0; color: var(--muted); font-weight: 600; font-size: .85rem; }
tbody th { font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt { color: var(--muted); } dd { margin: 0; }
ul { margin: 0; padding: 0; list-style: none; } li + li { margin-top: .1rem; }
.risk { display: inline-block; padding: 0 .5rem; border-radius: 1rem; border: 1px solid currentColor; font-size: .8rem;
  font-weight: 600; white-space: nowrap; } RISKS
.sign { font-weight: 700; } .grown { color: var(--grown); } .shrunk { color: var(--shrunk); }
.changed { color: var(--changed); }
a { color: inherit; } td, th { min-width: 6rem; }
.map svg { max-width: 100%; min-width: 46rem; height: auto; display: block; }
details { margin: 1rem 0; } summary { cursor: pointer; font-weight: 600; }
footer { margin-top: 3rem; color: var(--muted); font-size: .85rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; }
  table, thead, tbody, tr, th, td { display: block; } thead { display: none; } tr { border-top: 1px solid var(--edge); }
  th, td { border: 0; padding: .2rem .75rem; } }
@media print { body { max-width: none; } details > * { display: block; } }
""".strip()


def page(title: str, lead: str, parts: Iterable[str]) -> str:
    """A complete document; `parts` are HTML already."""
    body = "\n".join((element("h1", safe(title)), element("p", safe(lead), look="muted"), *parts))
    foot = element("footer", safe(f"Made by licet {__version__} from files alone. Nothing was run."))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{safe(title)}</title>
<style>
{_style()}
</style>
</head>
<body>
<main>
{body}
</main>
{foot}
</body>
</html>
"""


def _style() -> str:
    day, night = (
        " ".join(f"--{level}: {colour};" for level, colour in colours.items()) for colours in (_COLOURS, _NIGHT_COLOURS)
    )
    risks = " ".join(f".r-{level} {{ color: var(--{level}); }}" for level in RISK_LEVELS)
    return _STYLE.replace("DAY", day).replace("NIGHT", night).replace("RISKS", risks)


def badge(risk: Risk) -> str:
    """A risk as a small label."""
    return element("span", safe(risk.level), look=f"risk r-{risk.level}", title=risk.label)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells are HTML already; the first cell of a row is its heading."""
    head = element("tr", "".join(element("th", safe(one), scope="col") for one in titles))
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return element(
        "div", f"<table><thead>{head}</thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table>", look="wide"
    )


def listed(items: Iterable[str]) -> str:
    """A list whose items are HTML already."""
    return element("ul", "".join(f"<li>{item}</li>" for item in items) or "<li>none</li>")


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Titles and texts next to each other; a text may have several lines."""
    each = ((safe(title), "<br>".join(map(safe, text.split("\n")))) for title, text in pairs)
    return element("dl", "".join(f"<dt>{title}</dt><dd>{text}</dd>" for title, text in each) or "<dt></dt>")


def folded(title: str, body: str, *, opened: bool = False) -> str:
    """A part that a reader can open and close without a script; `body` is HTML already."""
    return f"<details{' open' * opened}><summary>{safe(title)}</summary>\n{body}\n</details>"


Say = Callable[[str], str]


def surface_page(surfaces: Mapping[str, Surface], say: Say) -> str:
    """Everything that some agents can reach, as one HTML file; `say` may shorten its texts."""
    ordered = sorted(surfaces.items(), key=lambda item: item[1].risk.rank)
    one = ordered[0][1] if len(ordered) == 1 else None
    title = f"What {one.agent} can reach" if one else f"What {len(ordered)} agents can reach"
    lead = "A tool reaches what it declares and the policy allows. The riskiest come first."
    return page(title, lead, _surface_parts(ordered, say))


def _surface_parts(ordered: list[tuple[str, Surface]], say: Say) -> Iterator[str]:
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


_SIDES: dict[Side, tuple[str, str]] = {
    "grown": ("+", "Grown: calls can do more, or fewer checks stop them"),
    "shrunk": ("−", "Shrunk"),
    "changed": ("~", "Changed in another way"),
}


def diff_page(changes: Mapping[str, Changes], now: Mapping[str, Surface], say: Say, titles: tuple[str, str]) -> str:
    """The changes of some agents, as one HTML file; `now` are the surfaces of the new version."""
    old, new = (title.removesuffix(":") for title in titles)
    between = f" between {old} and {new or 'the working tree'}" if old else ""
    number = sum(len(one.grown) for one in changes.values())
    title = f"What changed{between}"
    lead = f"{number or 'Nothing'} grown. Meanings are compared, not texts. The riskiest change comes first."
    return page(title, lead, _diff_parts(changes, now, say))


def _risk(changes: Changes) -> Risk:
    return riskiest(change.risk for change in changes.grown)


def _diff_parts(changes: Mapping[str, Changes], now: Mapping[str, Surface], say: Say) -> Iterator[str]:
    ordered = sorted(changes.items(), key=lambda item: _risk(item[1]).rank)
    if len(ordered) > 1:
        rows = (
            (
                f'<a href="#agent-{number}">{safe(key)}</a>',
                badge(_risk(each)) if each.grown else "",
                *(str(len(getattr(each, side))) for side in _SIDES),
            )
            for number, (key, each) in enumerate(ordered)
        )
        yield table(("agent", "riskiest growth", *_SIDES), rows)
    for number, (key, each) in enumerate(ordered):
        yield f'<h2 id="agent-{number}">{safe(say(key))}</h2>'
        if not each:
            yield "<p>No difference.</p>"
        for side, (sign, above) in _SIDES.items():
            found: tuple[Change, ...] = getattr(each, side)
            if found:
                yield f"<h3>{safe(above)} ({len(found)})</h3>"
                yield table(("change", "risk", "tool", "where"), (_row(one, side, sign, say) for one in found))
        if key in now:
            yield folded("What it can reach now", "\n".join(agent_parts(key, now[key], say)))


def _row(change: Change, side: Side, sign: str, say: Say) -> tuple[str, str, str, str]:
    text = f'<span class="sign {side}">{sign}</span> {safe(say(change.text))}'
    # The label says what became possible, so it fits only what grew.
    label = f" {safe(change.risk.label)}" if side == "grown" else ""
    risk = badge(change.risk) + label if change.risk != NOTHING else ""
    return text, risk, safe(change.tool or ""), safe(say(str(change.origin))) if change.origin else ""
