"""Evidence packs: a few entries of a ledger that can be checked without it, signed as an in-toto Statement in DSSE.

A pack holds the entries byte for byte, a signed head, and for each entry the way to that head's root. The same entries
and head give the same bytes. A pack shows that its entries are in the ledger; not that others are absent.
"""

import base64
import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from licet.core.canonical import canonical_json
from licet.core.ledger.entry import (
    CheckSignature,
    Head,
    HeadFacts,
    Row,
    Unsound,
    canonical_object,
    check_entry,
    read_head,
)
from licet.core.ledger.linked import Finding
from licet.core.ledger.merkle import includes, leaf_hash

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:licet:receipts:1"


class Pack(NamedTuple):
    """What a pack says, once it was checked."""

    key: str
    head: HeadFacts
    entries: tuple[dict[str, Any], ...]


def sound_entry(row: Row) -> dict[str, Any]:
    """What an entry says, if it is what was hashed and is searched for by what it says; otherwise `Unsound`."""
    if type(row.body) is not bytes or leaf_hash(row.body) != row.hash:  # a file may hold anything there
        raise Unsound("its bytes are not those that were hashed")
    entry = check_entry(row.body)
    for name in ("number", "id", "kind", "agent", "session", "sequence", "tool", "verdict", "time"):
        if getattr(row, name) != entry[name]:
            raise Unsound(f"it is searched for by {name} `{getattr(row, name)}`, and says `{entry[name]}`")
    return entry


# Heads that are kept elsewhere ---------------------------------------------------------------------------------------


def head_line(head: Head) -> str:
    """A head as one line of text, to be kept somewhere else than the ledger."""
    return canonical_json({"head": canonical_object(head.body), "signature": _text(head.signature)}).decode()


def kept_heads(text: str) -> list[Head]:
    """The heads in a text, one to a line; `Unsound` if a line is none or there is not a single one."""
    heads = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            kept = canonical_object(line.strip().encode())
            if kept.keys() != {"head", "signature"}:
                raise Unsound("expected a line that `licet receipts head` has printed")
            body = canonical_json(kept["head"])
            heads.append(Head(read_head(body).size, body, _bytes(kept["signature"])))
        except (UnicodeEncodeError, ValueError) as wrong:
            raise Unsound(f"line {number} is no head of a ledger: {wrong}") from None
    if not heads:
        raise Unsound("there is no head in it")
    return heads


# Making --------------------------------------------------------------------------------------------------------------


def statement(rows: Iterable[Row], head: Head, proofs: dict[int, list[bytes]]) -> bytes:
    """The in-toto Statement about some entries, as canonical JSON; the proofs are by index, from 0."""
    rows = sorted(rows, key=lambda row: row.number)
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": f"{row.id}/{row.kind}", "digest": {"sha256": sha256(row.body).hexdigest()}} for row in rows
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "head": {"body": head.body.decode(), "signature": _text(head.signature)},
                "entries": [
                    {"body": row.body.decode(), "proof": [step.hex() for step in proofs[row.number - 1]]}
                    for row in rows
                ],
            },
        }
    )


def to_sign(payload: bytes) -> bytes:
    """What is signed of a payload: DSSE's pre-authentication encoding, which binds its type."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, key: str, signature: bytes) -> str:
    """The DSSE envelope around a signed payload."""
    signed = {"keyid": key, "sig": base64.b64encode(signature).decode()}
    packed = base64.b64encode(payload).decode()
    return canonical_json({"payload": packed, "payloadType": PAYLOAD_TYPE, "signatures": [signed]}).decode() + "\n"


# Checking ------------------------------------------------------------------------------------------------------------


def is_pack(data: bytes) -> bool:
    """Whether something is a pack, by its form alone: not whether it is a sound one."""
    try:
        said = json.loads(base64.b64decode(json.loads(data)["payload"]))
        return bool(said["predicateType"] == PREDICATE_TYPE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def check_pack(data: bytes, key: str, check: CheckSignature) -> Pack | Finding:
    """What a pack says, held to a public key; or the first thing that is wrong with it, and at which entry."""
    try:
        facts, kept, subjects = _said(data, key, check)
    except (KeyError, TypeError, AttributeError):
        return Finding("edited", 0, "the pack is not written as packs are")
    except ValueError as wrong:
        return Finding("edited", 0, f"the pack: {wrong}")
    entries: list[dict[str, Any]] = []
    tails: dict[tuple[str, str], tuple[int, bytes]] = {}
    for one, subject in zip(kept, subjects, strict=True):
        last = entries[-1]["number"] if entries else 0
        try:
            body, proof = one["body"].encode(), [bytes.fromhex(step) for step in one["proof"]]
            entry = check_entry(body)
            misfit = _standing(entry, body, proof, facts, subject, last) or _linked(entry, body, tails)
        except (KeyError, TypeError, AttributeError, ValueError) as wrong:
            return Finding("edited", last + 1, f"it cannot be read: {wrong}")
        if misfit:
            return Finding("edited", entry["number"], misfit, entry["id"])
        entries.append(entry)
    return Pack(key, facts, tuple(entries))


def _said(data: bytes, key: str, check: CheckSignature) -> tuple[HeadFacts, list[Any], list[Any]]:
    """The head, the entries and the names that a signed pack holds."""
    said = canonical_object(_payload(data, key, check))
    if said.get("_type") != STATEMENT_TYPE or said.get("predicateType") != PREDICATE_TYPE:
        raise Unsound(f"it is no statement of type {PREDICATE_TYPE}")
    facts = _head(said["predicate"]["head"], key, check)
    kept, subjects = said["predicate"]["entries"], said["subject"]
    if not kept or len(kept) != len(subjects):
        raise Unsound(f"it is about {len(subjects)} things, and holds {len(kept)} entries")
    return facts, kept, subjects


def _payload(data: bytes, key: str, check: CheckSignature) -> bytes:
    said = canonical_object(data.strip())
    if said.keys() != {"payload", "payloadType", "signatures"} or said["payloadType"] != PAYLOAD_TYPE:
        raise Unsound(f"it is no DSSE envelope around {PAYLOAD_TYPE}")
    payload = _bytes(said["payload"])
    if not any(check(key, to_sign(payload), _bytes(one["sig"])) for one in said["signatures"]):
        raise Unsound(f"it bears no signature of {key}")
    return payload


def _head(said: dict[str, str], key: str, check: CheckSignature) -> HeadFacts:
    body = said["body"].encode()
    facts = read_head(body)
    if facts.key != key or not check(key, body, _bytes(said["signature"])):
        raise Unsound(f"its head bears no signature of {key}")
    return facts


def _standing(
    entry: dict[str, Any], body: bytes, proof: list[bytes], head: HeadFacts, subject: dict[str, Any], last: int
) -> str:
    """Why an entry is not where it says in the ledger of the head; nothing if it is."""
    if entry["number"] <= last:
        return f"it stands after entry {last}"
    if entry["ledger"] != head.ledger:
        return f"it was written to the ledger {entry['ledger']}, and the head is of {head.ledger}"
    if not includes(leaf_hash(body), entry["number"] - 1, head.size, proof, bytes.fromhex(head.root[7:])):
        return f"it is not what the head of {head.time} speaks for"
    named = {"name": f"{entry['id']}/{entry['kind']}", "digest": {"sha256": sha256(body).hexdigest()}}
    return "" if subject == named else f"it is named `{subject.get('name')}` with another digest"


def _linked(entry: dict[str, Any], body: bytes, tails: dict[tuple[str, str], tuple[int, bytes]]) -> str:
    """Why an entry does not follow the one before it of its session, where that is in the pack too."""
    session = entry["agent"], entry["session"]
    sequence, before = tails.get(session, (0, b""))
    tails[session] = entry["sequence"], leaf_hash(body)
    follows = entry["previous"] == (f"sha256:{before.hex()}" if before else None)
    return "it does not follow the one before it" if entry["sequence"] == sequence + 1 and not follows else ""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise Unsound("a signature is text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unsound("a signature is no base64") from None
