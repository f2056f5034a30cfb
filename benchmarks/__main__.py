"""Run the benchmarks and print one table of ratios, targets and verdicts."""

import argparse
import json
import platform
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec.structs import asdict

from benchmarks.compare import compare, compared_table, is_named
from benchmarks.harness import PARTS, Effort, Row, at_most, table
from benchmarks.record import FILE, read_record, record_of, write_record

RUNS = 3


def main() -> int:
    """Run the chosen benchmarks. Only with `--check` does the exit code report missed targets."""
    options = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    options.add_argument("part", nargs="*", choices=[[], *PARTS], help="which parts to run (all)")
    options.add_argument("--only", action="append", default=[], metavar="ROW", help="rows with this in their name")
    options.add_argument("--quick", action="store_true", help="fewer rounds: good enough to see what broke")
    options.add_argument("--check", action="store_true", help="exit 1 if a target is missed or could not be measured")
    options.add_argument("--json", action="store_true", help="print the rows as JSON")
    options.add_argument("--write", action="store_true", help="keep a run of all parts as the record of the pages")
    options.add_argument("--against", type=Path, metavar="DIR", help="compare with another checkout, in turns")
    options.add_argument("--runs", type=int, default=RUNS, help=f"how often each of both runs ({RUNS})")
    chosen = options.parse_args()
    if chosen.write and (chosen.part or chosen.only or chosen.against):
        options.error("--write is for one complete run: without parts, --only and --against")
    parts = chosen.part or parts_with(chosen.only)
    if not parts:
        options.error(f"no row of the record has {' or '.join(chosen.only)} in its name: name the part too")
    if chosen.against is not None:
        compared = compare(chosen.against.resolve(), parts, chosen.only, runs=chosen.runs, quick=chosen.quick)
        print(compared_table(compared))
        return 1 if chosen.check and any(row.is_slower for row in compared) else 0
    measured = measure(parts, chosen.only, Effort.quick() if chosen.quick else Effort.full())
    rows = [row for found in measured.values() for row in found]
    if chosen.write:
        write_record(record_of(measured, quick=chosen.quick), FILE)
        print(f"wrote {FILE}: `make reference` writes the pages", file=sys.stderr)
    failed = [row for row in rows if row.verdict in ("MISSED", "not measured")]
    if chosen.json:
        shown = [{**asdict(row), "target": str(row.target or ""), "verdict": row.verdict} for row in rows]
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        targets = sum(row.target is not None for row in rows)
        print(f"{table(rows)}\n\n{targets - len(failed)} of {targets} targets met", end=" · ")
        print(f"Python {platform.python_version()}, {platform.machine()}")
        print("against a floor the ratio is licet / floor, against a peer it is peer / licet; times are minima")
    return 1 if chosen.check and failed else 0


def parts_with(words: Sequence[str]) -> list[str]:
    """The parts that have rows with one of these words in their names, as the record knows them; all without words."""
    if not words:
        return list(PARTS)
    rows = read_record().rows
    return [part for part in PARTS if any(is_named(row.what, words) for row in rows.get(part, ()))]


def measure(parts: Sequence[str], words: Sequence[str], effort: Effort) -> Mapping[str, Sequence[Row]]:
    """The rows of some parts, by part. A part that fails is a row that says so: the other parts are measured."""
    found: dict[str, Sequence[Row]] = {}
    for part in parts:
        print(f"· {part}", file=sys.stderr, flush=True)
        try:
            rows: list[Row] = import_module(f"benchmarks.{part}").measure(effort)
        except Exception as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
            found[part] = [Row(f"all rows of {part}", "", target=at_most(1), note=text[:200])]
        else:
            found[part] = [row for row in rows if is_named(row.what, words)]
    return found


if __name__ == "__main__":
    sys.exit(main())
