"""`licet check` on policy files that are made to be expensive, against parsing them with libyaml.

The target is the promise of docs/limits.md: at most 0.3 seconds plus 50 times the time of `yaml.compose`, and at most
200 MB. Both times are processor time, since the machine may be busy.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.harness import Effort, Row, VerdictError, at_most, duration
from benchmarks.large_policies import CASES

__all__ = ["measure"]

SECONDS, RATIO, MEGABYTES = 0.3, 50, 200

# Measured by the process itself: the value for a child includes the memory of the parent at the fork.
_PROGRAM = """
import sys, time
from licet.cli import main
try:
    main()
except SystemExit as ended:
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(ended.code, time.process_time(), peak, file=sys.stderr)
"""
# Their time goes into Python files next to the policy, which have their own limits; only their memory counts.
_SOURCES = ("large modules", "arguments that a tool has not", "tools of one module")
_QUICK = ("tools of the audit", "different tools and allows", "hosts", "one scalar", "unknown keys", "deep paths")


def measure(effort: Effort) -> list[Row]:
    """One row for the longest time and one for the most memory, over all files."""
    quick = effort == Effort.quick()
    times: list[tuple[float, str, float, float]] = []
    memory: list[tuple[int, str]] = []
    for name in _QUICK if quick else CASES:
        with tempfile.TemporaryDirectory() as folder:
            files = CASES[name]()
            for file, text in files.items():
                Path(folder, file).write_text(text)
            first = next(iter(files))
            seconds, megabytes = _checked(name, folder, first)
        memory.append((megabytes, name))
        if name not in _SOURCES:
            floor = _composed(files[first])
            times.append((max(seconds - SECONDS, 0) / floor, name, seconds, floor))
    ratio, name, seconds, floor = max(times)
    most, most_name = max(memory)
    return [
        Row(
            f"check, slowest file: {name}, beyond {SECONDS} s",
            "yaml.compose",
            duration(seconds * 1e9),
            duration(floor * 1e9),
            ratio,
            at_most(RATIO),
        ),
        Row(
            f"check, most memory: {most_name}",
            "the limit",
            f"{most} MB",
            f"{MEGABYTES} MB",
            most / MEGABYTES,
            at_most(1),
        ),
    ]


def _checked(name: str, folder: str, file: str) -> tuple[float, int]:
    program = [sys.executable, "-c", _PROGRAM, "check", file]
    ended = subprocess.run(program, check=True, capture_output=True, text=True, cwd=folder)
    code, seconds, peak = ended.stderr.splitlines()[-1].split()
    if code not in ("0", "1"):
        raise VerdictError(f"{name}: exit code {code}")
    return float(seconds), int(peak) // 1024


def _composed(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        try:
            if "[" * 1000 not in text:  # libyaml would run out of stack; licet stops before that
                yaml.compose(text, yaml.CSafeLoader)
        except yaml.YAMLError:
            pass
        best = min(best, time.process_time() - started)
    return max(best, 1e-6)
