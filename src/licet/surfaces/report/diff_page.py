"""The page of `licet diff --html`: what grew, shrank and changed for each agent, riskiest first, and the new map."""

from collections.abc import Callable, Iterator, Mapping

from licet.core.review.changes import Change, Changes, Side
from licet.core.review.risk import NOTHING, Risk, riskiest
from licet.core.review.surface import Surface
from licet.surfaces.map.draw import safe
from licet.surfaces.report.page import badge, folded, page, table
from licet.surfaces.report.surface_page import agent_parts

Say = Callable[[str], str]
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
    return page(title, lead, _parts(changes, now, say))


def _risk(changes: Changes) -> Risk:
    return riskiest(change.risk for change in changes.grown)


def _parts(changes: Mapping[str, Changes], now: Mapping[str, Surface], say: Say) -> Iterator[str]:
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
        for side, (sign, heading) in _SIDES.items():
            found: tuple[Change, ...] = getattr(each, side)
            if found:
                yield f"<h3>{safe(heading)} ({len(found)})</h3>"
                yield table(("change", "risk", "tool", "where"), (_row(one, side, sign, say) for one in found))
        if key in now:
            yield folded("What it can reach now", "\n".join(agent_parts(key, now[key], say)))


def _row(change: Change, side: Side, sign: str, say: Say) -> tuple[str, str, str, str]:
    text = f'<span class="sign {side}">{sign}</span> {safe(say(change.text))}'
    # The label says what became possible, so it fits only what grew.
    label = f" {safe(change.risk.label)}" if side == "grown" else ""
    risk = badge(change.risk) + label if change.risk != NOTHING else ""
    return text, risk, safe(change.tool or ""), safe(say(str(change.origin))) if change.origin else ""
