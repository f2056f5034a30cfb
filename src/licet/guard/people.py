"""The approver port: the question, the answer, and the agreement that a call keeps."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from licet.core.algebra.capability import Capability
from licet.core.decision.request import Approval
from licet.core.policy.terms import Approvals, StandingApproval
from licet.core.policy.tool import ToolSpec


class Question(Struct, frozen=True):
    """The question to an approver: the exact call, and what it could reach."""

    approval: Approval
    spec: ToolSpec
    arguments: Mapping[str, Any]  # as JSON data; arguments whose type is more than JSON are as they were sent
    stakes: tuple[Capability, ...]
    why: str
    expires_seconds: int
    agent: str = ""
    effect: str = ""  # the effect class of the call
    workdir: str = ""
    since: float = 0.0  # time of day; an answer to an earlier question does not count
    quorum: int = 1
    keys: tuple[str, ...] | None = None  # whose signatures count; None: no signature is needed
    names: Mapping[str, str] = {}  # the owners of `keys`, where the policy names them
    acts: tuple[str, ...] = ()  # deletes that the call is known to make; an approval covers these too
    deletes: tuple[str, ...] = ()  # rules of deletes of files: these do not ask again after an approval

    @property
    def signed(self) -> bool:
        """Whether only signatures count as an answer."""
        return self.quorum > 1 or self.keys is not None


Answer = Literal["approved", "denied", "expired", "absent"]


class Answered(Struct, frozen=True):
    """An answer with details; the plain word is enough if there are none."""

    answer: Answer
    by: tuple[str, ...] = ()  # public keys, `terminal` or `command`
    request: str = ""  # the id of the stored request
    note: str = ""  # for the operator
    fix: str = ""  # the command that would answer it
    first_only: bool = False  # the approval was for an earlier call: `Question.acts` of this one are asked about again
    asks_again: bool = (
        False  # the session must not remember the approval: it is for one call, or stored by the approver
    )


class Agreement(Struct, frozen=True):
    """An approval and who gave it, for the receipt."""

    approval: Approval
    by: tuple[str, ...]
    request: str = ""  # the id of the stored request, or of the standing approval, if there is one
    standing: bool = False  # whether a standing approval covers the deletes of this call


@runtime_checkable
class Approver(Protocol):
    """Asks a person, or answers for one. With `verifies = True` it checks signatures against `Question.keys`.

    A call is one question. The deletes that its arguments foresee are in `Question.acts`; a yes covers these too.
    """

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer, or `absent` if there is none yet."""


class NotStanding(Exception):
    """A standing approval that does not count. The text says why."""


class StandingApprovals(Protocol):
    """The standing approvals of deletes on this machine, which people give in `licet trust`."""

    def find(self, id: str | None, manifest: str, approvals: Approvals) -> StandingApproval:  # noqa: A002
        """The approval with this id for the policy with this digest; without an id, the one that lasts longest.

        Everything is checked again: policy, machine, time, signatures, and the ledger. Raises `NotStanding`.
        """

    def stands(self, approval: StandingApproval) -> bool:
        """Whether an approval that was found has neither ended nor been withdrawn. For each delete, so it is quick."""


# An ordinary function is called in a thread, since it may wait for a person.
ApproverFunction = Callable[[Question], Awaitable[Answer | Answered] | Answer | Answered]


async def answer_of(approver: Approver | ApproverFunction, question: Question) -> Answer | Answered:
    """Ask an approver: an object with `ask`, or a function. What is not async runs in a thread."""
    ask: Any = approver.ask if isinstance(approver, Approver) else approver
    is_async = inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None))  # noqa: B004
    import asyncio  # reviews of policy import this module, and need no event loop

    found = ask(question) if is_async else await asyncio.to_thread(ask, question)
    answer: Answer | Answered = await found if inspect.isawaitable(found) else found
    return answer
