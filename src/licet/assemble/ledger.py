"""Finds the ledger of a workspace and its public key, opens it, and makes and checks evidence packs.

A ledger is in a file, or in a PostgreSQL database of several nodes. Its keys are always in a directory of this machine.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from licet.assemble.review import state_directory
from licet.assemble.states import LEDGER, DirectoryState, State, names_database, read_state
from licet.backends.ledger.reader import LedgerReader, Progress, no_ledger, verify_ledger
from licet.backends.secrets import check_signature, ledger_key
from licet.core.ledger.entry import Checkpoint, Row, Unsound, read_checkpoint
from licet.core.ledger.merkle import inclusion_proofs
from licet.core.ledger.verify import (
    Finding,
    Outcome,
    Pack,
    check_pack,
    envelope,
    read_checkpoint_lines,
    statement,
    to_sign,
)
from licet.core.ledger.verify import is_pack as looks_like_pack
from licet.guard.entry_reader import EntryReader
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.own_files import open_regular, read_most, read_regular

if TYPE_CHECKING:
    from licet.backends.postgres.database import Database

_PUBLIC = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")
_SQLITE = b"SQLite format 3\0"
_NAME_ONE = "name a public key with `{option} ed25519:…` or `{option} FILE`"
_MOST_KEY, _MOST_CHECKPOINTS, _MOST_PACK = 4096, 64 << 20, 512 << 20  # bytes
_ENVELOPE = b'{"payload":"'


class NoKey(Exception):
    """There is no public key to verify a ledger with. The message says where it was searched, and what to do."""


class LedgerPlace(Struct, frozen=True):
    """Where a ledger is, and where its keys are."""

    path: str  # a file, or an address
    keys: str  # the path of its `….key` and `….pub`, without their endings
    database: "Database | None" = None

    @classmethod
    def at(cls, named: Path | str) -> "LedgerPlace":
        """The ledger in a file, or at an address."""
        if isinstance(named, str) and names_database(named):
            return cls.of(read_state(named))
        return cls(str(named), os.path.splitext(named)[0])

    @classmethod
    def of(cls, state: State) -> "LedgerPlace":
        """The ledger of a state."""
        if isinstance(state, DirectoryState):
            return cls.at(state.path / LEDGER)
        return cls(state.address, str(state.directory / "ledger"), state.database)

    @property
    def is_remote(self) -> bool:
        return names_database(self.path)

    @property
    def shown(self) -> str:
        """The place as messages show it."""
        return self.path if self.database is None else self.database.address.shown


class Export(Struct, frozen=True):
    """An evidence pack, and what is in it."""

    text: str
    pack: Pack


def ledger_place(state: State | None) -> LedgerPlace:
    """Where the ledger of a state is, by default of that of the current directory."""
    return LedgerPlace.of(DirectoryState(state_directory(Path.cwd())) if state is None else state)


def is_ledger(path: Path) -> bool:
    """Whether a file is an SQLite database, whatever its name. Any other file can only be a pack."""
    try:
        with open_regular(path) as file:
            return read_most(file, len(_SQLITE)) == _SQLITE
    except FileNotFoundError:
        raise no_ledger(str(path)) from None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None


def open_reader(place: LedgerPlace) -> EntryReader:
    """Open a ledger to read it; `LedgerUnavailable` if that fails."""
    if not place.is_remote:
        return LedgerReader(place.path)
    from licet.backends.postgres.postgres_reader import PostgresReader  # only where a state is in PostgreSQL

    return PostgresReader(place.database or place.path, place.keys)


def verify_at(
    place: LedgerPlace,
    key: str,
    kept: Iterable[Checkpoint] = (),
    progress: Progress | None = None,
) -> Outcome:
    """Verify a ledger against its public key, and against checkpoints that were kept elsewhere."""
    if not place.is_remote:
        return verify_ledger(Path(place.path), key, kept, progress)
    from licet.backends.freezes import read_operators
    from licet.backends.postgres.verify_database import verify_database

    operators = read_operators(os.path.dirname(place.keys))
    pinned = () if operators is None else operators.keys
    try:
        return verify_database(place.database or place.path, place.keys, key, kept, progress, operators=pinned)
    except Unavailable as wrong:
        raise LedgerUnavailable(str(wrong)) from None


def public_key(given: str | None, ledger: Path, option: str = "--key") -> str:
    """Return the public key that was given as text or as a file; by default, the file next to the ledger."""
    if given is not None and _PUBLIC.fullmatch(given):
        return given
    file = Path(os.path.splitext(ledger)[0] + ".pub") if given is None else Path(given)
    try:
        text = read_regular(file, _MOST_KEY).decode().strip()
    except FileNotFoundError:
        raise NoKey(f"{file} is missing: {_NAME_ONE.format(option=option)}") from None
    except (OSError, ValueError):
        text = ""
    if not _PUBLIC.fullmatch(text):
        raise NoKey(f"{file} holds no public key: {_NAME_ONE.format(option=option)}")
    return text


def checkpoints_in(file: Path) -> list[Checkpoint]:
    """Read stored checkpoints from a file; raises `Unsound` if there are none."""
    try:
        return read_checkpoint_lines(read_regular(file, _MOST_CHECKPOINTS).decode())
    except OSError as error:
        raise Unsound(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Unsound(f"{file} cannot be read: {error}") from None
    except Unsound as wrong:
        raise Unsound(f"{file}: {wrong}") from None


def is_pack(path: Path) -> bool:
    """Whether a file looks like an evidence pack; False if it cannot be read."""
    try:
        # the first bytes decide, so a file that is something else is not read completely
        with open_regular(path) as file:
            start = read_most(file, len(_ENVELOPE))
            return start == _ENVELOPE and looks_like_pack(start + read_most(file, _MOST_PACK))
    except OSError:
        return False


def verify_pack(path: Path, key: str) -> Pack | Finding:
    """Check an evidence pack against a public key."""
    try:
        data = read_regular(path, _MOST_PACK)
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None
    return check_pack(data, key, check_signature)


def run_verify(reader: EntryReader) -> str:
    """Return the command that verifies this ledger. It names the file, since the default is another one."""
    return f"run `licet receipts verify {shlex.quote(reader.path)}`"


def last_checkpoint(reader: EntryReader, key: str) -> Checkpoint:
    """Return the newest checkpoint of a ledger, if this key signed it."""
    *_, last = (None, *reader.checkpoints())
    if last is None:
        raise LedgerUnavailable(f"no checkpoint is signed in {reader.path} yet")
    try:
        signed = read_checkpoint(last.body).key == key and check_signature(key, last.body, last.signature)
    except Unsound:
        signed = False
    if not signed:
        raise LedgerUnavailable(f"the last checkpoint of {reader.path} is not signed with {key}: {run_verify(reader)}")
    return last


def evidence_pack(reader: EntryReader, rows: Iterable[Row]) -> Export:
    """Make a pack of entries with proofs, signed with the key of the ledger. It is verified before it is returned."""
    rows = list(rows)
    if (waiting := next((row for row in rows if not row.number), None)) is not None:
        raise LedgerUnavailable(f"{waiting.id} has no place in the tree of the ledger yet: try again in a moment")
    newest = max(row.number for row in rows)
    # The oldest checkpoint that covers all of them, so that the pack stays the same while the ledger grows.
    checkpoint = next((one for one in reader.checkpoints() if one.size >= newest), None)
    if checkpoint is None:
        text = f"no checkpoint covers entry {newest} yet: the next call, or the end of the writing process, signs one"
        raise LedgerUnavailable(text)
    key_file = reader.keys + ".key"
    if not os.path.lexists(key_file):  # a signature with another key would prove nothing
        raise LedgerUnavailable(f"a pack is signed with the key of its ledger, and {key_file} is missing")
    key = ledger_key(key_file)
    try:
        proofs = inclusion_proofs(reader.hashes(), checkpoint.size, [row.number - 1 for row in rows])
        payload = statement(rows, checkpoint, proofs)
    except (
        AttributeError,
        RuntimeError,
        StopIteration,
        TypeError,
        UnicodeDecodeError,
        ValueError,
    ):  # changed or missing
        raise LedgerUnavailable(f"{reader.path} does not match its checkpoints: {run_verify(reader)}") from None
    text = envelope(payload, key.public, key.sign(to_sign(payload)))
    checked = check_pack(text.encode(), key.public, check_signature)  # never return a wrong pack
    if isinstance(checked, Finding):
        raise LedgerUnavailable(f"{reader.path} does not match its checkpoints: {run_verify(reader)} ({checked})")
    return Export(text, checked)
