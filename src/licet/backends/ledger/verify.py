"""Verifies a ledger file: its entries and checkpoints, and the tables and indexes around them.

- `core.ledger.verify` checks the entries and the checkpoints.
- SQLite checks its own file, and that no index leaves out an entry: a search reads an index first.
- The tables `ledger` and `chains`, from which a writer continues, must match the entries.
- If the private key can be read, the MAC over the end of the ledger is checked too.
- A ledger with a key has an entry, since the key is made with the first one; next to the key is the last checkpoint.
- No two calls have the same id. Calls that began and have no receipt are listed.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from licet.backends.keys import SigningKey, check_signature, key_if_readable
from licet.backends.ledger.reader import ForeignTables, LedgerReader
from licet.backends.ledger.state import (
    COLUMNS,
    OTHER_ROWS,
    STATE,
    LastCheckpoint,
    State,
    Tagging,
    checkpoint_path,
    read_last,
    wrong_column,
)
from licet.core.ledger.entry import Checkpoint, Row
from licet.core.ledger.verify import Finding, Outcome, verify
from licet.guard.ports import LedgerUnavailable

_ENDS = "SELECT agent, session, sequence, hash, number FROM chains ORDER BY number"
_TWICE = """
SELECT max(number), id, min(number) FROM entries GROUP BY id
HAVING count(*) > count(DISTINCT kind) OR min(agent) != max(agent) OR min(session) != max(session)
    OR min(tool) != max(tool) OR min(time) != max(time)
ORDER BY 1
"""
_LEFT_OUT = re.compile(r"row (\d+) missing from index (\w+)")
_MOST = 80  # characters of a value in a message
_PROGRESS_EVERY = 1000  # entries

Progress = Callable[[int], None]


def verify_ledger(path: Path, key: str, kept: Iterable[Checkpoint] = (), progress: Progress | None = None) -> Outcome:
    """Verify a ledger file against a public key, and against checkpoints that were kept elsewhere.

    The checkpoint in the file next to the key counts as one that was kept. It is read first, because it never covers
    more than the database has at that time.
    """
    last = read_last(checkpoint_path(path))
    kept = [*kept, last.checkpoint] if last is not None and last.facts.size else list(kept)
    try:
        with LedgerReader(path) as reader:
            outcome = _entries(reader, key, kept, progress)
            if outcome.finding is None and last is not None:
                outcome = replace(outcome, finding=_removed_checkpoint(reader, last))
            if outcome.finding is not None and outcome.finding.kind != "clock":
                return outcome
            around = damage(reader) or wrong_end(reader, outcome, key) or _empty(outcome)
            if around is not None:
                return replace(outcome, finding=around)
            private = key_if_readable(os.path.splitext(path)[0] + ".key")
            if private is not None and private.public == key:
                outcome = check_tag(reader, outcome, private)
            if outcome.finding is None or outcome.finding.kind == "clock":
                found = _missing_last(path, outcome, last) or used_twice(reader) or outcome.finding
                outcome = replace(outcome, unknown=reader.unknown(), finding=found)
            return outcome
    except ForeignTables as wrong:  # none of its entries is read then
        return Outcome(0, 0, 0, "", "", Finding("column", 1, f"no entry was read: {wrong}"))


def _entries(reader: LedgerReader, key: str, kept: list[Checkpoint], progress: Progress | None) -> Outcome:
    rows = reader.entries() if progress is None else _reporting(reader.entries(), progress)
    try:
        return verify(rows, reader.checkpoints(), key=key, check=check_signature, kept=kept)
    except LedgerUnavailable as wrong:
        seen = _count_readable(reader)
        return Outcome(seen, 0, 0, reader.ledger, "", Finding("edited", seen + 1, str(wrong)))


def _reporting(rows: Iterator[Row], progress: Progress) -> Iterator[Row]:
    for seen, row in enumerate(rows, 1):
        if not seen % _PROGRESS_EVERY:
            progress(seen)
        yield row


def _count_readable(reader: LedgerReader) -> int:
    """How many entries come before the one that cannot be read."""
    seen = 0
    with suppress(LedgerUnavailable):
        for _ in reader.entries():
            seen += 1
    return seen


def _removed_checkpoint(reader: LedgerReader, last: LastCheckpoint) -> Finding | None:
    """A checkpoint that was signed, while the file has neither it nor a newer one."""
    newest = max((checkpoint.size for checkpoint in reader.checkpoints()), default=0)
    if newest >= last.facts.size:
        return None
    text = "the checkpoint that covers them was removed from the file" if newest else "no checkpoint covers any entry"
    return Finding("unsigned", newest + 1, text, until=last.facts.size)


def _empty(outcome: Outcome) -> Finding | None:
    """A ledger without entries, although somebody has its key."""
    if outcome.entries:
        return None
    text = "there is none, and the key of a ledger is made with its first entry: all entries were removed"
    return Finding("missing", 1, text)


def _missing_last(path: Path, outcome: Outcome, last: LastCheckpoint | None) -> Finding | None:
    """The file with the last checkpoint, if it is not next to the key. Of a copy, neither has to be there."""
    base = os.path.splitext(path)[0]
    if last is None and os.path.lexists(f"{base}.key"):
        text = f"{base}.head is missing, which has the last checkpoint, so entries after it may have been removed"
        return Finding("checkpoint", outcome.entries, f"{text}: calls are refused until it is put back")
    return None


def used_twice(reader: LedgerReader) -> Finding | None:
    """Report an id that two calls have. A call has at most one decision and one receipt, which agree about it."""
    found = reader.tables(_TWICE)
    if not found:
        return None
    number, name, first = found[0]
    text = f"its id is also that of another call, see entry {first}; `licet receipts show` shows both"
    if len(found) > 1:
        text += f"; so it is with {len(found) - 1:,} more {'id' if len(found) == 2 else 'ids'}"
    return Finding("twice", int(str(number)), text, str(name))


# Around the entries -----------------------------------------------------------------------------------------------


def damage(reader: LedgerReader) -> Finding | None:
    """Return the damage that SQLite finds in its file; None if there is none."""
    size = reader.size
    try:
        report = reader.tables("PRAGMA integrity_check(1)")
    except sqlite3.Error as error:
        return Finding("edited", 1, f"the file is damaged: {error}", until=size)
    text = str(report[0][0])
    if text == "ok":
        return None
    if found := _LEFT_OUT.search(text):
        return Finding("column", int(found[1]), f"a search does not find it: the index {found[2]} leaves it out")
    return Finding("edited", 1, f"the file is damaged: {' '.join(text.split())}", until=size)


def wrong_end(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    """Report where the tables `ledger` and `chains` do not match the entries, so that the next entry would not link."""
    try:
        return _wrong_state(reader, outcome, key) or _wrong_chains(reader, outcome)
    except sqlite3.Error as error:
        return Finding("edited", 1, f"the tables around the entries cannot be read: {error}", until=outcome.entries)


def check_tag(reader: LedgerReader, outcome: Outcome, key: SigningKey) -> Outcome:
    """Check the MAC over the end of a ledger that is otherwise right."""
    for *row, _ in _states(reader):
        if wrong_column(row) is not None:
            break  # `wrong_end` has reported it
        if not Tagging(key).wrong(State(*row)):
            return replace(outcome, tagged=True)
        text = "the MAC over the end of the ledger is wrong: it was changed without the key"
        if outcome.entries > outcome.signed:  # only the MAC covers those
            return replace(outcome, finding=Finding("unsigned", outcome.signed + 1, text, until=outcome.entries))
        return replace(outcome, finding=Finding("column", 1, text, until=outcome.entries))
    return outcome


def _states(reader: LedgerReader) -> Sequence[tuple[Any, ...]]:
    return reader.tables(STATE)


def _wrong_state(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    rows = _states(reader)
    if not outcome.entries and not rows:  # nothing was ever written
        return None
    if not rows:
        return Finding("column", 1, "the table `ledger` is empty, and there are entries", until=outcome.entries)
    if len(rows) > 1 or rows[0][-1] != 1:
        return Finding("column", 1, OTHER_ROWS, until=outcome.entries)
    row = rows[0][:-1]
    ((signed,),) = reader.tables("SELECT coalesce(max(size), 0) FROM checkpoints")
    true = {"size": outcome.entries, "frontier": outcome.frontier, "recorded": outcome.recorded, "signed": signed}
    if outcome.entries:  # without any entry, nothing else has the id and the key
        true |= {"id": outcome.ledger, "key": key}
    for name, value in zip(COLUMNS, row, strict=True):
        if name in true and value != true[name]:
            text = (
                f"the table `ledger` says {name} {_short(value)}, the entries and checkpoints say {_short(true[name])}"
            )
            return Finding("column", 1, text, until=outcome.entries)
    wrong = wrong_column(row)
    if wrong is None and not row[-1]:
        wrong = "the MAC over the end of the ledger was removed"
    return None if wrong is None else Finding("column", 1, wrong, until=outcome.entries)


def _wrong_chains(reader: LedgerReader, outcome: Outcome) -> Finding | None:
    stored = {(agent, session): end for agent, session, *end in reader.tables(_ENDS)}
    for session, tail in outcome.ends.items():
        if (end := stored.pop(session, None)) != [*tail]:
            text = f"the table `chains` says that its session ends {_end(end)}, the entries say {_end(tail)}"
            return Finding("column", tail.number, text)
    for agent, name in stored:
        text = f"the table `chains` has a session {_short(name)} of {_short(agent)}, the entries have none"
        return Finding("column", 1, text, until=outcome.entries)
    return None


def _end(end: Sequence[object] | None) -> str:
    if end is None:
        return "nowhere"
    sequence, digest, number = end
    return f"with entry {_short(number)}, number {_short(sequence)} of it, hash {_short(digest)}"


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else ascii(value)
    return text if len(text) <= _MOST else text[:_MOST] + "…"
