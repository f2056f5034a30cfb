"""The last signed head of a ledger, kept beside its key as `….head`: what the file must go on from.

Whoever changes the database, takes the newest heads out of it and hashes everything anew is found out by this one, and
nothing is signed on top. It never says more than the database holds: it is replaced after each signed head was kept.
"""

import os
import secrets
import shlex
from contextlib import suppress
from typing import NamedTuple

from licet.backends.ledger_keys import check_signature
from licet.backends.regular_files import read_regular
from licet.core.evidence import head_line, kept_heads
from licet.core.heads import Head, HeadFacts, read_head
from licet.core.merkle import Frontier
from licet.core.receipt import Unsound
from licet.guard.ports import LedgerUnavailable

_MOST = 65_536  # bytes


class Mark(NamedTuple):
    """A head, and the tree that it signed, so that it can be seen whether a longer one goes on from it."""

    head: Head
    facts: HeadFacts
    frontier: Frontier


def head_beside(path: str | os.PathLike[str]) -> str:
    """Where the last head of a ledger is kept."""
    return os.path.splitext(path)[0] + ".head"


def read_mark(path: str) -> Mark | None:
    """The last head that was kept; None if there never was one."""
    try:
        data = read_regular(path, _MOST, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None
    try:
        line, peaks = data.decode().splitlines()
        (head,) = kept_heads(line)
        facts = read_head(head.body)
        frontier = Frontier.of_bytes(facts.size, bytes.fromhex(peaks))
        if facts.root != f"sha256:{frontier.root.hex()}":
            raise Unsound("its tree is another")
    except ValueError:
        raise LedgerUnavailable(f"{path} holds no head of a ledger: {_aside(path)}") from None
    return Mark(head, facts, frontier)


def trusted_mark(path: str, key: str) -> Mark | None:
    """As `read_mark`, and signed with this key."""
    mark = read_mark(path)
    if mark is not None and not (mark.facts.key == key and check_signature(key, mark.head.body, mark.head.signature)):
        raise LedgerUnavailable(f"{path} is not signed with {key}: {_aside(path)}")
    return mark


def write_mark(path: str, head: Head, frontier: Frontier) -> None:
    """Replace the last head, whole or not at all."""
    spare = f"{path}.{secrets.token_hex(8)}"
    try:
        number = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(f"{head_line(head)}\n{bytes(frontier).hex()}\n")
                file.flush()
                os.fsync(number)
            os.replace(spare, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(spare)
            raise
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be written: {error.strerror}") from None


def not_from(path: str, mark: Mark | None) -> LedgerUnavailable:
    """Why a ledger is not gone on with."""
    if mark is None:
        text = f"{path} is not there, which has the last signed head of the ledger: put it back"
        return LedgerUnavailable(f"{text}; if there never was one, or it is lost, {_aside(path)}")
    size = f"{mark.facts.size} {'entry' if mark.facts.size == 1 else 'entries'} at {mark.facts.time}"
    text = f"the ledger was rolled back or changed since its last signed head ({size}, {path})"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_aside(path)}")


def taken_away(path: str) -> LedgerUnavailable:
    """Why no ledger is begun with a key that has had one."""
    base = os.path.splitext(path)[0]
    text = f"{base}.key has signed a ledger, and neither {base}.sqlite nor {path} is there: put them back from a backup"
    return LedgerUnavailable(f"{text}, or move {base}.* away, the key too, to begin another ledger")


def astray(path: str, number: object) -> LedgerUnavailable:
    """Why nothing is linked to what is said to be the last entry of a session."""
    text = f"the table `chains` says that a session ends with entry {ascii(number)[:40]}, which the entries do not say"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_aside(path)}")


def set_back(path: str, size: int) -> LedgerUnavailable:
    """Why whoever has a ledger open does not go on with it."""
    text = f"the ledger was set back or changed while it was in use: it no longer goes on from the {size} entries that"
    return LedgerUnavailable(f"{text} this process has seen: {_verify(path)} tells more; {_aside(path)}")


def untagged(path: str, signed: int, size: int) -> LedgerUnavailable:
    """Why nothing is linked to entries behind the last head, and nothing signed over them."""
    what = f"it says {size} entries, {size - signed} of them behind its last head, and bears no right tag for that"
    text = f"the ledger was changed by somebody who has not its key: {what}"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_aside(path)}")


def unreadable(path: str, why: str) -> LedgerUnavailable:
    """Why a ledger with a table that no licet has written is not gone on with."""
    return LedgerUnavailable(f"{why}: {_verify(path)} tells more; {_aside(path)}")


def _verify(path: str) -> str:
    # With its file: without one, the ledger of the directory where it is typed would be verified, and found to be fine.
    return f"`licet receipts verify {shlex.quote(os.path.splitext(path)[0] + '.sqlite')}`"


def _aside(path: str) -> str:
    return f"keep what is there, and move {os.path.splitext(path)[0]}.* away to begin another ledger"
