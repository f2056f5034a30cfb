"""Run the benchmarks and print one table of ratios, targets and verdicts."""

import argparse
import json
import platform
import sys
from collections.abc import Callable

from msgspec.structs import asdict

from benchmarks import (
    building,
    check,
    decisions,
    fetch,
    files,
    floods,
    flow,
    gateway,
    governed,
    hooks,
    inspection,
    learn,
    lint,
    nodes,
    programs,
    receipts,
    startup,
    wasm,
    workers,
)
from benchmarks.harness import Effort, Row, table

PARTS: dict[str, Callable[[Effort], list[Row]]] = {
    "decisions": decisions.measure,
    "building": building.measure,
    "startup": startup.measure,
    "check": check.measure,
    "lint": lint.measure,
    "learn": learn.measure,
    "fetch": fetch.measure,
    "files": files.measure,
    "governed": governed.measure,
    "flow": flow.measure,
    "receipts": receipts.measure,
    "programs": programs.measure,
    "inspection": inspection.measure,
    "workers": workers.measure,
    "hooks": hooks.measure,
    "wasm": wasm.measure,
    "floods": floods.measure,
    "gateway": gateway.measure,
    "nodes": nodes.measure,
}


def main() -> int:
    """Run the chosen benchmarks. Only with `--check` does the exit code report missed targets."""
    options = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    options.add_argument("part", nargs="*", choices=[[], *PARTS], help="which parts to run (all)")
    options.add_argument("--quick", action="store_true", help="fewer rounds: good enough to see what broke")
    options.add_argument("--check", action="store_true", help="exit 1 if a target is missed or could not be measured")
    options.add_argument("--json", action="store_true", help="print the rows as JSON")
    chosen = options.parse_args()
    effort = Effort.quick() if chosen.quick else Effort.full()
    rows: list[Row] = []
    for name in chosen.part or PARTS:
        print(f"· {name}", file=sys.stderr, flush=True)
        rows += PARTS[name](effort)
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


if __name__ == "__main__":
    sys.exit(main())
