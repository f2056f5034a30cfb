"""What a person is asked, in the one spelling that is stored, shown and signed; and whose yes counts.

Pure: the time and the check of a signature are passed in. An answer can only repeat the request, or say less.

A request for an approval in words: the tool, its effect, the exact arguments, and what is at stake.

Arguments come from a model. Whatever in them acts on a terminal, hides or turns text around is escaped out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from unicodedata import bidirectional

from msgspec import Struct
from msgspec.structs import asdict

from licet.core.algebra.domains import KIND_OF_DOMAIN
from licet.core.algebra.scope import escaped, visible
from licet.core.canonical import canonical_json, digest, key_bytes, key_text

FORMAT = 1
UNSIGNED = "command"  # who said yes where nobody has signed

_LATER = frozenset({"acts", "why"})  # fields that requests of earlier versions do not have

Scope = Literal["session", "call", "use"]  # any call of a session, this one call, this one act inside of it
Verify = Callable[[bytes, bytes, bytes], bool]  # public key, signature, what was signed


class ApprovalRequest(Struct, frozen=True):
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
    names = set(ApprovalRequest.__struct_fields__)
    if not names - _LATER <= data.keys() <= names:
        raise ValueError("a request with other fields")
    return ApprovalRequest(**{**data, "stakes": tuple(data["stakes"]), "acts": tuple(data.get("acts", ()))})


class Yes(Struct, frozen=True):
    """One answer that agrees: who, to how much of it, and the signature if there is one."""

    by: str
    only_these_arguments: bool = False
    signature: bytes = b""


def agreeing(
    request: ApprovalRequest, given: Iterable[Yes], arguments: str, keys: tuple[str, ...] | None, verify: Verify
) -> tuple[str, ...]:
    """Those whose yes counts for a call with these arguments, each of them once.

    Where keys are listed only their signatures count, and a key counts once however it is escaped.
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


_FOR = {
    "session": "for every call of it in this session, with any arguments",
    "call": "once, with exactly these arguments",
    "use": "once, for exactly this act",
}
_ONLY_THESE = "for every call of it in this session, with exactly these arguments"
_TURNS = frozenset(("R", "AL", "AN"))  # letters and digits that are read from the right, and move what is beside them
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told(request: ApprovalRequest, arguments: Mapping[str, Any] | None, *, narrow: bool = False) -> Iterator[str]:
    """The lines that a person reads before answering; what decides stands last, where nothing can push it away.

    `narrow` says that only calls with exactly these arguments were agreed to.
    """
    for name, value in sorted((arguments or {}).items()):
        yield _line("argument", f"{shown(name)}: {shown(value)}")
    if not arguments:
        yield _line("arguments", "none" if arguments is not None else "no longer kept: nobody answered in time")
    kinds: dict[str, list[str]] = {}
    for rule in request.stakes:
        kinds.setdefault(KIND_OF_DOMAIN.get(rule.partition(":")[0], "also"), []).append(rule)
    for kind in sorted(kinds):
        for rule in kinds[kind]:
            yield _line(kind, rule)
    yield _line("directory", request.directory)
    yield _line("agent", f"{request.agent}, session {request.session}")
    yield _line("manifest", request.manifest)
    for act in filter(None, (request.use, *request.acts)):
        yield _line("act", act)
    if request.why:
        yield _line("because", request.why)
    yield _line("effect", request.effect)
    yield _line("tool", request.tool)
    holds = _ONLY_THESE if narrow and request.scope == "session" else _FOR[request.scope]
    yield _line("holds", f"{holds}{'; each act once' if request.acts else ''}")
    yield _line("until", time_text(request.expires))


def shown(value: Any) -> str:
    """A value of an argument: JSON, with letters as letters, and what hides or turns text around as an escape."""
    return in_order(json.dumps(value, ensure_ascii=False, sort_keys=True))


def in_order(text: str) -> str:
    """Text that any screen shows from left to right: between Hebrew letters, two numbers would change places."""
    return "".join(escaped(char) if bidirectional(char) in _TURNS else char for char in visible(text))


def time_text(milliseconds: int) -> str:
    """A time as people and programs read it."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(title: str, text: str) -> str:
    return f"  {title:<14}{in_order(text)}"
