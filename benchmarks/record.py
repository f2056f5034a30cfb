"""The record of one complete run: `record.json`, from which every page that states a speed is written.

A page never has a figure of its own, so it cannot say more than the run showed. `python -m benchmarks --write` writes
the record, and `make reference` the pages (`pages.py`).
"""

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.harness import Row

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("record.json")


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured, by which code, where and when; the rows by part."""

    commit: str  # of the code that was measured; with `+` if files had been changed since
    date: str
    machine: str
    python: str
    quick: bool
    note: str = ""  # about a record that is not of one run
    rows: Mapping[str, Sequence[Row]]

    def all_rows(self) -> list[Row]:
        """The rows of all parts, in the order of their table."""
        return [row for rows in self.rows.values() for row in rows]

    def row(self, what: str, against: str = "") -> Row | None:
        """The row of a name, and of what it is compared with if that is named."""
        return next((row for row in self.all_rows() if row.what == what and against in ("", row.against)), None)

    def of_verdict(self, verdict: str) -> list[Row]:
        """The rows with a target that ended in this way: `ok`, `MISSED` or `not measured`."""
        return [row for row in self.all_rows() if row.verdict == verdict]


def record_of(rows: Mapping[str, Sequence[Row]], *, quick: bool, now: datetime | None = None) -> Record:
    """The record of a run that has just ended, on this machine."""
    moment = datetime.now(UTC) if now is None else now
    return Record(
        commit=_commit(),
        date=f"{moment:%Y-%m-%d}",
        machine=platform.machine(),
        python=platform.python_version(),
        quick=quick,
        rows={part: [_named(row) for row in found] for part, found in rows.items()},
    )


def read_record(file: Path = FILE) -> Record:
    """The record that pages are written from."""
    return msgspec.json.decode(file.read_bytes(), type=Record)


def write_record(record: Record, file: Path = FILE) -> None:
    """Put a record in place of the one before, one row a line."""
    about = msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(record), Record))  # whole limits are floats too
    parts = about.pop("rows")
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items()]
    shown = ",\n  ".join(f"{json.dumps(part)}: [\n   {_lines(rows)}\n  ]" for part, rows in parts.items())
    head = ",\n ".join(lines)
    file.write_text(f'{{\n {head},\n "rows": {{\n  {shown}\n }}\n}}\n', "utf-8")


def _lines(rows: Iterable[object]) -> str:
    return ",\n   ".join(json.dumps(row, ensure_ascii=False) for row in rows)


def _named(row: Row) -> Row:
    """A row without names of this machine: a note may quote an error with a path of it."""
    note = row.note.replace(str(ROOT), "").replace(str(Path.home()), "~")
    return msgspec.structs.replace(row, note=note)


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    if not (ROOT / ".git").exists():
        return "unknown"  # a copy of the sources
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    own = {"benchmarks/record.json", "benchmarks/README.md"}
    is_changed = any(line[3:] not in own for line in changed.splitlines())
    return git("rev-parse", "--short=8", "HEAD") + "+" * is_changed
