"""The rules of stored requests for approval: what serves a question, who must agree, what can still be answered.

`ApprovalStore` is what all stores have in common. A store itself only keeps rows: `SqliteApprovals` in one file,
`PostgresApprovals` in a database for many nodes. Nothing here reads or writes one.
"""

import asyncio
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.backends.limits import MOST_SHOWN_BYTES, MOST_UNANSWERED
from licet.backends.secrets import SigningKey, load_code, verifies
from licet.core.decision.approval import UNSIGNED, ApprovalRequest, Scope, Yes, agreeing, enough, time_text
from licet.core.policy.terms import Approvals
from licet.core.values import data_digest, key_bytes
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.ports import Answered, Question

_ELSEWHERE = (
    "`licet approvals list` has those that are; requests of another manifest are kept apart: go to its directory, or"
    " name it with `--manifest FILE`, or its state with `--state DIR`"
)

AT_TERMINAL = "terminal"  # recorded as the approver of a standing approval without a signature
SESSION_ENDED = "session ended"  # recorded as who denied the requests of a session that was ended
LASTING = ("session", "standing")  # scopes of requests whose approval serves more than one call
State = Literal["waiting", "approved", "denied", "used", "expired"]


class CannotAnswer(Exception):
    """A request that cannot be answered this way. The message says why, and what to do."""


class StoredRequest(Struct, frozen=True):
    """A stored request, with the answers so far."""

    request: ApprovalRequest
    arguments: dict[str, Any] | None  # None once the request has expired without an answer
    quorum: int
    keys: tuple[str, ...] | None
    given: tuple[Yes, ...]
    denied: str  # who denied it; empty if nobody did
    used: int
    names: Mapping[str, str] = {}  # the owners of keys, where the policy names them

    def agreeing(self, arguments: str) -> tuple[str, ...]:
        """Return the approvers whose approval covers a call with these arguments."""
        return agreeing(self.request, self.given, arguments, self.keys, verifies)

    def approved(self, arguments: str) -> bool:
        """Whether enough approvers have agreed to a call with these arguments."""
        return enough(self.agreeing(arguments), self.quorum, self.keys)

    def serves(self, arguments: str) -> bool:
        """Whether this approval can be used for a call with these arguments."""
        spent = self.used and self.request.scope not in LASTING
        return not (self.denied or spent) and self.approved(arguments)

    def includes_acts(self, asked: ApprovalRequest) -> bool:
        """Whether this approval covers the deletes in question. They are approved once, even for a session."""
        return not asked.acts or (self.request.same_acts(asked) and not self.used)

    def state(self, now: int) -> State:
        if self.denied:
            return "denied"
        if self.used and self.request.scope not in LASTING:
            return "used"
        if now >= self.request.expires:
            return "expired"
        return "approved" if self.approved(self.request.arguments) else "waiting"


class Judged(Struct, frozen=True):
    """What the stored requests say about a question, and what its store has to do."""

    answered: Answered
    step: Literal["use", "open", "none"] = "none"  # use that request up, or store a new one


class ApprovalStore(ABC):
    """Stored requests with their answers. `options` are the options with which `licet approvals` finds this store."""

    verifies: ClassVar[bool] = True

    def __init__(self, clock: Callable[[], float] = time.time, *, options: str = "") -> None:
        self._clock = clock
        self._options = options

    # For gates -------------------------------------------------------------------------------------------------------

    def load_code(self) -> None:
        """Import what verifies signatures."""
        load_code()

    @abstractmethod
    async def ask(self, question: Question) -> Answered:
        """Return the answer to an earlier request for the same call, or store a new request."""

    async def has_answer(self, question: Question) -> bool:
        """Whether an approval that was given before serves a question. Stores and uses nothing."""
        asked = request_of(question, self.now())
        same = [kept for one in await self.list() if (kept := for_question(one, asked, question)) is not None]
        return self.judge(same, asked, question).step == "use"

    @contextmanager
    def watch(self, request: str) -> Iterator[Callable[[float, float], Awaitable[object]]]:
        """Gives a function that waits until the request may have been answered.

        It takes the seconds after which a store is looked into that does not tell, and those until the request expires.
        What it returns is true if the store told of an answer.
        """
        yield lambda interval, left: asyncio.sleep(interval)

    @abstractmethod
    def standing(self, id: str | None = None) -> Sequence[StoredRequest]:  # noqa: A002
        """Return the requests for standing approvals, or the one with this id. Blocks for a moment."""

    # For people ------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def list(self) -> Sequence[StoredRequest]:
        """Return every stored request, the oldest first."""

    async def unbelieved(self) -> Sequence[str]:
        """The ids of requests with rows that nobody who may write here has written; they count as absent."""
        return ()

    @abstractmethod
    async def find(self, id: str) -> StoredRequest:  # noqa: A002
        """Return one request; raises `CannotAnswer` if there is none."""

    @abstractmethod
    async def approve(
        self, shown: StoredRequest, key: SigningKey | None = None, *, only_these_arguments: bool = False
    ) -> StoredRequest:
        """Approve a request as it was shown, or less of it; raises `CannotAnswer` if it was changed since."""

    @abstractmethod
    async def deny(self, shown: StoredRequest) -> StoredRequest:
        """Deny a request, also an approved one that can still be used. One denial is enough."""

    @abstractmethod
    async def offer_standing(self, request: ApprovalRequest, terms: Approvals) -> StoredRequest:
        """Store a request for a standing approval; unless signatures are needed, the person at the terminal agrees."""

    @abstractmethod
    async def claim_standing(self, id: str, *, back: bool = False) -> bool:  # noqa: A002
        """Whether the caller is the one who writes the entry of a standing approval into the ledger; `back` undoes it.

        Two people may sign at the same time, and an id has one such entry.
        """

    @abstractmethod
    async def end_session(self, agent: str, session: str) -> None:
        """Close the requests of a session that has ended: no call can use an answer to them."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; the next use opens it again."""

    def now(self) -> int:
        """The current time in milliseconds, by which requests expire."""
        return int(self._clock() * 1000)

    # Rules -----------------------------------------------------------------------------------------------------------

    def judge(self, same: Sequence[StoredRequest], asked: ApprovalRequest, question: Question) -> Judged:
        """What the requests for the same, the oldest first, say about a question.

        Those that have expired belong to them, unless that was reported before.
        """
        now = asked.asked
        live = [kept for kept in same if kept.request.live(now, question.expires_seconds)]
        usable = [kept for kept in live if kept.serves(asked.arguments)]
        for kept in sorted(usable, key=lambda one: not one.includes_acts(asked)):
            by, with_acts = kept.agreeing(asked.arguments), kept.includes_acts(asked)
            answered = Answered("approved", by, kept.request.id, first_only=not with_acts, asks_again=True)
            return Judged(answered, "use")
        live = [kept for kept in live if kept.request.same_acts(asked)]
        for kept in live:
            if kept.denied:
                until = (
                    f"request {kept.request.id} was denied; the answer holds until {time_text(kept.request.expires)}"
                )
                return Judged(Answered("denied", (kept.denied,), kept.request.id, until))
        for kept in live:
            if kept.state(now) == "waiting":
                return Judged(self.waiting("absent", kept))
        # Approvals that expired unused are reported once, together with the request that replaces them.
        late = any(now >= kept.request.expires and not (kept.used or kept.denied) for kept in same)
        if question.optional:  # what nobody waits for would only fill the list
            return Judged(Answered("absent"))
        return Judged(Answered("expired" if late else "absent"), "open")

    def waiting(self, answer: Literal["expired", "absent"], kept: StoredRequest) -> Answered:
        """The answer to a question whose request waits: how many have signed, and the command that answers it."""
        request = kept.request
        note = f"request {request.id} waits for an answer until {time_text(request.expires)}"
        fix = f"run `licet approvals approve {request.id}{self._options}`"
        if kept.keys is not None or kept.quorum > 1:
            note += f"; {len(kept.agreeing(request.arguments))} of {kept.quorum} signatures are there"
            fix = f"{fix[:-1]} --key FILE`"
        return Answered(answer, request=request.id, note=note, fix=fix)

    def opened(self, judged: Judged, asked: ApprovalRequest, question: Question) -> Answered:
        """The answer to a question for which a new request was stored."""
        answer: Literal["expired", "absent"] = "expired" if judged.answered.answer == "expired" else "absent"
        kept = StoredRequest(asked, {}, question.quorum, question.keys, (), "", 0, question.names)
        return self.waiting(answer, kept)

    def check_open(self, kept: StoredRequest) -> None:
        """Raise `CannotAnswer` for a request that was denied or used, or has expired."""
        state = kept.state(self.now())
        if state in ("denied", "used", "expired"):
            until = time_text(kept.request.expires)
            if kept.denied == SESSION_ENDED:
                text = "cannot be answered any more: its session has ended"
            elif state == "denied" and self.now() < kept.request.expires:
                text = f"is denied, and that holds until {until}: the same call asks again after that"
            else:
                text = f"is {state}{f' since {until}' if state == 'expired' else ''}: the call has to be made again"
            raise CannotAnswer(f"{kept.request.id} {text}")

    def agreement(self, shown: StoredRequest, key: SigningKey | None, *, only_these_arguments: bool) -> Yes:
        """The approval of a request as it was shown, signed if there is a key; `CannotAnswer` if it would not count."""
        request = shown.request
        # for other scopes, the request is about these arguments anyway
        narrow = only_these_arguments and request.scope == "session"
        self.check_open(shown)
        if request.scope == "standing" and shown.keys is None:
            raise CannotAnswer(f"{request.id} is a standing approval: a person gives it at a terminal in `licet trust`")
        _check_key(shown, key)
        if key is None:
            return Yes(UNSIGNED, narrow)
        return Yes(key.public, narrow, key.sign(request.statement(only_these_arguments=narrow)))


def too_long(shown: bytes) -> Answered | None:
    """The answer to a question whose arguments are too long to be read; None if they are not."""
    if len(shown) <= MOST_SHOWN_BYTES:
        return None
    return Answered("absent", note=f"its arguments are longer than {MOST_SHOWN_BYTES} bytes: nobody could read them")


def too_many(judged: Judged) -> Answered:
    """The answer to a question of a session with as many unanswered requests as anybody reads."""
    told = f"{MOST_UNANSWERED} requests of this session wait already: answer those first"
    return replace(judged.answered, note=told)


def request_of(question: Question, now: int) -> ApprovalRequest:
    """Make a new request for a question."""
    approval = question.approval
    scope: Scope = "use" if approval.use else "call" if approval.arguments else "session"
    exact = data_digest(plain_data(plain_json(question.arguments)))
    if approval.arguments not in ("", exact):
        raise ValueError("the arguments that would be shown are not those that are asked about")
    return ApprovalRequest(
        id=f"a-{secrets.token_hex(6)}",
        nonce=secrets.token_hex(16),
        agent=question.agent,
        session=approval.session,
        tool=approval.tool,
        tool_digest=question.spec.digest,
        manifest=approval.manifest,
        scope=scope,
        arguments=exact,
        use=approval.use,
        effect=question.effect,
        directory=question.workdir,
        stakes=tuple(sorted(str(rule) for rule in question.stakes)),
        asked=now,
        expires=now + question.expires_seconds * 1000,
        acts=question.acts,
        why=question.why,
        deletes=question.deletes,
        flow=approval.flow,
        unmet=question.unmet,
    )


def for_question(kept: StoredRequest | None, asked: ApprovalRequest, question: Question) -> StoredRequest | None:
    """A stored request if it is for this question. The manifest, not the store, states who must agree."""
    if kept is None or kept.request.subject != asked.subject or kept.request.asked < int(question.since * 1000):
        return None
    return replace(kept, quorum=question.quorum, keys=question.keys, names=question.names)


def found_one(id: str, kept: Sequence[StoredRequest | None]) -> StoredRequest:  # noqa: A002
    """The request that was read under an id, of which there is at most one; None is one that was changed."""
    if not kept:
        raise CannotAnswer(f"there is no request `{id}` here; {_ELSEWHERE}")
    if kept[0] is None:
        raise CannotAnswer(f"{id} was changed after it was asked, and cannot be answered")
    return kept[0]


def unchanged(kept: StoredRequest, shown: ApprovalRequest) -> StoredRequest:
    """A request that was read again, since the store may have changed while a person thought about it."""
    if kept.request.statement() != shown.statement():
        raise CannotAnswer(f"{shown.id} is no longer what was shown, and was not answered: look at it again")
    return kept


def shown_arguments(request: ApprovalRequest, text: str, now: int) -> dict[str, Any] | None:
    """The arguments that a person is shown; None once they were dropped. `ValueError` if they are others.

    A person agrees to what is shown, so the arguments must match the digest that the approval is about. While it can be
    answered, they must be there.
    """
    if text == "" and request.expires <= now:
        return None
    arguments: dict[str, Any] = plain_data(text.encode())
    if data_digest(arguments) != request.arguments:
        raise ValueError("other arguments than the request is about")
    return arguments


def keys_text(keys: Sequence[str] | None, names: Mapping[str, str]) -> str | None:
    """The keys that may sign with the names of their owners, as they are stored."""
    return None if keys is None else json.dumps([[key, names.get(key, "")] for key in keys])


def stored_keys(text: str | None) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The keys that may sign, and the names of their owners. Requests of earlier versions have keys without names."""
    if text is None:
        return None, {}
    pairs = [[one, ""] if isinstance(one, str) else one for one in json.loads(text)]
    return tuple(key for key, _ in pairs), {key: name for key, name in pairs if name}


def _check_key(kept: StoredRequest, key: SigningKey | None) -> None:
    if kept.keys is None:
        if kept.quorum > 1:
            text = f"{kept.quorum} people must agree, but the manifest lists no keys to tell them apart"
            raise CannotAnswer(f"{text}: add them under `approvals.keys`")
        return
    if key is None:
        raise CannotAnswer(
            f"{kept.request.id} wants {kept.quorum} of {len(kept.keys)} signatures: sign with `--key FILE`"
        )
    if key_bytes(key.public) not in {key_bytes(listed) for listed in kept.keys}:
        raise CannotAnswer(f"{key.public} is not among the manifest's `approvals.keys`")
