"""The contract of approvers: an answer has the same effect, whether it is given during the call or stored for later."""

import asyncio
from pathlib import Path
from typing import Any, Protocol

import pytest

from backends.approvals.conftest import Opened
from guard.gates import policy
from guard.questions import question
from licet import Backends, Context, Gate, Manifest, Result, tool
from licet.backends.approvals.requests import CannotAnswer, StoredRequest
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryClock, SystemClock
from licet.guard.ports import Answer, Answered, Clock, Question


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def note(ctx: Context, text: str) -> None:
    """Write a note."""
    await ctx.fs.write("note.txt", text)


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def letter(ctx: Context, text: str) -> None:
    """Write a letter."""
    await ctx.fs.write("letter.txt", text)


class Person(Protocol):
    """A person who can be asked, and their answer."""

    approver: Any
    by: tuple[str, ...]

    def settle(self, at: Gate, session: str, answer: Answer, text: str = "x") -> Result:
        """Make a call, answer its question, and repeat the call if the approver needs that."""


class AtOnce:
    """An approver who is asked while the call waits."""

    by: tuple[str, ...] = ("callback",)

    def __init__(self, kind: str) -> None:
        self.answer: Answer = "absent"

        async def function(question: Question) -> Answer:
            return self.answer

        async def told(question: Question) -> Answered:
            return Answered(self.answer, ("callback",))

        twin = MemoryApprover(lambda question: self.answer)
        self.approver: Any = {"memory": twin, "function": function, "told": told}[kind]

    def settle(self, at: Gate, session: str, answer: Answer, text: str = "x") -> Result:
        self.answer = answer
        result = made(at, session, text)
        self.answer = "absent"
        return result


class Later:
    """An approver who finds a stored request, and whose answer the repeated call finds."""

    by: tuple[str, ...] = ("command",)
    time = 1000.0

    def __init__(self, opened: Opened) -> None:
        self.approver = opened(lambda: self.time)

    def settle(self, at: Gate, session: str, answer: Answer, text: str = "x") -> Result:
        match answer:
            case "approved":
                self.agree(at, session, text)
            case "denied":
                asyncio.run(self.approver.deny(self.asked(at, session, text)))
            case "expired":
                self.asked(at, session, text)
                self.time += 300
        return made(at, session, text)

    def agree(self, at: Gate, session: str = "s", text: str = "x") -> None:
        asyncio.run(self.approver.approve(self.asked(at, session, text)))

    def asked(self, at: Gate, session: str, text: str) -> StoredRequest:
        assert made(at, session, text).reason == "APPROVAL_REQUIRED"
        kept = asyncio.run(self.approver.list())
        return [one for one in kept if one.state(self.approver.now()) == "waiting"][-1]


@pytest.fixture(params=["memory", "function", "told", "sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """Overrides the kinds of stores: here approvers that are asked during the call are among them."""
    named: str = request.param
    return named


@pytest.fixture
def person(kind: str, request: pytest.FixtureRequest) -> Person:
    return Later(request.getfixturevalue("opened")) if kind in ("sqlite", "postgres") else AtOnce(kind)


def made(at: Gate, session: str, text: str = "x", name: str = "note") -> Result:
    async def run() -> Result:
        async with at.session(session) as opened:
            return await opened.call(name, {"text": text})

    return asyncio.run(run())


def asking(folder: Path, person: Person, write: str, clock: Clock | None = None, **more: Any) -> Gate:
    files, clock = MemoryFiles({f"{folder}/keep": ""}), clock or SystemClock()
    backends = Backends.memory(approver=person.approver, files=files, clock=clock)
    return Gate(ruled(folder, write, **more), [note, letter], backends, workdir=folder)


def ruled(folder: Path, write: str, **more: Any) -> Manifest:
    return policy(folder, note, letter, **{"fs_reach": {"write": [str(folder)]}, "approvals": {"write": write}, **more})


ANSWERS: dict[Answer, tuple[bool, str]] = {
    "approved": (True, "ALLOWED"),
    "denied": (False, "APPROVAL_DENIED"),
    "expired": (False, "APPROVAL_EXPIRED"),
    "absent": (False, "APPROVAL_REQUIRED"),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("write", ["call", "session"])
@pytest.mark.sampled(14)
def test_each_answer_is_a_reason_of_its_own(tmp_path: Path, person: Person, write: str, answer: Answer) -> None:
    result = person.settle(asking(tmp_path, person, write), "s", answer)
    assert (result.ok, result.reason) == ANSWERS[answer]
    assert result.code == ("ok" if result.ok else "denied")


@pytest.mark.parametrize("write", ["call", "session"])
def test_a_result_names_who_agreed(tmp_path: Path, person: Person, write: str) -> None:
    result = person.settle(asking(tmp_path, person, write), "s", "approved")
    assert [one.by for one in result.approvals] == [person.by]
    assert f"agreed to by  {person.by[0]}" in result.explain()
    assert person.settle(asking(tmp_path, person, write), "other", "denied").approvals == ()


def test_a_yes_to_one_call_serves_one_call(tmp_path: Path, person: Person) -> None:
    at = asking(tmp_path, person, "call")
    assert person.settle(at, "s", "approved").ok
    assert made(at, "s").reason == "APPROVAL_REQUIRED"


def test_a_yes_to_a_session_holds_for_all_its_calls_of_the_tool(tmp_path: Path, person: Person) -> None:
    at = asking(tmp_path, person, "session")
    assert person.settle(at, "s", "approved").ok
    later = [made(at, "s", text) for text in ("x", "y", "z")]
    assert [(one.ok, one.approvals[0].by) for one in later] == [(True, person.by)] * 3


@pytest.mark.parametrize("write", ["call", "session"])
def test_a_yes_holds_for_no_other_session_tool_or_manifest(tmp_path: Path, person: Person, write: str) -> None:
    at = asking(tmp_path, person, write)
    assert person.settle(at, "s", "approved").ok
    if isinstance(person, Later) and write == "call":  # one more, which is not used yet
        person.agree(at)
    assert made(at, "other").reason == "APPROVAL_REQUIRED"
    assert made(at, "s", name="letter").reason == "APPROVAL_REQUIRED"
    at.reload(ruled(tmp_path, write, budget={"max_calls_per_session": 9}))
    assert made(at, "s").reason == "APPROVAL_REQUIRED"


def test_a_yes_to_one_call_is_none_to_other_arguments(tmp_path: Path, person: Person) -> None:
    at = asking(tmp_path, person, "call")
    assert person.settle(at, "s", "approved").ok
    if isinstance(person, Later):
        person.agree(at)
    assert made(at, "s", "y").reason == "APPROVAL_REQUIRED"


@pytest.mark.parametrize("signed", [{"quorum": 2}, {"keys": []}, {"keys": ["ed25519:" + "B" * 43]}], ids=str)
def test_where_signatures_are_wanted_a_mere_yes_is_none(tmp_path: Path, person: Person, signed: dict[str, Any]) -> None:
    at = asking(tmp_path, person, "call", approvals={"write": "call", **signed})
    if isinstance(person, Later):
        with pytest.raises(CannotAnswer):
            person.agree(at)
        assert made(at, "s").reason == "APPROVAL_REQUIRED"
    else:
        assert person.settle(at, "s", "approved").reason == "APPROVAL_REQUIRED"


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.sampled(4)
def test_reloading_a_manifest_voids_what_was_agreed_to_before(tmp_path: Path, person: Person, used: bool) -> None:
    clock = MemoryClock()
    at = asking(tmp_path, person, "session", clock=clock)
    if isinstance(person, Later):
        person.time = clock.now().timestamp()
    if used:
        assert person.settle(at, "s", "approved").ok
    elif isinstance(person, Later):
        person.agree(at)
    clock.advance(1)
    at.reload(at.manifest)
    if isinstance(person, Later):
        person.time += 2
    assert made(at, "s").reason == "APPROVAL_REQUIRED"
    assert person.settle(at, "s", "approved").ok


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_unanswered_requests_are_limited(opened: Opened) -> None:
    later, twin = Later(opened), MemoryApprover()
    for number in range(250):
        later.time += 10
        asked = question(arguments={"number": number})
        asyncio.run(later.approver.ask(asked))
        asyncio.run(twin.ask(asked))
    assert [one.arguments["number"] for one in twin.asked] == list(range(150, 250))
    kept = asyncio.run(later.approver.list())
    assert len(kept) == 100 + 30  # those of the last 300 seconds are still waiting
    assert [one.arguments and one.arguments["number"] for one in kept] == [None] * 100 + list(range(220, 250))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_stored_approval_is_looked_up_at_each_call_and_covers_only_its_arguments(
    tmp_path: Path, opened: Opened
) -> None:
    person = Later(opened)
    at = asking(tmp_path, person, "session")
    request = person.asked(at, "s", "x")
    asyncio.run(person.approver.approve(request, only_these_arguments=True))
    assert [made(at, "s", text).ok for text in ("x", "x", "y")] == [True, True, False]
    asyncio.run(person.approver.deny(request))
    assert made(at, "s", "x").reason == "APPROVAL_DENIED"
