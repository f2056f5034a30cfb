"""A small measuring kit: contestants run interleaved in one process, and the ratio of their minima counts.

The machine is assumed to be noisy. Every round gives each contestant one short slice of time, in rotating order, so a
disturbance hits all of them; the minimum over many rounds is the time without disturbance. The clock counts the CPU
time of this thread: everything raced here only computes, and other programs on the machine do not count. Every answer
is checked: once before the clock starts, and again on the last pass of every slice.
"""

import gc
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from msgspec import Struct

__all__ = [
    "PARTS",
    "Contestant",
    "Effort",
    "Row",
    "Target",
    "Timing",
    "VerdictError",
    "at_least",
    "at_most",
    "duration",
    "other_walls",
    "race",
    "spawn_race",
    "table",
    "versus_floor",
    "versus_peer",
]

# Each is a module with a function `measure`, in the order of the table.
PARTS = (
    *("decisions", "building", "startup", "check", "lint", "learn", "fetch", "files", "governed", "flow", "receipts"),
    *("programs", "inspection", "workers", "hooks", "wasm", "floods", "gateway", "nodes"),
)


class VerdictError(AssertionError):
    """A contestant gave a wrong verdict, so its time means nothing."""


class Effort(Struct, frozen=True):
    """How long to measure: rounds per race, and the length of one contestant's slice of a round."""

    rounds: int
    slice_ns: int
    processes: int

    @classmethod
    def full(cls) -> "Effort":
        return cls(rounds=60, slice_ns=2_000_000, processes=40)

    @classmethod
    def quick(cls) -> "Effort":
        return cls(rounds=12, slice_ns=1_000_000, processes=12)


class Contestant(Struct, frozen=True):
    """One way to answer the same questions: `read` turns its raw answer into the verdict, outside the clock."""

    name: str
    answer: Callable[[Any], Any]
    questions: Sequence[Any]
    read: Callable[[Any], Any] = bool


class Timing(Struct, frozen=True):
    """Nanoseconds for one question: the best slice, which the ratios use, and the median slice."""

    best: float
    median: float


def race(
    contestants: Sequence[Contestant], expected: Sequence[Any], effort: Effort, *, collecting: bool = False
) -> dict[str, Timing]:
    """Time all contestants on the same questions, slice by slice, and check all their verdicts.

    The garbage collector is off, so that no contestant pays for another's garbage, unless it is a part of the
    measurement.
    """
    slices: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    passes = {contestant.name: _passes(contestant, expected, effort) for contestant in contestants}
    was_collecting = gc.isenabled()
    gc.collect()
    if not collecting:
        gc.disable()
    try:
        for number in range(effort.rounds):
            start = number % len(contestants)
            for contestant in (*contestants[start:], *contestants[:start]):
                slices[contestant.name].append(_slice(contestant, expected, passes[contestant.name]))
    finally:
        if was_collecting:
            gc.enable()
    return {name: Timing(min(times), median(times)) for name, times in slices.items()}


def _passes(contestant: Contestant, expected: Sequence[Any], effort: Effort) -> int:
    _slice(contestant, expected, 1)  # the first pass fills lazy tables and checks every verdict
    once = _slice(contestant, expected, 1) * len(contestant.questions)
    return max(1, min(2_000, round(effort.slice_ns / once)))


def _slice(contestant: Contestant, expected: Sequence[Any], passes: int) -> float:
    answer, questions = contestant.answer, contestant.questions
    answers: list[Any] = []
    began = time.thread_time_ns()
    for _ in range(passes):
        answers = list(map(answer, questions))  # `map` adds less to each call than any loop written out
    took = time.thread_time_ns() - began
    verdicts = list(map(contestant.read, answers))
    if verdicts != list(expected):
        wrong = next(i for i, (got, want) in enumerate(zip(verdicts, expected, strict=True)) if got != want)
        raise VerdictError(f"{contestant.name} answers {verdicts[wrong]!r} to question {wrong}: {questions[wrong]!r}")
    return took / passes / len(questions)


def spawn_race(
    commands: Mapping[str, Sequence[str]],
    effort: Effort,
    report: Callable[[bytes], float] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Timing]:
    """Time complete processes, interleaved: by the wall clock, or by a value that `report` reads from their output."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    # Every installation has compiled modules, but the environment may say that none are written.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})}
    for number in range(effort.processes + 1):
        for name, command in commands.items():
            began = time.perf_counter_ns()
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            took = time.perf_counter_ns() - began
            if done.returncode != 0:
                raise VerdictError(
                    f"`{name}` ended with {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}"
                )
            if number:  # the first run of each warms bytecode and disk caches
                times[name].append(took if report is None else report(done.stdout))
    return {name: Timing(min(each), median(each)) for name, each in times.items()}


# Results -------------------------------------------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """The target of a ratio: at most a limit (against a floor), or at least one (against a peer)."""

    sense: Literal["at most", "at least"]
    limit: float

    def is_met_by(self, ratio: float) -> bool:
        return ratio <= self.limit if self.sense == "at most" else ratio >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.sense == 'at most' else '>='} {self.limit:.3g}"


def at_most(limit: float) -> Target:
    """The ratio must not be larger than this."""
    return Target("at most", limit)


def at_least(limit: float) -> Target:
    """The ratio must not be smaller than this."""
    return Target("at least", limit)


class Row(Struct, frozen=True):
    """One line of the table: licet, one other contestant, and their ratio.

    A floor's ratio is licet / floor (how much more licet costs); a peer's is peer / licet (how much faster licet is).
    `note` replaces the numbers if there are none.
    """

    what: str
    against: str
    licet: str = ""
    other: str = ""
    ratio: float | None = None
    target: Target | None = None
    note: str = ""

    @property
    def verdict(self) -> Literal["ok", "MISSED", "not measured", ""]:
        if self.target is None:
            return ""
        if self.ratio is None:
            return "not measured"
        return "ok" if self.target.is_met_by(self.ratio) else "MISSED"


def other_walls() -> tuple[str, list[str]] | None:
    """Another sandbox on this machine, with its command for `true`; None if there is none.

    That is Bubblewrap if it is installed, otherwise only namespaces, which do less.
    """
    bwrap, unshare = shutil.which("bwrap"), shutil.which("unshare")
    if bwrap:
        return "bwrap --unshare-all true", [bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]
    if unshare:
        words = ["--user", "--net", "--pid", "--mount", "--fork", "true"]
        return f"unshare {' '.join(words)}", [unshare, *words]
    return None


def versus_floor(what: str, floor: str, licet: Timing, other: Timing, target: Target | None = None) -> Row:
    """The time of licet as a multiple of the floor's time."""
    return Row(what, floor, duration(licet.best), duration(other.best), licet.best / other.best, target)


def versus_peer(what: str, peer: str, licet: Timing, other: Timing, target: Target | None = None) -> Row:
    """The time of the peer as a multiple of licet's time."""
    return Row(what, peer, duration(licet.best), duration(other.best), other.best / licet.best, target)


def duration(nanoseconds: float) -> str:
    """Format a time: three digits and a fitting unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size * 0.0995:
            return (
                f"{nanoseconds / size:.3g} {unit}" if nanoseconds < size * 995 else f"{nanoseconds / size:.0f} {unit}"
            )
    return f"{nanoseconds:.0f} ns"


def table(rows: Sequence[Row]) -> str:
    """Format all rows as one table; a repeated first column is left blank, and a note follows its verdict."""
    lines = [("", "against", "licet", "other", "ratio", "target", "")]
    previous = ""
    for row in rows:
        what, previous = ("" if row.what == previous else row.what), row.what
        ratio = (
            "" if row.ratio is None else f"{row.ratio:.{2 if row.ratio < 9.995 else 1 if row.ratio < 99.95 else 0}f}x"
        )
        lines.append((what, row.against, row.licet, row.other, ratio, str(row.target or ""), row.verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = "<<>>><<"
    return "\n".join(
        (
            "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)) + note
        ).rstrip()
        for line, note in zip(lines, ["", *(f"  {row.note}" for row in rows)], strict=True)
    )
