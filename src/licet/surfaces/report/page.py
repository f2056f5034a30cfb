"""The frame of every page: one file without scripts, fonts or anything from elsewhere, in light and dark.

All text comes from files that somebody else may have written. So everything goes through `safe`, and a content security
policy forbids scripts and requests even if something should slip through.
"""

from collections.abc import Iterable

from licet import __version__
from licet.core.review.risk import RISK_LEVELS, Risk
from licet.surfaces.map.draw import element, safe

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
