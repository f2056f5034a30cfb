"""Two checkouts of licet against each other: the same benchmarks in both, in turns, so that a busy hour slows both.

Each checkout runs its own benchmarks in its own environment (`make bench` makes it). What is compared is licet's own
time in a row, the least of all runs, and beside it the ratio of that row, which says whether the other side of the race
has changed too.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benchmarks.record import ROOT

ALLOWED = 1.05  # a benign call may cost this much more
_UNITS = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}


class Times(Struct):
    """What the runs of one checkout said of a row."""

    times: list[float]  # of licet, in nanoseconds
    ratios: list[float]


class Compared(Struct, frozen=True):
    """One row in both checkouts."""

    what: str
    against: str
    here: Times
    there: Times

    @property
    def change(self) -> float:
        """Licet's time here as a multiple of that there; 0 if there is none."""
        return min(self.here.times) / min(self.there.times) if self.here.times and self.there.times else 0.0

    @property
    def is_slower(self) -> bool:
        return self.change > ALLOWED


def nanoseconds(text: str) -> float | None:
    """A time as rows have it; None if it is none, such as a size."""
    number, _, unit = text.partition(" ")
    try:
        return float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        return None


def compare(there: Path, parts: Sequence[str], words: Sequence[str], *, runs: int, quick: bool) -> list[Compared]:
    """Run the parts in both checkouts in turns, and compare the rows whose names have one of the words."""
    python_of(there)  # raises before anything was measured
    measured: dict[Path, dict[tuple[str, str], Times]] = {ROOT: {}, there: {}}
    for number in range(runs):
        order = (ROOT, there) if number % 2 == 0 else (there, ROOT)
        for checkout in order:
            print(f"· run {number + 1} of {runs}: {checkout}", file=sys.stderr, flush=True)
            add_rows(measured[checkout], run_rows(checkout, parts, quick=quick))
    return [
        Compared(*key, times, measured[there][key])
        for key, times in measured[ROOT].items()
        if key in measured[there] and is_named(key[0], words)
    ]


def is_named(what: str, words: Iterable[str]) -> bool:
    """Whether a row has one of these words in its name; any row, if there are none."""
    words = [word.casefold() for word in words]
    return not words or any(word in what.casefold() for word in words)


def run_rows(checkout: Path, parts: Sequence[str], *, quick: bool) -> list[Mapping[str, Any]]:
    """The rows that the benchmarks of a checkout print."""
    command = [str(python_of(checkout)), "-m", "benchmarks", "--json", *(["--quick"] if quick else []), *parts]
    done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"the benchmarks of {checkout} ended with {done.returncode}")
    rows: list[Mapping[str, Any]] = json.loads(done.stdout)
    return rows


def python_of(checkout: Path) -> Path:
    """The interpreter of a checkout, which has that checkout's licet."""
    if checkout == ROOT:
        return Path(sys.executable)
    own = [checkout / name / "bin" / "python" for name in (".venv-bench", ".venv")]
    found = next((path for path in own if path.exists()), None)
    if found is None:
        raise SystemExit(f"{checkout} has no environment of its own: run `make .venv` there")
    asked = [str(found), "-c", "import licet; print(licet.__file__)"]
    said = subprocess.run(asked, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    if not Path(said).is_relative_to(checkout):
        raise SystemExit(f"the environment of {checkout} has another licet: {said}")
    return found


def add_rows(measured: dict[tuple[str, str], Times], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add the rows of one run."""
    for row in rows:
        times = measured.setdefault((row["what"], row["against"]), Times([], []))
        if (took := nanoseconds(row["licet"])) is not None:
            times.times.append(took)
        if row["ratio"] is not None:
            times.ratios.append(row["ratio"])


def compared_table(rows: Sequence[Compared]) -> str:
    """The rows as a table: times here and there, how much more, and the medians of the ratios."""
    lines: list[tuple[str, ...]] = [("", "against", "here", "there", "here/there", "ratio here", "ratio there", "")]
    for row in rows:
        ratios = [f"{median(side.ratios):.2f}x" if side.ratios else "" for side in (row.here, row.there)]
        times = [_shown(side.times) for side in (row.here, row.there)]
        change = f"{row.change:.3f}" if row.change else ""
        lines.append((row.what, row.against, *times, change, *ratios, "SLOWER" if row.is_slower else ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{'<' if number in (0, 1, 7) else '>'}{width}}"
                  for number, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )  # fmt: skip


def _shown(times: Sequence[float]) -> str:
    from benchmarks.harness import duration

    return duration(min(times)) if times else ""
