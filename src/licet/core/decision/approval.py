"""Requests for approval: the canonical form that is stored and signed, the lines that a person reads, whose yes counts.

- An answer approves exactly the request, or the request for these arguments only. It can never approve more.
- The arguments come from a model. Characters in them that control a terminal, are invisible or change the direction of
  text are escaped.
- The time and the function that verifies signatures are passed in.
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
from licet.core.limits import MOST_STANDING_DAYS
from licet.core.values import canonical_json, digest, key_bytes, key_text

FORMAT = 1
UNSIGNED = "command"  # recorded as the approver of an answer without a signature

_LATER = frozenset(
    {"acts", "why", "deletes", "machine", "flow", "unmet"}
)  # fields that requests of earlier versions do not have

# Any call of the tool in a session, this one call, one use inside this call; or deletes under a policy until a day.
Scope = Literal["session", "call", "use", "standing"]
Verify = Callable[[bytes, bytes, bytes], bool]  # takes public key, signature and signed bytes


class ApprovalRequest(Struct, frozen=True):
    """One request: everything that an answer is bound to. Times are milliseconds since 1970, UTC."""

    id: str
    nonce: str
    agent: str
    session: str
    tool: str
    tool_digest: str
    manifest: str
    scope: Scope
    arguments: str  # the digest of the exact arguments of the call that asked
    use: str  # the one use that is asked about if the scope is `use`
    effect: str
    directory: str  # the working directory, which relative paths start at
    stakes: tuple[str, ...]  # the rules that the call would hold
    asked: int
    expires: int
    acts: tuple[str, ...] = ()  # deletes that the call will make; the same answer approves each of them once
    why: str = ""  # the rules that require the approval, in words
    deletes: tuple[str, ...] = ()  # rules: these deletes and renames do not ask again
    machine: str = ""  # of a standing approval: a digest of the machine that it was given on
    flow: str = ""  # the rules of flow that the call does not meet; an approval covers no others
    unmet: tuple[str, ...] = ()  # the same for the person: each value, its origins and where it stands

    @property
    def subject(self) -> str:
        """A digest of what is asked about. Calls with the same subject may share an answer, except for `acts`."""
        fields = self._fields()
        for name in ("id", "nonce", "asked", "expires", "acts", "why", "unmet"):
            fields.pop(name, None)
        if self.scope == "session":
            del fields["arguments"]
        return digest(fields)

    def text(self) -> str:
        """The canonical JSON of this request."""
        return canonical_json(self._fields()).decode()

    def statement(self, *, only_these_arguments: bool = False) -> bytes:
        """The bytes that an approver signs: this request, or the request for these arguments only."""
        return canonical_json(
            {
                "licet": "approval",  # so that a signature of anything else is never valid as an approval
                "format": FORMAT,
                "answer": "approved",
                "only_these_arguments": only_these_arguments,
                "request": self._fields(),
            }
        )

    def same_acts(self, other: "ApprovalRequest") -> bool:
        """Whether another request with the same subject has the same acts. Acts are bound to exact arguments."""
        return self.acts == other.acts and (not self.acts or self.arguments == other.arguments)

    def _fields(self) -> dict[str, Any]:
        """The fields. Those that were added later are left out if empty, so that older signatures stay valid."""
        return {name: value for name, value in asdict(self).items() if value or name not in _LATER}

    def live(self, now: int, seconds: int) -> bool:
        """Whether an answer can still be given and used: not expired, and `seconds` (of the manifest) not exceeded."""
        started = self.asked <= now + 1000  # tolerate a clock that was set back by up to a second
        return started and now < self.expires <= self.asked + seconds * 1000


def standing_problem(request: ApprovalRequest, manifest: str, machine: str, now: int) -> str:
    """Why a request is no standing approval of this policy on this machine at this time; empty if it may be one."""
    about = f"the standing approval {request.id}"
    if request.scope != "standing":
        return f"{request.id} approves one tool in one session, and is no standing approval"
    if request.manifest != manifest:
        return f"{about} was given for another policy, or for this one before it was changed"
    if request.machine != machine:
        return f"{about} was given on another machine"
    if now >= request.expires:
        return f"{about} ended at {time_text(request.expires)}"
    if not request.live(now, MOST_STANDING_DAYS * 86_400):
        return f"{about} begins in the future, or lasts longer than {MOST_STANDING_DAYS} days"
    return ""


def request_from(data: Mapping[str, Any]) -> ApprovalRequest:
    """Convert JSON data to a request; `ValueError` if the fields are not those of a request."""
    names = set(ApprovalRequest.__struct_fields__)
    if not names - _LATER <= data.keys() <= names:
        raise ValueError("a request with other fields")
    lists = {name: tuple(data.get(name, ())) for name in ("stakes", "acts", "deletes", "unmet")}
    return ApprovalRequest(**{**data, **lists})


class Yes(Struct, frozen=True):
    """One approval: by whom, whether for these arguments only, and the signature if there is one."""

    by: str
    only_these_arguments: bool = False
    signature: bytes = b""


def agreeing(
    request: ApprovalRequest, given: Iterable[Yes], arguments: str, keys: tuple[str, ...] | None, verify: Verify
) -> tuple[str, ...]:
    """The approvers whose yes counts for a call with these arguments, each once.

    If keys are listed, only their signatures count. A key counts once, in whichever alphabet of base64 it is written.
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
    """Whether the quorum is met. A quorum above 1 needs keys: unsigned answers may all come from one person."""
    return len(by) >= quorum and (quorum == 1 or keys is not None)


_FOR = {
    "session": "for every call of it in this session, with any arguments",
    "call": "once, with exactly these arguments",
    "use": "once, for exactly this act",
    "standing": "for every tool below class destructive, and every server, under this policy on this machine",
}
_ONLY_THESE = "for every call of it in this session, with exactly these arguments"
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))  # bidirectional classes that also reorder the text around them
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def approval_lines(
    request: ApprovalRequest, arguments: Mapping[str, Any] | None, *, narrow: bool = False, is_kept: bool = True
) -> Iterator[str]:
    """The lines that a person reads before answering. The most important ones are last: long arguments scroll away.

    `narrow` states that only calls with exactly these arguments were approved. An answer that is not kept ends with the
    process that asked.
    """
    standing = request.scope == "standing"
    for name, value in sorted((arguments or {}).items()):
        yield _line("argument", f"{shown(name)}: {shown(value)}")
    if not arguments and not standing:
        yield _line("arguments", "none" if arguments is not None else "deleted, since no answer came in time")
    kinds: dict[str, list[str]] = {}
    for rule in request.stakes:
        kinds.setdefault(KIND_OF_DOMAIN.get(rule.partition(":")[0], "also"), []).append(rule)
    for kind in sorted(kinds):
        for rule in kinds[kind]:
            yield _line(kind, rule)
    yield _line("directory", request.directory)
    yield _line("agent", request.agent if standing else f"{request.agent}, session {request.session}")
    yield _line("manifest", request.manifest)
    for act in filter(None, (request.use, *request.acts)):
        yield _line("act", act)
    for rule in request.deletes:
        yield _line("deletes", f"{rule}, and renames there, without asking again")
    if request.why:
        yield _line("because", request.why)
    for text in request.unmet:
        yield _line("chosen by", text)
    if not standing:
        yield _line("class", request.effect)
        yield _line("tool", request.tool)
    holds = _ONLY_THESE if narrow and request.scope == "session" else _FOR[request.scope]
    ends = "" if is_kept or request.scope == "call" else ", until this command ends"
    yield _line("holds", f"{holds}{ends}{'; each act once' if request.acts else ''}")
    yield _line("until", time_text(request.expires))


def shown(value: object) -> str:
    """Write the value of an argument as JSON; invisible and right-to-left characters are escaped."""
    return left_to_right(json.dumps(value, ensure_ascii=False, sort_keys=True))


def left_to_right(text: str) -> str:
    """Escape what would not be displayed from left to right. Between Hebrew letters, two numbers would swap places."""
    return "".join(escaped(char) if bidirectional(char) in _RIGHT_TO_LEFT else char for char in visible(text))


def time_text(milliseconds: int) -> str:
    """Write a time as ISO 8601 with milliseconds and `Z`."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(title: str, text: str) -> str:
    return f"  {title:<14}{left_to_right(text)}"
