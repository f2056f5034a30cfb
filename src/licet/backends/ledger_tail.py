"""What a ledger says of its own end, and the tag that only the holder of its key can make.

A head is signed now and then. What was written since is spoken for by this tag, which every transaction makes anew:
without it, whoever can write the file and has no key could append entries, and the next head would be signed over them.
Nobody can check it without the private key.
"""

import hmac
import math
import secrets
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from licet.backends.ledger_keys import SigningKey
from licet.core.canonical import quoted

STATE = "SELECT id, key, size, frontier, recorded, signed, signed_at, tag, one FROM ledger LIMIT 2"
KEEP = "UPDATE ledger SET size = ?, frontier = ?, recorded = ?, signed = ?, signed_at = ?, tag = ?"
BEGIN = "INSERT INTO ledger VALUES (1, ?, ?, 0, x'', '', 0, 0, x'')"
# A ledger that began with tags is called so. Its name is in every entry and every signed head: nobody can make it look
# like one from before there were tags, which is taken without one.
_TAGGED = "2-"


class State(NamedTuple):
    """What the next entry follows, as the file says it."""

    ledger: str
    key: str
    size: int = 0
    frontier: bytes = b""
    recorded: str = ""
    signed: int = 0
    signed_at: float = 0.0
    tag: bytes = b""


OTHER_ROWS = "the table `ledger` has other rows than the one that licet writes"
COLUMNS = ("id", *State._fields[1:])
_KINDS = (str, str, int, bytes, str, int, float, bytes)


class Tagging:
    """Makes and checks the tags of one ledger."""

    def __init__(self, key: SigningKey) -> None:
        self._secret = key.derived(b"licet ledger tail")

    def tagged(self, state: State) -> State:
        """A state with its tag."""
        return state._replace(tag=self._tag(state))

    def wrong(self, state: State) -> bool:
        """Whether nobody who has the key left a ledger so."""
        if not state.tag and may_lack_tag(state.ledger):
            return False
        return not hmac.compare_digest(state.tag, self._tag(state))

    def _tag(self, state: State) -> bytes:
        ledger, key, size, frontier, recorded, signed, signed_at, _ = state
        texts = f"[{quoted(ledger)},{quoted(key)},{quoted(recorded)},{size},{signed},{signed_at!r}]"
        return hmac.digest(self._secret, texts.encode(errors="surrogateescape") + frontier, "sha256")


def new_name() -> str:
    """A name for a ledger that begins now."""
    return _TAGGED + secrets.token_hex(16)


def may_lack_tag(ledger: str) -> bool:
    """Whether a ledger of this name may be from before there were tags."""
    return not ledger.startswith(_TAGGED)


def read_state(db: sqlite3.Connection) -> State | None:
    """What the file says; `ValueError` if a column holds what it cannot."""
    found = db.execute(STATE).fetchall()
    if not found:
        return None
    if len(found) > 1 or found[0][-1] != 1:
        raise ValueError(OTHER_ROWS)
    if (wrong := misshapen(found[0][:-1])) is not None:
        raise ValueError(wrong)
    return State(*found[0][:-1])


def misshapen(row: Sequence[object]) -> str | None:
    """Which column of the table `ledger` holds what it cannot: SQLite takes anything anywhere."""
    for name, value, kind in zip(COLUMNS, row, _KINDS, strict=True):
        if type(value) is not kind or (type(value) is float and not math.isfinite(value)):
            return f"the table `ledger` says {name} {ascii(value)[:40]}, which it cannot be"
    return None
