"""The schema of a ledger: what an entry and a checkpoint hold, and how both are read and written.

An `Entry` holds the facts of one call: its decision before it runs, or its receipt after it. `guard/receipt.py` decides
which facts those are; a new fact is one line there and one line here. The ledger adds its id, the place in the session
and the hash of the session's previous entry, which makes a `LinkedEntry`. That is written as canonical JSON and hashed.

The place in the whole ledger is not in an entry. The tree proves it (`merkle`), and a checkpoint signs the root of the
tree. There are no floats: money and durations are text.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from licet.core.canonical import canonical_json
from licet.core.ledger.merkle import leaf_hash

FORMAT: Final = 2
SMOOTHED = timedelta(minutes=1)  # a clock may go back this far without a finding: it was probably corrected
MOST_PURPOSE = 500  # characters
KINDS = ("decision", "receipt")
VERDICTS = ("allow", "ask", "deny")

_LARGEST = 2**53 - 1  # that canonical JSON writes
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Code = Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)]
Texts = tuple[str, ...]


class Unsound(ValueError):
    """Bytes that are no entry, no checkpoint or no evidence pack: why."""


# What an entry holds ------------------------------------------------------------------------------------------------


class Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an entry: fields of text, whole numbers, truth values, or further facts."""


class Caller(Fact, frozen=True, kw_only=True):
    """Who made a call, if a gateway knows it: the person, the client, and the chain of actors, first to last."""

    person: str | None = None
    client: str | None = None
    actors: Texts = ()


class ParentFact(Fact, frozen=True, kw_only=True):
    """The session that delegated to this one."""

    agent: str
    session: str


class ApprovalFact(Fact, frozen=True, kw_only=True):
    """What was approved, and by whom."""

    by: Texts
    arguments: str | None  # their digest, if the approval is for exactly these
    request: str | None
    use: str | None


class EventFact(Fact, frozen=True, kw_only=True):
    """One thing that happened in a call. Checks have all fields; other events leave out what they do not need."""

    kind: str
    capability: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET


class AccessCounts(Fact, frozen=True, kw_only=True):
    """How long the four lists of an `AccessFact` are when they are complete."""

    granted: Count
    closed: Count
    rules: Count
    runtime: Count


class AccessFact(Fact, frozen=True, kw_only=True):
    """The rules that the kernel enforced on one process; long lists are cut."""

    granted: Texts
    closed: Texts
    rules: Texts
    runtime: Texts
    counts: AccessCounts
    digest: str  # of the complete lists
    direct: bool


class ProgramAccessFact(Fact, frozen=True, kw_only=True):
    """The rules around the programs of a call, each different set once."""

    sets: tuple[AccessFact, ...]
    more: Count
    digest: str | None


class ProgramsFact(Fact, frozen=True, kw_only=True):
    """What was around the programs that a call started, and how they ended."""

    access: ProgramAccessFact | None
    ended: tuple[Code, ...]
    layers: Texts
    missing: Texts


class SandboxFact(Fact, frozen=True, kw_only=True):
    """The level of a tool, the layers in force around it, and the rules of the kernel."""

    level: str | None = None
    layers: Texts = ()
    access: AccessFact | None = None
    programs: ProgramsFact | None = None


class SpentFact(Fact, frozen=True, kw_only=True):
    """What an account has spent. Without costs there is no money in it; a bundle's has nothing about one tool."""

    calls: Count
    calls_today: Count
    calls_of_tool: Count | UnsetType = UNSET
    cost_usd: str | UnsetType = UNSET
    cost_usd_today: str | UnsetType = UNSET
    cost_usd_of_tool: str | UnsetType = UNSET


class BundleBudgetFact(Fact, frozen=True, kw_only=True):
    """A bundle's budget before and after a call."""

    before: SpentFact
    after: SpentFact


class BudgetFact(Fact, frozen=True, kw_only=True):
    """The budget of a session before and after a call, and those of the bundles of its tool."""

    before: SpentFact
    after: SpentFact
    bundles: dict[str, BundleBudgetFact] | UnsetType = UNSET


class BodiesFact(Fact, frozen=True, kw_only=True):
    """Redacted arguments and result as JSON text; an entry has them with `record: full` alone."""

    arguments: str | None
    result: str | None


class Entry(Fact, frozen=True, kw_only=True):
    """The facts of one call that a ledger keeps: a decision before the call runs, or a receipt after it."""

    kind: Literal["decision", "receipt"]
    id: str
    agent: str
    session: str
    tool: str
    time: str  # of the call
    manifest: str  # digest
    tool_digest: str | None = None
    parent: ParentFact | None = None
    caller: Caller | None = None
    purpose: Annotated[str, Meta(max_length=MOST_PURPOSE)] | None = None  # why the caller made this call
    arguments: str | None = None  # digest
    bodies: BodiesFact | UnsetType = UNSET
    verdict: Literal["allow", "ask", "deny"] = "allow"
    reason: str = "ALLOWED"
    rules: Texts = ()
    approvals: tuple[ApprovalFact, ...] = ()
    budget: BudgetFact | None = None
    sandbox: SandboxFact = SandboxFact()
    events: tuple[EventFact, ...] = ()
    code: str | None = None
    error: str | None = None
    result: str | None = None  # digest
    truncated: bool = False
    cost_usd: str = "0"
    duration_ms: str | None = None


class LinkedEntry(Entry, frozen=True, kw_only=True):
    """An entry as it is hashed: with its ledger, its place in the session, and the session's previous hash."""

    ledger: str
    sequence: Count  # in its session, from 1
    previous: str | None
    recorded: str  # when the ledger kept it
    format: Literal[2] = FORMAT


# Entries in a ledger -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of the table of entries. The body counts; the index columns are checked against it."""

    number: int  # in the ledger, from 1
    id: str
    kind: str
    agent: str
    session: str
    sequence: int  # in its session, from 1
    tool: str
    verdict: str
    time: str
    hash: bytes
    body: bytes


COLUMNS = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")  # that repeat what the body says


class Tail(NamedTuple):
    """The end of one session's chain, as a row of the table of chains."""

    sequence: int = 0
    hash: bytes = b""
    number: int = 0


START = Tail()


def link(entry: Entry, ledger: str, number: int, tail: Tail, recorded: str) -> Row:
    """The row for an entry after the tail of its session."""
    linked = LinkedEntry(
        **{name: getattr(entry, name) for name in Entry.__struct_fields__},
        ledger=ledger,
        sequence=tail.sequence + 1,
        previous=hash_text(tail.hash) if tail.hash else None,
        recorded=recorded,
    )
    body = canonical_json(linked)
    index = (getattr(linked, name) for name in COLUMNS)
    return Row._make((number, *index, leaf_hash(body), body))


def hash_text(digest: bytes) -> str:
    """A hash as entries and checkpoints write it."""
    return f"sha256:{digest.hex()}"


def read_entry(body: bytes) -> LinkedEntry:
    """Read an entry strictly: canonical JSON that fits the schema of this format; `Unsound` otherwise."""
    return _read(body, _ENTRY)


def entry_fields(body: bytes) -> dict[str, Any]:
    """The fields of an entry as plain data, for showing; read as strictly as by `read_entry`."""
    read_entry(body)
    fields: dict[str, Any] = msgspec.json.decode(body)
    return fields


def check_row(row: Row) -> dict[str, Any]:
    """The number and the fields of an entry, if its hash and its index columns are right; `Unsound` otherwise."""
    if type(row.body) is not bytes or leaf_hash(row.body) != row.hash:  # SQLite takes any type in any column
        raise Unsound("its bytes are not those that were hashed")
    fields = entry_fields(row.body)
    for name in COLUMNS:
        if getattr(row, name) != fields[name]:
            raise Unsound(f"its index says {name} `{getattr(row, name)}`, and the entry says `{fields[name]}`")
    return {"number": row.number, **fields}


def time_text(moment: datetime) -> str:
    """A moment in UTC with microseconds: `2026-01-01T00:00:00.000000Z`; without a time zone it is UTC already."""
    offset, bare = moment.utcoffset(), moment.replace(tzinfo=None)
    return (bare if offset is None else bare - offset).isoformat("T", "microseconds") + "Z"


def kept_at(now: datetime, last: str) -> str:
    """The time at which an entry is recorded, after one that was recorded at `last`.

    A clock that goes back a little was corrected, and the last time is used again. A clock that goes back further is
    recorded as it is.
    """
    text = time_text(now)
    if text >= last or time_text(now + SMOOTHED) < last:
        return text
    return last


# Checkpoints -----------------------------------------------------------------------------------------------

CheckSignature = Callable[[str, bytes, bytes], bool]  # of the key `ed25519:…`: message, signature


class Checkpoint(NamedTuple):
    """One row of the table of checkpoints: a signed statement that a ledger had a size and a root."""

    size: int  # an index column; the body counts
    body: bytes
    signature: bytes


class CheckpointFacts(Fact, frozen=True, kw_only=True):
    """What a checkpoint says."""

    ledger: str
    size: Count
    root: str
    time: str
    key: str
    kind: Literal["checkpoint"] = "checkpoint"
    format: Literal[2] = FORMAT


def checkpoint_body(ledger: str, size: int, root: bytes, time: str, key: str) -> bytes:
    """The bytes of a checkpoint that are signed."""
    return canonical_json(CheckpointFacts(ledger=ledger, size=size, root=hash_text(root), time=time, key=key))


def read_checkpoint(body: bytes) -> CheckpointFacts:
    """Read a checkpoint as strictly as an entry; `Unsound` if it is none."""
    return _read(body, _CHECKPOINT)


# Reading -----------------------------------------------------------------------------------------------

_ENTRY = msgspec.json.Decoder(LinkedEntry)
_CHECKPOINT = msgspec.json.Decoder(CheckpointFacts)


_T = TypeVar("_T")


class _Format(Struct):
    format: int = 0


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is a float, and nothing that is signed holds floats")


_ANY = msgspec.json.Decoder(float_hook=_no_float)


def _read(body: bytes, decoder: "msgspec.json.Decoder[_T]") -> _T:
    if type(body) is not bytes:  # SQLite takes any type in any column
        raise Unsound("it is not a blob of bytes")
    try:
        found = decoder.decode(body)
        encoded = canonical_json(found)
    except (ValueError, RecursionError) as wrong:
        raise Unsound(_other_format(body) or f"it does not fit the schema of format {FORMAT}: {wrong}") from None
    if encoded != body:
        raise Unsound("it is not canonical JSON, or fields are missing")
    return found


def _other_format(body: bytes) -> str:
    """Why something of another format is not read; nothing if it is of this format, or of none."""
    try:
        found = msgspec.json.decode(body, type=_Format).format
    except (ValueError, RecursionError):
        return ""
    if found > FORMAT:
        return f"it has format {found}, written by a newer licet: use that version"
    if 0 < found < FORMAT:
        return f"it has format {found}, written by an older licet: this version reads format {FORMAT} alone"
    return ""


def canonical_object(data: bytes) -> dict[str, Any]:
    """Read a canonical JSON object without floats; any other encoding of it is `Unsound`."""
    try:
        found = _ANY.decode(data)
        encoded = canonical_json(found)
    except (ValueError, RecursionError) as wrong:
        raise Unsound(f"it is not canonical JSON: {wrong}") from None
    if encoded != data or not isinstance(found, dict):
        raise Unsound("it is not a canonical JSON object")
    return found
