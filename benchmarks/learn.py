"""`licet learn` on long recordings: from the file to the lines of a policy, against decoding the same lines.

A tenth of the events takes a tenth of the time: that is the second row. The processor time counts, since the machine
may be busy.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Effort, Row, VerdictError, at_most, duration
from licet.core.review.recording_lines import RecordingStart, Touch, recording_line, touch
from licet.core.review.sensitive import Whereabouts
from licet.learn.drafted_policy import read_recordings
from licet.learn.learn import Learned, Surroundings, learn

__all__ = ["measure"]

MANY, FEW = 1_000_000, 100_000
TARGET, LINEAR = at_most(20), at_most(1.5)
WHERE = Whereabouts("/home/me/project", "/home/me")
START = RecordingStart(source="program", started=1, command=("make",), workdir=WHERE.workdir, home=WHERE.home)
# 4 events for each path; 40 files in each directory, 25 directories in each of these; some keys, some hosts.
_PER_PATH, _FILES, _DIRECTORIES = 4, 40, 25


def measure(effort: Effort) -> list[Row]:
    """One row for a million events, and one for how the time grows."""
    with tempfile.TemporaryDirectory() as folder:
        many, few = Path(folder, "many.jsonl"), Path(folder, "few.jsonl")
        _write(many, MANY)
        _write(few, FEW)
        rounds = max(1, effort.processes // 12)
        taken = {"many": float("inf"), "few": float("inf"), "decode": float("inf")}
        for _ in range(rounds):
            taken["decode"] = min(taken["decode"], _timed(lambda: _decode(many)))
            taken["many"] = min(taken["many"], _timed(lambda: _check(_learned(many), MANY)))
            taken["few"] = min(taken["few"], _timed(lambda: _check(_learned(few), FEW)))
    shown = {name: duration(seconds * 1e9) for name, seconds in taken.items()}
    per_event = taken["many"] / MANY / (taken["few"] / FEW)
    return [
        Row(
            "learn, a million events",
            "decoding the lines",
            shown["many"],
            shown["decode"],
            taken["many"] / taken["decode"],
            TARGET,
        ),
        Row("learn, an event of a million", "one of 100,000", shown["many"], shown["few"], per_event, LINEAR),
    ]


def _write(path: Path, events: int) -> None:
    with path.open("wb") as file:
        file.write(recording_line(START))
        for number in range(events):
            file.write(recording_line(Touch(time=number, call=f"process {number % 50}", tool="make", use=_use(number))))


def _use(number: int) -> str:
    if number % 1000 == 0:
        return "fs:read:/home/me/.ssh/id_ed25519" if number % 3000 else "network:https:get@index.example:443"
    place = number // _PER_PATH
    directory = place // _FILES
    return f"fs:read:/home/me/project/{directory // _DIRECTORIES}/{directory % _DIRECTORIES}/{place % _FILES}.py"


def _learned(path: Path) -> Learned:
    (found,) = read_recordings([path], Path("licet.yaml"), False)
    return learn(found.recorded, Surroundings(WHERE))


def _check(found: Learned, events: int) -> None:
    """Every directory is covered by the working directory, the host is allowed, and the key is not."""
    rules = [(line.kind, str(line.rule)) for line in found.lines]
    expected = [
        ("allow", f"fs:read:{WHERE.workdir}"),
        ("allow", "network:read:https://index.example:443"),
        ("sensitive", "fs:read:/home/me/.ssh/id_ed25519"),
    ]
    paths = events // _PER_PATH
    if rules != expected or not paths * 0.9 < len(found.wanted) <= paths + 1:
        raise VerdictError(f"learn: {rules[:5]}, {len(found.wanted)} uses")


def _decode(path: Path) -> None:
    with path.open("rb") as file:
        next(file)
        for line in file:
            touch(line)


def _timed(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
