"""The schema of a ledger: the fields of entries and checkpoints, and how both are read and written.

- An `Entry` has the facts of one call: the decision before it runs, or the receipt after it. `guard/receipt.py`
  collects them. To add a fact, add a field here and set it there. A call that runs for long may have entries between
  both, of the kind `progress`: each has the events since the entry before, and the receipt has all of them again.
  Further kinds are about no call: a standing approval of deletes, and that it was withdrawn; what is decided about a
  whole state: a freeze, its end, and the keys of the operators; and that a node may write, or may no longer.
- A licet that does not know a kind takes the entry for changed, and shows nothing of it: nothing false is shown.
- The ledger adds its own id, the sequence number in the session and the hash of the session's previous entry. The
  result is a `LinkedEntry`, which is written as canonical JSON and hashed.
- An entry does not contain its number in the ledger. The Merkle tree (`merkle`) proves that number, and a checkpoint
  signs the root of the tree.
- There are no floats: money and durations are text.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple

from licet.core.ledger.merkle import leaf_hash
from licet.core.limits import MOST_PURPOSE
from licet.core.values import canonical_json

FORMAT: Final = 2
CLOCK_CORRECTION = timedelta(minutes=1)  # a clock that goes back no further is not reported
KINDS = (
    *("decision", "progress", "receipt", "approval", "withdrawal"),
    *("freeze", "thaw", "operators", "enrolment", "dismissal"),
)
STANDING_SESSION = "standing approvals"  # the chain of standing approvals; no session has a space in its name
STATE_SESSION = "acts on the state"  # the chain of what is decided about a whole state
STATE_AGENT = "licet"  # of these entries: they are of no agent
NODES_AGENT, NODES_SESSION = "licet", "nodes of the state"  # the chain of enrolments and dismissals
VERDICTS = ("allow", "ask", "deny")

_LARGEST = 2**53 - 1  # integer in canonical JSON
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Code = Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)]
Texts = tuple[str, ...]


class Unsound(ValueError):
    """Bytes that are not a valid entry, checkpoint or evidence pack. The message is the reason."""


# What an entry holds ------------------------------------------------------------------------------------------------


class Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an entry. Its fields are text, integers, booleans, and further facts."""


class Caller(Fact, frozen=True, kw_only=True):
    """Who made a call, as a gateway reports it: the person, the client, and the chain of actors, first to last."""

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
    arguments: str | None  # digest, if the approval is only for these arguments
    request: str | None
    use: str | None
    deletes: bool | UnsetType = UNSET  # true if all deletes of files that the tool holds were approved with it
    standing: bool | UnsetType = UNSET  # true if `request` is a standing approval


class EventFact(Fact, frozen=True, kw_only=True):
    """An event in a call. Checks have all fields; other events omit those that they do not need."""

    kind: str
    capability: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    count: Count | UnsetType = UNSET  # which question of a server it is, or how many events it stands for


class AccessCounts(Fact, frozen=True, kw_only=True):
    """The lengths of the four lists of an `AccessFact` before they were cut."""

    granted: Count
    closed: Count
    rules: Count
    runtime: Count


class AccessFact(Fact, frozen=True, kw_only=True):
    """The rules that the kernel enforced on one process. Long lists are cut."""

    granted: Texts
    closed: Texts
    rules: Texts
    runtime: Texts
    counts: AccessCounts
    digest: str  # of the complete lists
    direct: bool


class ProgramAccessFact(Fact, frozen=True, kw_only=True):
    """The kernel rules of the programs that a call started. Equal sets of rules are listed once."""

    sets: tuple[AccessFact, ...]
    more: Count
    digest: str | None


class ProgramsFact(Fact, frozen=True, kw_only=True):
    """The walls around the programs that a call started, and the exit codes of those programs."""

    access: ProgramAccessFact | None
    ended: tuple[Code, ...]
    layers: Texts
    missing: Texts


class SandboxFact(Fact, frozen=True, kw_only=True):
    """The level of a tool, the layers of its walls that were in force, and the rules of the kernel."""

    level: str | None = None
    layers: Texts = ()
    missing: Texts | UnsetType = UNSET  # layers that the manifest permits to be missing, if any are
    access: AccessFact | None = None
    programs: ProgramsFact | None = None


class SpentFact(Fact, frozen=True, kw_only=True):
    """What was spent so far. The cost fields are omitted without costs, the fields of the tool in a bundle's budget."""

    calls: Count
    calls_today: Count
    calls_of_tool: Count | UnsetType = UNSET
    cost_usd: str | UnsetType = UNSET
    cost_usd_today: str | UnsetType = UNSET
    cost_usd_of_tool: str | UnsetType = UNSET


class BundleBudgetFact(Fact, frozen=True, kw_only=True):
    """The spending of a bundle before and after a call."""

    before: SpentFact
    after: SpentFact


class BudgetFact(Fact, frozen=True, kw_only=True):
    """The spending of a session before and after a call, and that of the bundles of its tool."""

    before: SpentFact
    after: SpentFact
    bundles: dict[str, BundleBudgetFact] | UnsetType = UNSET


class BodiesFact(Fact, frozen=True, kw_only=True):
    """Redacted arguments and result as JSON text. An entry has them only with `record: full`."""

    arguments: str | None
    result: str | None


class StandingFact(Fact, frozen=True, kw_only=True):
    """A standing approval: what it covers, until when, and the digest of the request that people agreed to."""

    directory: str
    deletes: Texts  # rules
    expires: str
    request: str


class StateFact(Fact, frozen=True, kw_only=True):
    """What was decided about a whole state: a freeze, the end of freezes, or the keys of its operators."""

    by: str = ""  # who did it: `command`, `gate`, or the key of an operator; a claim unless there is a signature
    agent: str | UnsetType = UNSET  # of a freeze; absent if it is for all
    tool: str | UnsetType = UNSET  # of a freeze; absent if it is for all
    why: str | UnsetType = UNSET
    about: Texts = ()  # ids of freezes that end, or the keys of operators
    act: str | UnsetType = UNSET  # what an operator signed, as it was signed
    signature: str | UnsetType = UNSET  # hexadecimal


class NodeFact(Fact, frozen=True, kw_only=True):
    """That a node may write to this ledger, or may no longer: an act that is signed by an operator or the ledger."""

    node: str  # its public key
    act: str  # the signed bytes, in base64
    signature: str  # in base64
    by: str  # the public key that signed


class ObservedFact(Fact, frozen=True, kw_only=True):
    """What the policy would have said about a call of a gateway that only observes, and whether its walls stood."""

    verdict: Literal["allow", "ask", "deny"]
    reasons: Texts = ()
    rules: Texts = ()
    walls: bool = True


class AgentFact(Fact, frozen=True, kw_only=True):
    """What is known about a call that a coding agent made through its hook. All but `end` is the agent's claim."""

    name: str  # such as `claude`
    version: str = ""
    call: str = ""  # the agent's id of the call
    subagent: str = ""  # the agent's id of the subagent that made it
    event: str = ""  # of the hook, as the agent calls it
    rewritten: bool = False  # whether the hook gave the agent other arguments than it had
    asked: bool = False  # whether the agent asked its own person: its prompt, so no answer that licet saw
    in_order: bool = False  # whether the end is that of one of several equal calls, which were under way together
    # How the end is known: licet saw it, the agent reported it, or nobody said anything. Absent if nothing ran.
    end: Literal["seen", "reported", "unknown"] | UnsetType = UNSET


class FoundFact(Fact, frozen=True, kw_only=True):
    """One origin of a value of an argument: where it stood."""

    origin: str
    receipt: str | UnsetType = UNSET  # of the result
    tool: str | UnsetType = UNSET
    pointer: str | UnsetType = UNSET
    label: str | UnsetType = UNSET


class UnmetFact(Fact, frozen=True, kw_only=True):
    """A rule of flow that a call did not meet. The digest of the value has a key: short values can be guessed."""

    reason: str
    argument: str | UnsetType = UNSET  # absent if it is about the call
    pointer: str | UnsetType = UNSET
    value_digest: str | UnsetType = UNSET
    origins: tuple[FoundFact, ...] = ()
    allowed: Texts = ()
    rule: str | UnsetType = UNSET  # where it is written


class MetFact(Fact, frozen=True, kw_only=True):
    """An argument with a rule of flow that it met."""

    argument: str
    pointer: str | UnsetType = UNSET
    origins: tuple[FoundFact, ...] = ()


class SecretFact(Fact, frozen=True, kw_only=True):
    """A secret source that the call read, with those who may read it. A reopened session is restored from it."""

    tool: str | UnsetType = UNSET
    fields: Texts | UnsetType = UNSET
    use: str | UnsetType = UNSET
    readers: Texts = ()


class FlowFact(Fact, frozen=True, kw_only=True):
    """What flow decided about a call, and what its result brought into the session. It has no text of a result."""

    tainted_by: Texts = ()  # before the call: receipts, or reasons
    unmet: tuple[UnmetFact, ...] | UnsetType = UNSET
    met: tuple[MetFact, ...] | UnsetType = UNSET
    watched: bool | UnsetType = UNSET  # true if what was not met stopped nothing
    request: str | UnsetType = UNSET  # of the approval that was asked for
    reopened: bool | UnsetType = UNSET  # true if values that the session read before it was opened again are unknown
    labels: dict[str, Count] | UnsetType = UNSET  # how many leaves of the result have each label; only labelled ones
    untrusted: Texts | UnsetType = UNSET  # pointers of the first untrusted leaves
    taints: bool | UnsetType = UNSET  # true if the result has untrusted text
    secrets: tuple[SecretFact, ...] | UnsetType = UNSET
    private: bool | UnsetType = UNSET  # true if it read something private in a workspace without labels


class Entry(Fact, frozen=True):
    """The facts of one call: before it runs, while it runs, or after it. Or what was decided about no call."""

    kind: Literal[
        "decision",
        "progress",
        "receipt",
        "approval",
        "withdrawal",
        "freeze",
        "thaw",
        "operators",
        "enrolment",
        "dismissal",
    ]
    id: str
    agent: str
    session: str
    tool: str
    time: str  # of the call
    manifest: str  # digest
    organisation: Texts | UnsetType = UNSET  # digests of the organisation files above it; the machine's own is first
    tool_digest: str | None = None
    parent: ParentFact | None = None
    caller: Caller | None = None
    purpose: Annotated[str, Meta(max_length=MOST_PURPOSE)] | None = None  # why the caller made this call
    flags: Texts | UnsetType = UNSET  # of `licet run`, if they made or narrowed the policy
    arguments: str | None = None  # digest
    bodies: BodiesFact | UnsetType = UNSET
    verdict: Literal["allow", "ask", "deny"] = "allow"
    observed: ObservedFact | UnsetType = UNSET  # only if nothing was enforced: see `licet gateway --observe`
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
    standing: StandingFact | UnsetType = UNSET  # only of a standing approval, and of its withdrawal
    coding_agent: AgentFact | UnsetType = UNSET  # only of a call that a hook of a coding agent reported
    flow: FlowFact | UnsetType = UNSET  # only of a call under a policy with `flow:`
    state: StateFact | UnsetType = UNSET  # only of what is decided about a whole state
    call_id: str | UnsetType = UNSET  # only of a call that its caller gave an id
    repeats: str | UnsetType = UNSET  # the receipt of the first call of this id, if this one got the result of that
    node: NodeFact | UnsetType = UNSET  # only of an enrolment or a dismissal


class LinkedEntry(Entry, frozen=True, kw_only=True):
    """An entry as it is hashed: with its ledger, its sequence number, and the hash of the session's previous entry."""

    ledger: str
    sequence: Count  # in its session, from 1
    previous: str | None
    recorded: str  # when it was written to the ledger
    format: Literal[2] = FORMAT


# Entries in a ledger -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of the table of entries. The body is authoritative; the index columns are checked against it."""

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


# Index columns: they repeat fields of the body.
COLUMNS = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")


class Tail(NamedTuple):
    """The last entry of a session, which the next one links to; a row of the table of chains."""

    sequence: int = 0
    hash: bytes = b""
    number: int = 0


START = Tail()


def link(entry: Entry, ledger: str, number: int, tail: Tail | Row, recorded: str) -> Row:
    """Link an entry to the tail of its session; return its row."""
    sequence, previous = tail.sequence + 1, hash_text(tail.hash) if tail.hash else None
    linked = LinkedEntry(*astuple(entry), ledger=ledger, sequence=sequence, previous=previous, recorded=recorded)
    body = canonical_json(linked)
    return Row(
        number,
        entry.id,
        entry.kind,
        entry.agent,
        entry.session,
        sequence,
        entry.tool,
        entry.verdict,
        entry.time,
        leaf_hash(body),
        body,
    )


def hash_text(digest: bytes) -> str:
    """A hash as text in entries and checkpoints: `sha256:` and hexadecimal digits."""
    return f"sha256:{digest.hex()}"


def read_entry(body: bytes) -> LinkedEntry:
    """Read an entry strictly; `Unsound` unless it is canonical JSON that fits the schema of this format."""
    return _read(body, _ENTRY)


def entry_fields(body: bytes) -> dict[str, Any]:
    """Read an entry as strictly as `read_entry` does; return its fields as plain data."""
    read_entry(body)
    fields: dict[str, Any] = msgspec.json.decode(body)
    return fields


def check_row(row: Row) -> dict[str, Any]:
    """Check the hash and the index columns of a row; return its number and fields, or raise `Unsound`."""
    if type(row.body) is not bytes or leaf_hash(row.body) != row.hash:  # SQLite stores any type in any column
        raise Unsound("its bytes are not those that were hashed")
    fields = entry_fields(row.body)
    for name in COLUMNS:
        if getattr(row, name) != fields[name]:
            raise Unsound(f"its index says {name} `{getattr(row, name)}`, and the entry says `{fields[name]}`")
    return {"number": row.number, **fields}


def time_text(moment: datetime) -> str:
    """A time in UTC with microseconds, such as `2026-01-01T00:00:00.000000Z`; a naive datetime counts as UTC."""
    if moment.tzinfo is not UTC:
        moment = moment.replace(tzinfo=UTC) - (moment.utcoffset() or timedelta())
    if type(moment) is datetime and moment.microsecond:
        text: str = msgspec.to_builtins(moment)  # the same as below, in a tenth of the time
        return text
    return moment.isoformat("T", "microseconds")[:26] + "Z"  # without an offset


def recorded_at(now: datetime, last: str) -> str:
    """The `recorded` time of the next entry, if the previous entry was recorded at `last`.

    If the clock went back a little, it was probably corrected, and `last` is used again. If it went back further, the
    clock is used as it is, and verification reports it.
    """
    text = time_text(now)
    if text >= last or time_text(now + CLOCK_CORRECTION) < last:
        return text
    return last


# Checkpoints -----------------------------------------------------------------------------------------------

CheckSignature = Callable[[str, bytes, bytes], bool]  # (public key `ed25519:…`, message, signature) -> valid


class Checkpoint(NamedTuple):
    """A signed statement that a ledger had this size and this root; a row of the table of checkpoints."""

    size: int  # index column; the body is authoritative
    body: bytes
    signature: bytes


class CheckpointFacts(Fact, frozen=True, kw_only=True):
    """The fields of a checkpoint."""

    ledger: str
    size: Count
    root: str
    time: str
    key: str
    kind: Literal["checkpoint"] = "checkpoint"
    format: Literal[2] = FORMAT


def checkpoint_body(ledger: str, size: int, root: bytes, time: str, key: str) -> bytes:
    """The bytes of a checkpoint that its signature is over."""
    return canonical_json(CheckpointFacts(ledger=ledger, size=size, root=hash_text(root), time=time, key=key))


def read_checkpoint(body: bytes) -> CheckpointFacts:
    """Read a checkpoint as strictly as an entry; `Unsound` if it is not one."""
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
    if type(body) is not bytes:  # SQLite stores any type in any column
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
    """The message about an entry of another format; empty if the format is this one, or none is stated."""
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
    """Read a JSON object; `Unsound` if it is not encoded canonically, or has a float."""
    try:
        found = _ANY.decode(data)
        encoded = canonical_json(found)
    except (ValueError, RecursionError) as wrong:
        raise Unsound(f"it is not canonical JSON: {wrong}") from None
    if encoded != data or not isinstance(found, dict):
        raise Unsound("it is not a canonical JSON object")
    return found
