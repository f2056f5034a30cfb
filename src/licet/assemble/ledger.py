"""The reading half of the composition root: where the ledger of a workspace is, and holding it to a public key."""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from licet.assemble.gate import state_directory
from licet.backends.keys import check_signature, key_beside
from licet.backends.ledger.reader import LedgerReader, no_ledger
from licet.core.ledger.entry import Head, Row, Unsound, read_head
from licet.core.ledger.evidence import Pack, check_pack, envelope, kept_heads, statement, to_sign
from licet.core.ledger.evidence import is_pack as looks_like_pack
from licet.core.ledger.linked import Finding
from licet.core.ledger.merkle import inclusion_proofs
from licet.guard.ports import LedgerUnavailable
from licet.regular_files import open_regular, read_most, read_regular

_PUBLIC = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")
_SQLITE = b"SQLite format 3\0"
_NAME_ONE = "name a public key with `--key ed25519:…` or `--key FILE`"
_MOST_KEY, _MOST_HEADS, _MOST_PACK = 4096, 64 << 20, 512 << 20  # bytes
_ENVELOPE = b'{"payload":"'


class NoKey(Exception):
    """There is no public key to hold a ledger to: what was looked at, and what to do."""


class Export(Struct, frozen=True):
    """An evidence pack, and what it holds."""

    text: str
    pack: Pack


def ledger_in(state: Path | None) -> Path:
    """The ledger in a directory of state, or in that of the current directory."""
    return (state_directory(Path.cwd()) if state is None else state) / "ledger.sqlite"


def is_ledger(path: Path) -> bool:
    """Whether a file is a database, whatever it is called; everything else could only be a pack."""
    try:
        with open_regular(path) as file:
            return read_most(file, len(_SQLITE)) == _SQLITE
    except FileNotFoundError:
        raise no_ledger(str(path)) from None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None


def public_key(given: str | None, beside: Path) -> str:
    """The public key that was named, as text or by its file; without one it is that beside a ledger."""
    if given is not None and _PUBLIC.fullmatch(given):
        return given
    file = beside.with_suffix(".pub") if given is None else Path(given)
    try:
        text = read_regular(file, _MOST_KEY).decode().strip()
    except FileNotFoundError:
        raise NoKey(f"{file} is not there: {_NAME_ONE}") from None
    except (OSError, ValueError):
        text = ""
    if not _PUBLIC.fullmatch(text):
        raise NoKey(f"{file} holds no public key: {_NAME_ONE}")
    return text


def kept_in(file: Path) -> list[Head]:
    """The heads that were kept in a file; `Unsound` if there are none."""
    try:
        return kept_heads(read_regular(file, _MOST_HEADS).decode())
    except OSError as error:
        raise Unsound(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Unsound(f"{file} cannot be read: {error}") from None
    except Unsound as wrong:
        raise Unsound(f"{file}: {wrong}") from None


def is_pack(path: Path) -> bool:
    """Whether a file is an evidence pack, sound or not; one that cannot be read is none."""
    try:
        with open_regular(path) as file:  # what does not begin like one is not read to its end, however long it is
            start = read_most(file, len(_ENVELOPE))
            return start == _ENVELOPE and looks_like_pack(start + read_most(file, _MOST_PACK))
    except OSError:
        return False


def verify_pack(path: Path, key: str) -> Pack | Finding:
    """Hold an evidence pack to a public key."""
    try:
        data = read_regular(path, _MOST_PACK)
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None
    return check_pack(data, key, check_signature)


def run_verify(reader: LedgerReader) -> str:
    """What tells more about a ledger, with its file: without one, that of the current directory would be verified."""
    return f"run `licet receipts verify {shlex.quote(reader.path)}`"


def last_head(reader: LedgerReader, key: str) -> Head:
    """The newest head of a ledger, if it is one that this key has signed."""
    last: Head | None = None
    for last in reader.heads():  # noqa: B007
        pass
    if last is None:
        raise LedgerUnavailable(f"no head is signed in {reader.path} yet")
    try:
        signed = read_head(last.body).key == key and check_signature(key, last.body, last.signature)
    except Unsound:
        signed = False
    if not signed:
        raise LedgerUnavailable(f"the last head of {reader.path} is not signed with {key}: {run_verify(reader)}")
    return last


def evidence_pack(reader: LedgerReader, rows: Iterable[Row]) -> Export:
    """Entries of a ledger with proofs, signed with the key of the ledger; only if everything fits."""
    rows = list(rows)
    newest = max(row.number for row in rows)
    # The oldest head that speaks for all of them: the pack stays the same while the ledger grows.
    head = next((head for head in reader.heads() if head.size >= newest), None)
    if head is None:
        raise LedgerUnavailable(
            f"no head speaks for entry {newest} yet: the next call, or its process ending, signs one"
        )
    key_file = os.path.splitext(reader.path)[0] + ".key"
    if not os.path.lexists(key_file):  # never made here: another key would prove nothing
        raise LedgerUnavailable(f"a pack is signed with the key of its ledger, and {key_file} is not there")
    key = key_beside(key_file)
    try:
        proofs = inclusion_proofs(reader.hashes(), head.size, [row.number - 1 for row in rows])
        payload = statement(rows, head, proofs)
    # Fewer entries than were signed, no text, or no bytes at all.
    except (AttributeError, RuntimeError, StopIteration, TypeError, UnicodeDecodeError):
        raise LedgerUnavailable(f"{reader.path} does not fit its heads: {run_verify(reader)}") from None
    text = envelope(payload, key.public, key.sign(to_sign(payload)))
    checked = check_pack(text.encode(), key.public, check_signature)  # nothing that is wrong is handed out
    if isinstance(checked, Finding):
        raise LedgerUnavailable(f"{reader.path} does not fit its heads: {run_verify(reader)} ({checked})")
    return Export(text, checked)
