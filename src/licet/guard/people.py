"""The port to people: what they are asked, how they answer, and what a call keeps of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from licet.core.algebra.capability import Capability
from licet.core.decision.request import Approval
from licet.core.policy.tool import ToolSpec


class Question(Struct, frozen=True):
    """The question to an approver: the exact call, and what it could reach."""

    approval: Approval
    spec: ToolSpec
    arguments: Mapping[str, Any]  # as data; where hints make more of them than data, as they were sent
    stakes: tuple[Capability, ...]
    why: str
    expires_seconds: int
    agent: str = ""
    effect: str = ""  # the class that the call runs as
    workdir: str = ""
    since: float = 0.0  # what was asked before this time of day does not answer it
    quorum: int = 1
    keys: tuple[str, ...] | None = None  # whose signatures count; None asks for none
    acts: tuple[str, ...] = ()  # deletes that the call is known to make: a yes is for these too

    @property
    def signed(self) -> bool:
        """Whether only signatures count as an answer."""
        return self.quorum > 1 or self.keys is not None


Answer = Literal["approved", "denied", "expired", "absent"]


class Answered(Struct, frozen=True):
    """An answer with details; the plain word is enough if there are none."""

    answer: Answer
    by: tuple[str, ...] = ()  # who: public keys, `terminal`, `command`
    request: str = ""  # the id under which it is kept
    note: str = ""  # what an operator should know
    fix: str = ""  # the line that would settle it
    first_only: bool = False  # the yes is not for the acts of the question, which are asked about by themselves
    asks_again: bool = False  # this yes is for one call, or is kept where it was given: the session remembers nothing


class Agreement(Struct, frozen=True):
    """What a call was agreed to by: for its receipt."""

    approval: Approval
    by: tuple[str, ...]
    request: str = ""  # the id of the request, where it is kept


@runtime_checkable
class Approver(Protocol):
    """Asks a person, or answers for one. With `verifies = True` it checks signatures against `Question.keys`.

    One that has `shows_acts = True` is asked about a call and the deletes that it is known to make at once, in
    `Question.acts`; others are asked about each by itself.
    """

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer, or `absent` if there is none yet."""


ApproverFunction = Callable[[Question], Awaitable[Answer | Answered]]
