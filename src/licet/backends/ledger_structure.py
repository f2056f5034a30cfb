"""Whether the file around the entries of a ledger is what licet makes: its tables, and what they are searched by.

Verification reads every entry from its table. A search reads an index first, and one that was tampered with leaves
entries out; SQLite itself can tell. A writer goes on from what the tables `ledger` and `chains` say; that follows from
the entries, and has to be what they say.
"""

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from licet.backends.ledger_keys import SigningKey
from licet.backends.ledger_reader import LedgerReader
from licet.backends.ledger_tail import COLUMNS, OTHER_ROWS, STATE, State, Tagging, may_lack_tag, misshapen
from licet.core.finding import Finding, Outcome

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
