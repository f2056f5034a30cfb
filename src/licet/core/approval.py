"""What a person is asked, in the one spelling that is stored, shown and signed; and whose yes counts.

Pure: the time and the check of a signature are passed in. An answer can only repeat the request, or say less.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from licet.core.canonical import canonical_json, digest
from licet.values import dataclass, fields

FORMAT = 1
KEY = "ed25519:"
UNSIGNED = "command"  # who said yes where nobody has signed

_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of two points of order 8
_SMALL = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})  # y of all eight points whose order divides 8

_LATER = frozenset({"acts", "why"})  # fields that requests of earlier versions do not have

Scope = Literal["session", "call", "use"]  # any call of a session, this one call, this one act inside of it
Verify = Callable[[bytes, bytes, bytes], bool]  # public key, signature, what was signed


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One request: everything that the answer is bound to. Times are milliseconds of UTC."""

    id: str
    nonce: str
    agent: str
    session: str
    tool: str
    tool_digest: str
    manifest: str
    scope: Scope
    arguments: str  # the digest of the exact arguments of the call that asked
    use: str  # the one act, where only that is meant
    effect: str
    directory: str  # what relative paths begin at
    stakes: tuple[str, ...]  # what the call would hold
    asked: int
    expires: int
    acts: tuple[str, ...] = ()  # deletes that the call is known to make, which the same yes is for, each once
    why: str = ""  # what asks, in words

    @property
    def subject(self) -> str:
        """The address of what is asked about: two calls with the same one may share an answer, but for the acts."""
        said = self._said()
        for name in ("id", "nonce", "asked", "expires", "acts", "why"):
            said.pop(name, None)
        if self.scope == "session":
            del said["arguments"]
        return digest(said)

    def text(self) -> str:
        """The canonical JSON of this request."""
        return canonical_json(self._said()).decode()

    def statement(self, *, only_these_arguments: bool = False) -> bytes:
        """What whoever says yes signs: exactly this request, or less."""
        return canonical_json(
            {
                "licet": "approval",  # a signature of anything else can never be taken for one of these
                "format": FORMAT,
                "answer": "approved",
                "only_these_arguments": only_these_arguments,
                "request": self._said(),
            }
        )

    def same_acts(self, other: "ApprovalRequest") -> bool:
        """Whether another request for the same is for the same acts, too; acts belong to exact arguments."""
        return self.acts == other.acts and (not self.acts or self.arguments == other.arguments)

    def _said(self) -> dict[str, Any]:
        """The fields; later ones are left out where they are empty, so that older requests read as they were signed."""
        said = asdict(self)
        return {name: value for name, value in said.items() if value or name not in _LATER}

    def live(self, now: int, seconds: int) -> bool:
        """Whether an answer can still be given and used: by our clock, and never for longer than the manifest says."""
        started = self.asked <= now + 1000  # clocks are set back a little now and then
        return started and now < self.expires <= self.asked + seconds * 1000


def request_from(data: Mapping[str, Any]) -> ApprovalRequest:
    """The request that was written as JSON; `ValueError` if it is none."""
    names = {field.name for field in fields(ApprovalRequest)}
    if not names - _LATER <= data.keys() <= names:
        raise ValueError("a request with other fields")
    return ApprovalRequest(**{**data, "stakes": tuple(data["stakes"]), "acts": tuple(data.get("acts", ()))})


class Yes(NamedTuple):
    """One answer that agrees: who, to how much of it, and the signature if there is one."""

    by: str
    only_these_arguments: bool = False
    signature: bytes = b""


def agreeing(
    request: ApprovalRequest, given: Iterable[Yes], arguments: str, keys: tuple[str, ...] | None, verify: Verify
) -> tuple[str, ...]:
    """Those whose yes counts for a call with these arguments, each of them once.

    Where keys are listed only their signatures count, and a key counts once however it is spelled.
    """
    listed = None if keys is None else {key_bytes(key) for key in keys} - {None}
    counted = set()
    for one in given:
        if one.only_these_arguments and arguments != request.arguments:
            continue
        key = key_bytes(one.by)
        if key is not None:
            signed = request.statement(only_these_arguments=one.only_these_arguments)
            if (listed is None or key in listed) and verify(key, one.signature, signed):
                counted.add(key_text(key))
        elif listed is None:
            counted.add(one.by)
    return tuple(sorted(counted))


def enough(by: tuple[str, ...], quorum: int, keys: tuple[str, ...] | None) -> bool:
    """Whether so many have agreed as must; several who cannot be told apart are never enough."""
    return len(by) >= quorum and (quorum == 1 or keys is not None)


def key_text(key: bytes) -> str:
    """The one spelling of a public key."""
    return KEY + base64.urlsafe_b64encode(key).decode().rstrip("=")


def key_bytes(text: str) -> bytes | None:
    """The public key in a text, in either alphabet of base 64; None if it is none, or one that anybody signs for."""
    key = _decoded(text)
    return None if key is None or _of_small_order(key) else key


def checked_key(text: str) -> str:
    """The text of a public key; `ValueError` if anybody could sign for it."""
    key = _decoded(text)
    if key is not None and _of_small_order(key):
        raise ValueError("anybody can sign for this one: make a key with `licet approvals key FILE`")
    return text


def _of_small_order(key: bytes) -> bool:
    """Whether a key is a point of small order, in whatever spelling.

    Nobody holds the private half of such a key, and nobody needs it: under the neutral element one constant verifies
    as the signature of every message, and under the others one message in eight, which is soon found. Verifying does
    not rule them out (RFC 8032 does not ask for it), and takes y above the prime for what is left of it.
    """
    y = int.from_bytes(key, "little") & (2**255 - 1)  # the last bit says which of two x is meant
    return y % _PRIME in _SMALL


def _decoded(text: str) -> bytes | None:
    if not text.startswith(KEY):
        return None
    body = text.removeprefix(KEY).rstrip("=").replace("+", "-").replace("/", "_")
    try:
        key = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return key if len(key) == 32 else None
