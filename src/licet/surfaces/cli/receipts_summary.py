"""Counts calls and denied uses per day and agent."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from licet.backends.ledger.reader import LedgerReader
from licet.core.algebra.scope import visible
from licet.core.ledger.denials import DENIED, Checks, Tally
from licet.core.ledger.entry import VERDICTS, Row
from licet.surfaces.cli.receipts_filters import MOST_SHOWN, Wanted, check_text, in_body
from licet.surfaces.cli.receipts_text import Entry

_MOST_IN_JSON = 20  # different uses of one day


def days(reader: LedgerReader, wanted: Wanted, read: Callable[[Row], Entry]) -> list[dict[str, Any]]:
    """Count calls and denied uses per day and agent; the newest day first.

    Calls are counted by the columns of the ledger, denied uses from the bodies of the receipts.
    """
    counted: dict[tuple[str, str], dict[str, Any]] = {}
    for day, agent, verdict, count in reader.counts(**wanted.columns):
        one = counted.setdefault((str(day), str(agent)), dict.fromkeys(("calls", *VERDICTS), 0))
        one["calls"] += count
        one[str(verdict)] = one.get(str(verdict), 0) + count
    tallies = {key: Tally() for key in counted}
    inside: dict[tuple[str, str], list[int]] = {key: [0, 0] for key in counted}
    checks = Checks(True, wanted.denied_use or "*", wanted.capability)
    for entry in map(read, reader.containing(*in_body(checks), **wanted.columns)):
        key = entry["time"][:10], entry["agent"]
        events = list(checks.of(entry)) if key in tallies else ()
        for event in events:
            tallies[key].add(event)
        if events:
            inside[key][0] += 1
            inside[key][1] += entry["verdict"] == "allow"
    return [
        {
            "day": day,
            "agent": agent,
            **calls,
            "calls_with_denied_uses": inside[day, agent][0],
            "allowed_with_denied_uses": inside[day, agent][1],
            "denied_uses": tally.total,
            "most_denied": [
                {name: one[name] for name in ("capability", "reason", "count")} for one in tally.most(_MOST_IN_JSON)
            ],
        }
        for (day, agent), calls in counted.items()
        if (tally := tallies[day, agent]).total or wanted.checks is None
    ]


_COLUMNS = {
    "day": "day",
    "agent": "agent",
    "calls": "calls",
    "allow": "allowed",
    "ask": "asked",
    "deny": "denied",
    "calls_with_denied_uses": "with denied uses",
    "allowed_with_denied_uses": "of them allowed",
    "denied_uses": "denied uses",
}


def day_lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Format a summary as a table; the uses that were denied most often are below each line."""
    cells = [list(_COLUMNS.values()), *([visible(str(one[name])) for name in _COLUMNS] for one in found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    below: list[tuple[Sequence[dict[str, Any]], int]] = [
        ((), 0),
        *((one["most_denied"], one["denied_uses"]) for one in found),
    ]
    for line, (uses, total) in zip(cells, below, strict=True):
        yield "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        yield from (f"    {check_text({**use, 'kind': DENIED})}" for use in uses[:MOST_SHOWN])
        if rest := total - sum(use["count"] for use in uses[:MOST_SHOWN]):
            yield f"    and {rest} more"
