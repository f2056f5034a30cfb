"""Signed heads of a ledger: what is signed of it now and then, and what such a statement says."""

from collections.abc import Callable
from typing import NamedTuple

from licet.core.canonical import quoted
from licet.core.receipt import FORMAT, Unsound, canonical_object

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
    return (
        f'{{"format":{FORMAT},"key":{quoted(key)},"kind":"head","ledger":{quoted(ledger)},'
        f'"root":"sha256:{root.hex()}","size":{size},"time":{quoted(time)}}}'
    ).encode()


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
