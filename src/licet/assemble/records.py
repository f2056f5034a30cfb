"""The reading half of the composition root: where the ledger of a workspace is, and holding it to a public key."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from licet.assemble.running import state_directory
from licet.backends.ledger_head import head_beside, read_mark
from licet.backends.ledger_keys import check_signature, key_beside, key_if_readable
from licet.backends.ledger_parts import Parts, worthwhile
from licet.backends.ledger_reader import ForeignTables, LedgerReader, no_ledger
from licet.backends.ledger_structure import damage, gone_astray, held_to_tag
from licet.backends.regular_files import open_regular, read_most, read_regular
from licet.core.evidence import Pack, check_pack, envelope, kept_heads, statement, to_sign
from licet.core.evidence import is_pack as looks_like_pack
from licet.core.finding import Finding, Outcome
from licet.core.heads import Head, read_head
from licet.core.linked import Columns
from licet.core.merkle import inclusion_proofs
from licet.core.receipt import Row, Unsound
from licet.core.verify import verify, verify_joined
from licet.guard.ports import LedgerUnavailable

__all__ = [
    "Export",
    "LedgerReader",
    "LedgerUnavailable",
    "NoKey",
    "evidence_pack",
    "is_ledger",
    "is_pack",
    "kept_in",
    "last_head",
    "ledger_in",
    "public_key",
    "run_verify",
    "verify_ledger",
    "verify_pack",
]

_PUBLIC = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")
_SQLITE = b"SQLite format 3\0"
_NAME_ONE = "name a public key with `--key ed25519:…` or `--key FILE`"
_MOST_KEY, _MOST_HEADS, _MOST_PACK = 4096, 64 << 20, 512 << 20  # bytes
_ENVELOPE = b'{"payload":"'

Progress = Callable[[int], None]


class NoKey(Exception):
    """There is no public key to hold a ledger to: what was looked at, and what to do."""


class Export(NamedTuple):
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
