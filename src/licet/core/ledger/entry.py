"""What a ledger keeps of a call: one entry as canonical JSON, hashed, linked to the one before it in its session.

An entry is written in two steps. Its stem holds what the call knows; number, previous hash and time of keeping come
from the ledger at the moment when the entry is kept. Numbers that may be fractions (money, durations) are text, so
that RFC 8785 and a plain JSON writer with sorted keys agree on every byte.

Signed heads of a ledger: what is signed of it now and then, and what such a statement says.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from json import encoder
from typing import Any, NamedTuple

from licet.core.canonical import canonical_json
from licet.core.ledger.merkle import leaf_hash

FORMAT = 1
quoted: Callable[[str], str] = encoder.encode_basestring
SMOOTHED = timedelta(minutes=1)  # how far a clock may go back and be taken for one that was only set right
KINDS = ("decision", "receipt")
VERDICTS = ("allow", "ask", "deny")
_TEXT, _MAYBE, _LIST, _NUMBER = (str,), (str, type(None)), (list,), (int,)

# Every key of an entry with the types it may have; `bodies` is there with `record: full` alone.
KEYS: dict[str, tuple[type, ...]] = {
    "agent": _TEXT,
    "approvals": _LIST,
    "arguments": _MAYBE,
    "bodies": (dict,),
    "budget": (dict, type(None)),
    "code": _MAYBE,
    "cost_usd": _TEXT,
    "duration_ms": _MAYBE,
    "error": _MAYBE,
    "events": _LIST,
    "format": _NUMBER,
    "id": _TEXT,
    "kind": _TEXT,
    "ledger": _TEXT,
    "manifest": _TEXT,
    "number": _NUMBER,
    "parent": (dict, type(None)),
    "previous": _MAYBE,
    "reason": _TEXT,
    "recorded": _TEXT,
    "result": _MAYBE,
    "rules": _LIST,
    "sandbox": (dict,),
    "sequence": _NUMBER,
    "session": _TEXT,
    "time": _TEXT,
    "tool": _TEXT,
    "tool_digest": _MAYBE,
    "truncated": (bool,),
    "verdict": _TEXT,
}


_new = tuple.__new__  # for what is a named tuple: making it so costs a third of calling its class


class Unsound(ValueError):
    """Bytes that are no entry and no head of a ledger: why."""


class Frame:
    """What many entries have in common: who called what, and how it came out."""

    __slots__ = ("chain", "link")

    def __init__(self, agent: str, session: str, link: "Callable[[Stem, str, int, int, bytes, str], Row]") -> None:
        self.chain = agent, session  # that its entries are part of
        self.link = link  # to one entry: with the name of the ledger, number, sequence, hash before it and time


# An entry but for what only the ledger knows: its frame, id and time, and then what is JSON already, which is arguments
# up to budget, result, and how long it took. It is a bare tuple: one with names takes much longer to be taken apart.
Stem = tuple[Frame, str, str, str, str, str]


def frame(
    kind: str,
    agent: str,
    session: str,
    tool: str,
    *,
    manifest: str,
    tool_digest: str | None,
    parent: tuple[str, str] | None = None,
    verdict: str = "allow",
    reason: str = "ALLOWED",
    code: str | None = None,
    cost_usd: str = "0",
    error: str | None = None,
    truncated: bool = False,
    approvals: str = "[]",
    events: str = "[]",
    rules: str = "[]",
    sandbox: str = "{}",
) -> Frame:
    """Write down everything but what differs from call to call; the last four are JSON already.

    The parent is the agent and the session that has delegated.
    """
    above = f'{{"agent":{quoted(parent[0])},"session":{quoted(parent[1])}}}' if parent else "null"
    cut = "true" if truncated else "false"
    # JSON between what differs; a function has it at hand, where a tuple would be taken apart for every entry.
    opening = f'{{"agent":{quoted(agent)},"approvals":{approvals},"arguments":'
    outcome = f',"code":{maybe(code)},"cost_usd":"{cost_usd}","duration_ms":'
    happened = f',"error":{maybe(error)},"events":{events},"format":{FORMAT},"id":'
    kept = f',"kind":"{kind}","ledger":"'
    under = f'","manifest":{quoted(manifest)},"number":'
    above = f',"parent":{above},"previous":'
    why = f',"reason":"{reason}","recorded":"'
    around = f',"rules":{rules},"sandbox":{sandbox},"sequence":'
    place = f',"session":{quoted(session)},"time":"'
    end = f'","tool":{quoted(tool)},"tool_digest":{maybe(tool_digest)},"truncated":{cut},"verdict":"{verdict}"}}'

    def linked(one: Stem, ledger: str, number: int, sequence: int, before: bytes, recorded: str) -> Row:
        _, name, time, said, result, duration = one
        previous = f'"sha256:{before.hex()}"' if before else "null"
        text = (
            f"{opening}{said}{outcome}{duration}{happened}{quoted(name)}{kept}{ledger}{under}{number}{above}{previous}"
            f'{why}{recorded}","result":{result}{around}{sequence}{place}{time}{end}'
        )
        try:
            body = text.encode()
        except UnicodeEncodeError:  # half a character, from the name of a file or of a tool that nobody knows
            body, whose = text.encode(errors="replace"), map(_encodable, (name, kind, agent, session))
            rest = _encodable(tool), verdict, time, leaf_hash(body), body
            return Row._make((number, *whose, sequence, *rest))
        row = number, name, kind, agent, session, sequence, tool, verdict, time, leaf_hash(body), body
        made: Row = _new(Row, row)
        return made

    return Frame(agent, session, linked)


def stem(
    within: Frame,
    id: str,  # noqa: A002
    time: str,
    arguments: str = "null",
    result: str = "null",
    duration_ms: str = "null",
    budget: str = "null",
    bodies: str = "",
) -> Stem:
    """What differs, beside its frame."""
    return within, id, time, given(arguments, bodies, budget), result, duration_ms


def given(arguments: str, bodies: str, budget: str) -> str:
    """What a call was given: its arguments, and what was set aside for it."""
    return f'{arguments},{bodies}"budget":{budget}'


class Tail(NamedTuple):
    """The end of one session's chain."""

    sequence: int = 0
    hash: bytes = b""
    number: int = 0


START = Tail()


class Row(NamedTuple):
    """One entry as a ledger keeps it: the body is what counts, all else is for searching and held to it."""

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


def link(one: Stem, ledger: str, number: int, tail: Tail, recorded: str) -> Row:
    """The entry that a stem becomes behind the tail of its session."""
    return one[0].link(one, ledger, number, tail.sequence + 1, tail.hash, recorded)


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def maybe(text: str | None) -> str:
    """A text or null, as JSON."""
    return "null" if text is None else quoted(text)


def listed(texts: tuple[str, ...] | list[str]) -> str:
    """A list of texts, as JSON."""
    return "[" + ",".join(map(quoted, texts)) + "]"


def time_text(moment: datetime) -> str:
    """A moment in UTC with microseconds: `2026-01-01T00:00:00.000000Z`."""
    if moment.tzinfo is UTC:
        first, last, text = _second
        if not first <= moment <= last:
            first, last, text = _new_second(moment)
        thousands, rest = divmod(moment.microsecond, 1000)
        return f"{text}{_DIGITS[thousands]}{_DIGITS[rest]}Z"
    offset = moment.utcoffset()  # without one it is UTC already
    bare = moment.replace(tzinfo=None)
    return (bare if offset is None else bare - offset).isoformat("T", "microseconds") + "Z"


# The second that was last asked for, and how every moment in it begins: calls come many to one. Threads that look at it
# see one second or another, never half of each.
_second = (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), "")
_DIGITS = [f"{number:03}" for number in range(1000)]  # to look up is half of what it costs to format


def _new_second(moment: datetime) -> tuple[datetime, datetime, str]:
    global _second
    first, last = moment.replace(microsecond=0), moment.replace(microsecond=999_999)
    made = _second = first, last, first.replace(tzinfo=None).isoformat("T", "seconds") + "."
    return made


def kept_at(now: datetime, last: str) -> str:
    """The time at which an entry is kept, after one that was kept at `last`.

    A clock that is set right goes back a little, and that is smoothed; one that goes back further is told as it is.
    """
    text = time_text(now)
    if text >= last or time_text(now + SMOOTHED) < last:
        return text
    return last


def check_entry(body: bytes) -> dict[str, Any]:
    """What an entry says, read strictly: one spelling, known keys, right types; `Unsound` if it is not so."""
    entry = canonical_object(body)
    if type(entry.get("format")) is int and entry["format"] > FORMAT:
        raise Unsound(f"it has format {entry['format']}, which a newer licet has written: use that one")
    for key, kinds in KEYS.items():
        if key not in entry and key != "bodies":
            raise Unsound(f"`{key}` is missing")
        if key in entry and type(entry[key]) not in kinds:
            raise Unsound(f"`{key}` is {json.dumps(entry[key])[:40]}, which it cannot be")
    if unknown := entry.keys() - KEYS.keys():
        raise Unsound(f"`{min(unknown)}` is not known")
    for key, values in (("format", (FORMAT,)), ("kind", KINDS), ("verdict", VERDICTS)):
        if entry[key] not in values:
            raise Unsound(f"`{key}` is {json.dumps(entry[key])[:40]}, which it cannot be")
    return entry


def canonical_object(data: bytes) -> dict[str, Any]:
    """The object that canonical JSON without fractions says; any other spelling of it is `Unsound`."""
    if type(data) is not bytes:  # whoever can write a file can put a number or a text in their place
        raise Unsound("it is no bytes")
    try:
        found = json.loads(data, object_pairs_hook=_pairs, parse_float=_fraction, parse_constant=_fraction)
        again = canonical_text(found)
    except (ValueError, RecursionError) as wrong:
        raise Unsound(f"it is no canonical JSON: {wrong}") from None
    if again != data or not isinstance(found, dict):
        raise Unsound("it is no canonical JSON object")
    return found


def canonical_text(value: Any) -> bytes:
    """Data without fractions and with plain keys, as RFC 8785 writes it."""
    return canonical_json(value)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # a lenient reader would show one value, and a strict one the other
        raise Unsound("a key is there twice")
    return found


def _fraction(text: str) -> Any:
    raise Unsound(f"`{text}` is no whole number")


CheckSignature = Callable[[str, bytes, bytes], bool]  # of the key `ed25519:…`: message, signature


class Head(NamedTuple):
    """A signed statement that a ledger had a size and a root."""

    size: int  # as it is searched for; the body counts
    body: bytes
    signature: bytes


class HeadFacts(NamedTuple):
    """What a head says."""

    ledger: str
    size: int
    root: str
    time: str
    key: str


def head_body(ledger: str, size: int, root: bytes, time: str, key: str) -> bytes:
    """The bytes that are signed."""
    facts = {"key": key, "ledger": ledger, "root": f"sha256:{root.hex()}", "size": size, "time": time}
    return canonical_json({"format": FORMAT, "kind": "head", **facts})


def read_head(body: bytes) -> HeadFacts:
    """What a head says, read strictly; `Unsound` if it is none."""
    found = canonical_object(body)
    if type(found.get("format")) is int and found["format"] > FORMAT:
        raise Unsound(f"it has format {found['format']}, which a newer licet has written: use that one")
    texts = ("key", "kind", "ledger", "root", "time")
    if found.keys() != {"format", "size", *texts} or found["format"] != FORMAT or found["kind"] != "head":
        raise Unsound("it is no head of a ledger")
    if any(type(found[name]) is not str for name in texts) or type(found["size"]) is not int or found["size"] < 0:
        raise Unsound("it is no head of a ledger")
    return HeadFacts(*(found[name] for name in HeadFacts._fields))
