"""The cost of starting: importing licet, and the commands that a user waits for. Complete processes, interleaved."""

import os
import sys
from pathlib import Path

from benchmarks.harness import Effort, Row, VerdictError, at_most, spawn_race, versus_floor

__all__ = ["measure"]

IMPORT_TARGET, HELP_TARGET, CHECK_TARGET, CHECK_ALL_TARGET = at_most(0.5), at_most(7), at_most(18), at_most(32)
BARE = "python -c pass"
ROOT = Path(__file__).resolve().parent.parent

# The child times its own import, so that the start of Python is not included and cannot hide a difference.
_IMPORT = "import time; began = time.perf_counter_ns(); import {}; print(time.perf_counter_ns() - began)"


def measure(effort: Effort) -> list[Row]:
    """Every row about starting."""
    return [*_imports(effort), *_commands(effort)]


def _imports(effort: Effort) -> list[Row]:
    commands = {name: [sys.executable, "-c", _IMPORT.format(name)] for name in ("licet", "json, asyncio")}
    times = spawn_race(commands, effort, report=float)
    return [versus_floor("import licet", "import json, asyncio", times["licet"], times["json, asyncio"], IMPORT_TARGET)]


def _commands(effort: Effort) -> list[Row]:
    licet = os.fspath(Path(sys.executable).with_name("licet"))
    every = sorted((ROOT / "examples").rglob("*.yaml"))
    manifests = [
        os.fspath(path) for path in every if "tests" not in path.relative_to(ROOT).parts
    ]  # those are cases, and no policies
    commands = [
        ("licet --help", [licet, "--help"], HELP_TARGET),
        ("licet check, one agent", [licet, "check", manifests[0]], CHECK_TARGET),
        ("licet check, the examples", [licet, "check", *manifests], CHECK_ALL_TARGET),
    ]
    rows = []
    for what, command, target in commands:
        try:
            times = spawn_race({BARE: [sys.executable, "-c", "pass"], what: command}, effort)
        except (OSError, VerdictError) as wrong:
            rows.append(Row(what, BARE, target=target, note=f"{wrong}".strip().rpartition("\n")[2]))
        else:
            rows.append(versus_floor(what, BARE, times[what], times[BARE], target))
    return rows
