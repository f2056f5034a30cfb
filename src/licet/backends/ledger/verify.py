"""Whether the file around the entries of a ledger is what licet makes: its tables, and what they are searched by.

Verification reads every entry from its table. A search reads an index first, and one that was tampered with leaves
entries out; SQLite itself can tell. A writer goes on from what the tables `ledger` and `chains` say; that follows from
the entries, and has to be what they say.

The reading half of the composition root: where the ledger of a workspace is, and holding it to a public key.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from licet.backends.keys import SigningKey, check_signature, key_if_readable
from licet.backends.ledger.parts import Parts, worthwhile
from licet.backends.ledger.reader import ForeignTables, LedgerReader
from licet.backends.ledger.state import (
    COLUMNS,
    OTHER_ROWS,
    STATE,
    State,
    Tagging,
    head_beside,
    may_lack_tag,
    misshapen,
    read_mark,
)
from licet.core.ledger.entry import Head
from licet.core.ledger.linked import Columns, Finding, Outcome
from licet.core.ledger.verify import verify, verify_joined
from licet.guard.ports import LedgerUnavailable

_STATE_UNTAGGED = "SELECT id, key, size, frontier, recorded, signed, signed_at, x'', one FROM ledger LIMIT 2"
_ENDS = "SELECT agent, session, sequence, hash, number FROM chains ORDER BY number"
_LEFT_OUT = re.compile(r"row (\d+) missing from index (\w+)")
_TAGS_SINCE = 2  # format
_MOST = 80  # characters of what a table says


def damage(path: str) -> Finding | None:
    """What is wrong with the file around the entries; None if nothing is."""
    with LedgerReader(path) as reader:
        size = reader.size
        try:
            told = reader.tables("PRAGMA integrity_check(1)")
        except sqlite3.Error as error:
            return Finding("edited", 1, f"the file is damaged: {error}", until=size)
    text = str(told[0][0])
    if text == "ok":
        return None
    if found := _LEFT_OUT.search(text):
        return Finding("column", int(found[1]), f"a search does not find it: the index {found[2]} leaves it out")
    return Finding("edited", 1, f"the file is damaged: {' '.join(text.split())}", until=size)


def gone_astray(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    """Where the next entry would not follow those that are there; None if it would.

    The reader is the one that the entries were read with: another would see what was written meanwhile.
    """
    try:
        return _other_state(reader, outcome, key) or _other_ends(reader, outcome)
    except sqlite3.Error as error:
        return Finding("edited", 1, f"the tables around them cannot be read: {error}", until=outcome.entries)


def held_to_tag(reader: LedgerReader, outcome: Outcome, key: SigningKey) -> Outcome:
    """Hold the end of a ledger that is in order otherwise to the tag that only the holder of its key can make."""
    for *row, _ in _said(reader):
        if misshapen(row) is not None:
            break  # it was told already
        state = State(*row)
        if not Tagging(key).wrong(state):
            return outcome._replace(tagged=bool(state.tag))
        text = "nobody who has the key has left the ledger so: its tag is another"
        if outcome.entries > outcome.signed:  # of those, only the tag tells
            return outcome._replace(finding=Finding("unsigned", outcome.signed + 1, text, until=outcome.entries))
        return outcome._replace(finding=Finding("column", 1, text, until=outcome.entries))
    return outcome


def _said(reader: LedgerReader) -> Sequence[tuple[Any, ...]]:
    return reader.tables(STATE if reader.version >= _TAGS_SINCE else _STATE_UNTAGGED)


def _other_state(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    rows = _said(reader)
    if not outcome.entries and not rows:  # nothing was ever written
        return None
    if not rows:
        return Finding("column", 1, "the table `ledger` is empty, and there are entries", until=outcome.entries)
    if len(rows) > 1 or rows[0][-1] != 1:
        return Finding("column", 1, OTHER_ROWS, until=outcome.entries)
    row = rows[0][:-1]
    ((signed,),) = reader.tables("SELECT coalesce(max(size), 0) FROM heads")
    true = {"size": outcome.entries, "frontier": outcome.frontier, "recorded": outcome.recorded, "signed": signed}
    if outcome.entries:  # without any, nothing tells the name and the key
        true |= {"id": outcome.ledger, "key": key}
    for name, value in zip(COLUMNS, row, strict=True):
        if name in true and value != true[name]:
            text = f"the table `ledger` says {name} {_short(value)}, the entries and heads say {_short(true[name])}"
            return Finding("column", 1, text, until=outcome.entries)
    wrong = misshapen(row)
    if wrong is None and not row[-1] and not may_lack_tag(row[0]):
        wrong = "the tag of its end, which the ledger had from its beginning, was taken out"
    return None if wrong is None else Finding("column", 1, wrong, until=outcome.entries)


def _other_ends(reader: LedgerReader, outcome: Outcome) -> Finding | None:
    said = {(agent, session): end for agent, session, *end in reader.tables(_ENDS)}
    for session, tail in outcome.ends.items():
        if (end := said.pop(session, None)) != [*tail]:
            text = f"the table `chains` says that its session ends {_end(end)}, the entries say {_end(tail)}"
            return Finding("column", tail.number, text)
    for agent, name in said:
        text = f"the table `chains` has a session {_short(name)} of {_short(agent)}, the entries have none"
        return Finding("column", 1, text, until=outcome.entries)
    return None


def _end(end: Sequence[object] | None) -> str:
    if end is None:
        return "nowhere"
    sequence, digest, number = end
    return f"with entry {_short(number)}, number {_short(sequence)} of it, hash {_short(digest)}"


def _short(value: object) -> str:
    """What anybody may have written there, in few words."""
    text = value.hex() if isinstance(value, bytes) else ascii(value)
    return text if len(text) <= _MOST else text[:_MOST] + "…"


Progress = Callable[[int], None]


def verify_ledger(path: Path, key: str, kept: Iterable[Head] = (), progress: Progress | None = None) -> Outcome:
    """Recompute a whole ledger file; what cannot be read of it is a finding too.

    The head beside its key counts as one that was kept. It is read first: it never says more than the file then has.
    Where the private key lies beside it too, and can be read, the tag of its end is checked.
    """
    try:
        return _verified(path, key, list(kept), progress)
    except ForeignTables as wrong:  # none of its entries is read then
        return Outcome(0, 0, 0, "", "", Finding("column", 1, f"no entry was read: {wrong}"))


def _verified(path: Path, key: str, kept: list[Head], progress: Progress | None) -> Outcome:
    if (mark := read_mark(head_beside(path))) is not None and mark.head.size:
        kept.append(mark.head)
    with _in_parts(path, kept) as parts, LedgerReader(path) as reader, ThreadPoolExecutor(1) as beside:
        around = beside.submit(damage, reader.path)  # SQLite's own work, while the entries are hashed
        outcome = None if parts is None else _joined(reader, parts, key, kept, progress)
        try:
            if outcome is None:
                rows = _counted(reader.columns(), progress)
                outcome = verify(rows, reader.heads(), key=key, check=check_signature, kept=kept)
        except LedgerUnavailable as wrong:
            seen = _readable(reader)
            outcome = Outcome(seen, 0, 0, reader.ledger, "", Finding("edited", seen + 1, str(wrong)))
        if mark is not None and outcome.finding is None:
            outcome = outcome._replace(finding=_taken_out(reader, mark.head.size))
        if outcome.finding is None or outcome.finding.kind == "clock":
            wrong_around = around.result() or gone_astray(reader, outcome, key)
            outcome = outcome._replace(finding=wrong_around or outcome.finding)
            private = key_if_readable(os.path.splitext(path)[0] + ".key") if wrong_around is None else None
            if private is not None and private.public == key:
                outcome = held_to_tag(reader, outcome, private)
        return outcome


def _taken_out(reader: LedgerReader, signed: int) -> Finding | None:
    """A head that was signed for so many entries, and that the file no longer has, nor a newer one."""
    last = max((head.size for head in reader.heads()), default=0)
    if last >= signed:
        return None
    text = "the head that was signed for them was taken out of the file" if last else "no head speaks for any entry"
    return Finding("unsigned", last + 1, text, until=signed)


@contextmanager
def _in_parts(path: Path, kept: Iterable[Head]) -> Iterator[Parts | None]:
    """The entries that a head speaks for, in parts that are looked at elsewhere; None if one part is as quick."""
    sizes: list[int] = []
    with suppress(LedgerUnavailable), LedgerReader(path) as reader:  # what cannot be read is told by who reads it next
        sizes = [head.size for head in reader.heads()]
    last = sizes[-1] if sizes and all(type(size) is int for size in sizes) else 0
    many, parts = worthwhile(last), None
    if many > 1:
        cuts = sorted({*sizes, *(head.size for head in kept)})
        with suppress(OSError):  # there may be no more processes, or no more files
            parts = Parts(os.path.abspath(path), last, cuts, many)
    try:
        yield parts
    finally:
        if parts is not None:
            parts.close()


def _joined(
    reader: LedgerReader, parts: Parts, key: str, kept: Iterable[Head], progress: Progress | None
) -> Outcome | None:
    """What comes of the parts together; None if anything is wrong, and has to be looked for in order."""
    first = _counted(reader.columns(last=parts.first), progress, parts.many)  # the others are about as far
    rest = reader.columns(parts.last + 1)
    try:
        return verify_joined(first, parts, rest, reader.heads(), key=key, check=check_signature, kept=kept)
    except LedgerUnavailable:
        return None


def _counted(rows: Iterator[Columns], progress: Progress | None, at_once: int = 1) -> Iterator[Columns]:
    """The same rows; of every thousand it is told how many have been seen, also by others who look at as many."""
    return rows if progress is None else _told(rows, progress, at_once)


def _told(rows: Iterator[Columns], progress: Progress, at_once: int) -> Iterator[Columns]:
    for seen, row in enumerate(rows, 1):
        if not seen % 1000:
            progress(seen * at_once)
        yield row


def _readable(reader: LedgerReader) -> int:
    """How many entries come before the one that cannot be read."""
    seen = 0
    with suppress(LedgerUnavailable):
        for _ in reader.entries():
            seen += 1
    return seen
