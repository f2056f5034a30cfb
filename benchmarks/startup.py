"""What it costs to start: importing licet, and the commands a person waits for. Whole processes, interleaved."""

import os
import sys
from pathlib import Path

from benchmarks.harness import Effort, Row, at_most, spawn_race, versus_floor

__all__ = ["measure"]

IMPORT_TARGET, HELP_TARGET, CHECK_TARGET = at_most(1.5), at_most(10), at_most(18)
ROOT = Path(__file__).resolve().parent.parent

# The child times its own import, so that starting Python is not part of it and cannot flatter the ratio.
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
    manifests = [os.fspath(path) for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "help": [licet, "--help"],
        "check": [licet, "check", *manifests],
    }
    times = spawn_race(commands, effort)
    return [
        versus_floor("licet --help", "python -c pass", times["help"], times["bare"], HELP_TARGET),
        versus_floor("licet check, the examples", "python -c pass", times["check"], times["bare"], CHECK_TARGET),
    ]
