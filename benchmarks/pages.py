"""The parts of pages that state speeds, as text: written from the record of one run, and from nothing else.

`scripts/reference.py` puts them into `benchmarks/README.md` and into docs/.
"""

from collections.abc import Sequence

from benchmarks.harness import PARTS, Row, table
from benchmarks.record import Record

DELAY, GROWTH = "50 ms at p99", "128 MB of growth"
PROXY = "FastMCP proxy, one middleware"
SAME = 1.15  # two sides that differ by less are called the same
# What docs/support.md quotes: how it is called there, the row, and what of it is compared.
QUOTED = (
    ("one decision about a host, 10 rules", "one host, 10 rules", ("floor", "vakt", "casbin", "cedarpy")),
    ("one decision about a host, 100,000 rules", "one host, 100,000 rules", ("floor",)),
    (
        "a whole governed call in memory, with receipts",
        "a whole governed call",
        ("the four steps by hand", "tenuo guard"),
    ),
    ("a durable call, 64 at once", "a durable call, 64 at once", ("a call that keeps nothing, one write and fsync",)),
    ("one call of a warm walled worker", "one call of a warm worker", ("python -I -S -c pass",)),
    (
        "a call in a worker of its own, started in advance",
        "one call of a parked worker, with time to think",
        ("python -I -S -c pass",),
    ),
    ("model-written Python, fresh interpreter", "model-written Python, fresh interpreter", ("python -I -S -c pass",)),
    ("`ctx.fetch` over a kept connection", "fetch a page, kept connection", ("httpx2 AsyncClient",)),
    ("`ctx.fs.read` of a small file", "read a small file", ("open().read()",)),
    ("`licet run -- true`", "licet run -- true", ("python -I -S -c pass",)),
    ("an echo through the gateway", "gateway: echo", ("the server alone", PROXY)),
    ("`import licet`", "import licet", ("import json, asyncio",)),
)
# What docs/comparison.md compares: how it is called there, the row, and with whom.
COMPARED = (
    ("one host, 10 rules", "one host, 10 rules", ("tenuo", "vakt", "casbin", "cedarpy")),
    ("one host, 1,000 rules", "one host, 1,000 rules", ("tenuo", "vakt", "casbin", "cedarpy")),
    (
        "a whole governed call, in memory",
        "a whole governed call",
        ("tenuo guard", "FastMCP, one middleware", "toolkit: kernel, recording", "toolkit: MCP gateway"),
    ),
    ("an echo through the gateway", "gateway: echo", ("the server alone", PROXY)),
    ("a result of 1 MB through the gateway", "gateway: result of 1 MB", (PROXY,)),
    ("50 echoes at once", "gateway: 50 echoes at once", (PROXY,)),
    ("a list of 200 tools", "gateway: list of 200 tools", (PROXY,)),
)
FLOORS = ("floor", "the four steps by hand", "python -I -S -c pass", "httpx2 AsyncClient", "open().read()",
          "the server alone", "import json, asyncio")  # fmt: skip


def parts(record: Record) -> dict[str, dict[str, str]]:
    """By page, named from docs/, the text of each part that is written from the record."""
    return {
        "../benchmarks/README.md": {"run": run(record), "results": results(record), "verdict": verdict(record)},
        "support.md": {"speed": speed(record), "floods": floods(record)},
        "comparison.md": {"speed": compared(record)},
    }


def run(record: Record) -> str:
    """Which run it was."""
    effort = " with `--quick`" if record.quick else ""
    source = f"of commit {record.commit} on {record.date} ({record.machine}, Python {record.python})"
    return f"{record.note or f'One run{effort} {source}.'}\n"


def results(record: Record) -> str:
    """The whole table."""
    return f"```text\n{table(record.all_rows())}\n```\n"


def verdict(record: Record) -> str:
    """How many targets were met, and which were not."""
    counted = [row for row in record.all_rows() if row.target is not None]
    met, missed, absent = (record.of_verdict(word) for word in ("ok", "MISSED", "not measured"))
    text = f"{len(met)} of {len(counted)} targets are met."
    if missed:
        text += f" Missed: {len(missed)}.\n\n" + "".join(
            f"- {_name(row)}: {_ratio(row)}, target {row.target}\n" for row in missed
        )
    if absent:
        text += f"{chr(10) if missed else ' '}Not measured: {len(absent)}, of " + _listed(absent) + ".\n"
    if without := [part for part in PARTS if part not in record.rows]:
        text += f"{chr(10) if missed or absent else ' '}Not in this record: {', '.join(without)}.\n"
    return text.rstrip("\n") + "\n"


def speed(record: Record) -> str:
    """What licet costs, for docs/support.md."""
    lines = ["| | licet | against |", "|---|---|---|"]
    for name, what, others in QUOTED:
        rows = [row for other in others if (row := record.row(what, other)) is not None and row.ratio is not None]
        words = "; ".join(
            f"{_ratio(row)} of {_against(row)}" if row.against in FLOORS else _faster(row) for row in rows
        )
        lines.append(f"| {name} | {next((row.licet for row in rows if row.licet), '')} | {words or 'not measured'} |")
    return "\n".join(lines) + "\n"


def floods(record: Record) -> str:
    """What hostile tools cost honest calls, for docs/support.md."""
    text = "While a hostile tool floods its host (`benchmarks floods`), honest calls of other sessions "
    rows = [row for row in record.rows.get("floods", ()) if row.ratio is not None]
    delays, growth = ([row for row in rows if row.against == against] for against in (DELAY, GROWTH))
    if not delays or not growth:
        return f"{text}were not measured.\n"
    slowest, largest = (max(found, key=lambda row: row.ratio or 0.0) for found in (delays, growth))
    text += f"took at most {slowest.licet} longer at the 99th percentile, "
    return f"{text}and the host grew by {largest.licet} at most.\n"


def compared(record: Record) -> str:
    """Who is faster, for docs/comparison.md."""
    lines = ["| | licet against | result |", "|---|---|---|"]
    for name, what, others in COMPARED:
        for number, other in enumerate(others):
            row = record.row(what, other)
            words = "not measured" if row is None or row.ratio is None else _result(row, row.ratio)
            lines.append(f"| {'' if number else name} | {other} | {words} |")
    return "\n".join(lines) + "\n"


def _result(row: Row, ratio: float) -> str:
    if row.against in FLOORS:
        return f"{_times(ratio)} of its time; our target, {row.target}, is {'met' if row.verdict == 'ok' else 'missed'}"
    if ratio >= SAME:
        return f"licet is {_times(ratio)} as fast"
    return "about the same" if ratio > 1 / SAME else f"**the other is {_times(1 / ratio)} as fast**"


def _faster(row: Row) -> str:
    ratio = row.ratio or 0.0
    if ratio >= SAME:
        return f"{_times(ratio)} as fast as {_against(row)}"
    return (
        f"about as fast as {_against(row)}" if ratio > 1 / SAME else f"{_against(row)} is {_times(1 / ratio)} as fast"
    )


def _against(row: Row) -> str:
    words = {"floor": "a set look-up", "floor that cuts keys": "a set look-up"}
    is_command = row.against.startswith(("python", "import", "open"))
    return f"`{row.against}`" if is_command else words.get(row.against, row.against)


def _name(row: Row) -> str:
    return f"{row.what}, against {row.against}" if row.against else row.what


def _listed(rows: Sequence[Row]) -> str:
    return "; ".join(dict.fromkeys(row.what for row in rows))


def _ratio(row: Row) -> str:
    return "" if row.ratio is None else _times(row.ratio)


def _times(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}x"
