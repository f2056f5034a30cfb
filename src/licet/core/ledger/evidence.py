"""Evidence packs: a few entries that can be checked without their ledger, signed as an in-toto Statement in DSSE.

A pack has a signed checkpoint, the bytes of its entries, and for each entry its number and the inclusion proof for the
tree of the checkpoint. The same entries and checkpoint always give the same bytes. A pack proves that its entries are
in the ledger. It does not prove that other entries do not exist.
"""

import base64
import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from msgspec import Struct

from licet.core.canonical import canonical_json
from licet.core.ledger.entry import (
    Checkpoint,
    CheckpointFacts,
    CheckSignature,
    LinkedEntry,
    Row,
    Unsound,
    canonical_object,
    entry_fields,
    hash_text,
    read_checkpoint,
    read_entry,
)
from licet.core.ledger.merkle import includes, leaf_hash
from licet.core.ledger.verify import Finding

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:licet:receipts:2"


class Pack(Struct, frozen=True):
    """The contents of a pack that was checked."""

    key: str
    checkpoint: CheckpointFacts
    entries: tuple[dict[str, Any], ...]  # the number and the fields of each


# Checkpoints that are stored elsewhere ------------------------------------------------------------------------------


def checkpoint_line(checkpoint: Checkpoint) -> str:
    """A checkpoint as one line of text, to store it outside the ledger."""
    fields = {"checkpoint": canonical_object(checkpoint.body), "signature": _text(checkpoint.signature)}
    return canonical_json(fields).decode()


def read_checkpoint_lines(text: str) -> list[Checkpoint]:
    """Read checkpoints, one per line; `Unsound` if a line is not a checkpoint, or there is none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = canonical_object(line.strip().encode())
            if fields.keys() != {"checkpoint", "signature"}:
                raise Unsound("expected a line that `licet receipts head` has printed")
            body = canonical_json(fields["checkpoint"])
            found.append(Checkpoint(read_checkpoint(body).size, body, _bytes(fields["signature"])))
        except ValueError as wrong:
            raise Unsound(f"line {number} is no checkpoint of a ledger: {wrong}") from None
    if not found:
        raise Unsound("there is no checkpoint in it")
    return found


# Making --------------------------------------------------------------------------------------------------------------


def statement(rows: Iterable[Row], checkpoint: Checkpoint, proofs: dict[int, list[bytes]]) -> bytes:
    """The in-toto Statement about some entries, as canonical JSON. The keys of `proofs` are indexes from 0."""
    rows = sorted(rows, key=lambda row: row.number)
    subjects = [{"name": f"{row.id}/{row.kind}", "digest": {"sha256": sha256(row.body).hexdigest()}} for row in rows]
    entries = [
        {"body": row.body.decode(), "number": row.number, "proof": [step.hex() for step in proofs[row.number - 1]]}
        for row in rows
    ]
    signed = {"body": checkpoint.body.decode(), "signature": _text(checkpoint.signature)}
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": subjects,
            "predicateType": PREDICATE_TYPE,
            "predicate": {"checkpoint": signed, "entries": entries},
        }
    )


def to_sign(payload: bytes) -> bytes:
    """The bytes that are signed for a payload: DSSE's pre-authentication encoding, which includes the payload type."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, key: str, signature: bytes) -> str:
    """The DSSE envelope around a signed payload."""
    signed = {"keyid": key, "sig": base64.b64encode(signature).decode()}
    packed = base64.b64encode(payload).decode()
    return canonical_json({"payload": packed, "payloadType": PAYLOAD_TYPE, "signatures": [signed]}).decode() + "\n"


# Checking ------------------------------------------------------------------------------------------------------------


def is_pack(data: bytes) -> bool:
    """Whether data looks like a pack. Nothing is verified: it may be forged."""
    try:
        found = json.loads(base64.b64decode(json.loads(data)["payload"]))
        return bool(found["predicateType"] == PREDICATE_TYPE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def check_pack(data: bytes, key: str, check: CheckSignature) -> Pack | Finding:
    """Check a pack against a public key; return its contents, or the first error."""
    try:
        checkpoint, packed, subjects = _contents(data, key, check)
    except (KeyError, TypeError, AttributeError):
        return Finding("edited", 0, "the pack does not have the fields of a pack")
    except ValueError as wrong:
        return Finding("edited", 0, f"the pack: {wrong}")
    entries: list[dict[str, Any]] = []
    tails: dict[tuple[str, str], tuple[int, bytes]] = {}
    for one, subject in zip(packed, subjects, strict=True):
        last = entries[-1]["number"] if entries else 0
        try:
            body, number, proof = one["body"].encode(), one["number"], [bytes.fromhex(step) for step in one["proof"]]
            entry = read_entry(body)
            problem = _misplaced(entry, body, number, proof, checkpoint, last)
            problem = problem or _misnamed(entry, body, subject) or _unlinked(entry, body, tails)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return Finding("edited", last + 1, f"it cannot be read: {error}")
        if problem:
            return Finding("edited", number, problem, entry.id)
        entries.append({"number": number, **entry_fields(body)})
    return Pack(key, checkpoint, tuple(entries))


def _contents(data: bytes, key: str, check: CheckSignature) -> tuple[CheckpointFacts, list[Any], list[Any]]:
    """Check both signatures; return the checkpoint, the entries and the subjects of a pack."""
    found = canonical_object(_payload(data, key, check))
    if found.get("_type") != STATEMENT_TYPE or found.get("predicateType") != PREDICATE_TYPE:
        raise Unsound(f"it is no statement of type {PREDICATE_TYPE}")
    checkpoint = _checkpoint(found["predicate"]["checkpoint"], key, check)
    packed, subjects = found["predicate"]["entries"], found["subject"]
    if not packed or len(packed) != len(subjects):
        raise Unsound(f"it has {len(subjects)} subjects and {len(packed)} entries")
    return checkpoint, packed, subjects


def _payload(data: bytes, key: str, check: CheckSignature) -> bytes:
    found = canonical_object(data.strip())
    if found.keys() != {"payload", "payloadType", "signatures"} or found["payloadType"] != PAYLOAD_TYPE:
        raise Unsound(f"it is no DSSE envelope around {PAYLOAD_TYPE}")
    payload = _bytes(found["payload"])
    if not any(check(key, to_sign(payload), _bytes(one["sig"])) for one in found["signatures"]):
        raise Unsound(f"it has no valid signature of {key}")
    return payload


def _checkpoint(signed: dict[str, str], key: str, check: CheckSignature) -> CheckpointFacts:
    body = signed["body"].encode()
    facts = read_checkpoint(body)
    if facts.key != key or not check(key, body, _bytes(signed["signature"])):
        raise Unsound(f"its checkpoint has no valid signature of {key}")
    return facts


def _misplaced(
    entry: LinkedEntry, body: bytes, number: object, proof: list[bytes], checkpoint: CheckpointFacts, last: int
) -> str:
    """Why the proof does not show that an entry has this number in the ledger of the checkpoint; empty if it does."""
    if type(number) is not int:
        raise Unsound("its number is not an integer")
    if number <= last:
        return f"it comes after entry {last}"
    if entry.ledger != checkpoint.ledger:
        return f"it was written to the ledger {entry.ledger}, and the checkpoint is of {checkpoint.ledger}"
    if not includes(leaf_hash(body), number - 1, checkpoint.size, proof, bytes.fromhex(checkpoint.root[7:])):
        return f"the checkpoint of {checkpoint.time} does not cover it"
    return ""


def _misnamed(entry: LinkedEntry, body: bytes, subject: dict[str, Any]) -> str:
    """Why a subject does not match its entry; empty if it does."""
    expected = {"name": f"{entry.id}/{entry.kind}", "digest": {"sha256": sha256(body).hexdigest()}}
    return "" if subject == expected else f"its subject is `{subject.get('name')}` with another digest"


def _unlinked(entry: LinkedEntry, body: bytes, tails: dict[tuple[str, str], tuple[int, bytes]]) -> str:
    """Why an entry does not link to its session's previous one; empty if it does, or that one is not in the pack."""
    session = entry.agent, entry.session
    sequence, before = tails.get(session, (0, b""))
    tails[session] = entry.sequence, leaf_hash(body)
    links = entry.previous == (hash_text(before) if before else None)
    return "it does not link to the one before it" if entry.sequence == sequence + 1 and not links else ""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise Unsound("a signature is text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unsound("a signature is no base64") from None
