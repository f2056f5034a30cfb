"""Expiry of approvals: it counts from the question, for the answer and for every later use of it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard.gates import gate
from licet import Backends, Context, Gate, Result, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryClock
from licet.guard import deadlines
from licet.guard.ports import Answered, Question

SECONDS = 300


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def note(ctx: Context, text: str) -> None:
    """Write a note."""
    await ctx.fs.write("note.txt", text)


class Person:
    """An approver that advances the clock of the gate, and then answers."""

    def __init__(self, answer: Any = "approved") -> None:
        self.clock = MemoryClock()
        self.thinks = 0.0
        self.answer = answer
        self.asked = 0

    def say(self, question: Question) -> Any:
        self.asked += 1
        self.clock.advance(self.thinks)
        return self.answer

    def approver(self, kind: str) -> Any:
        async def function(question: Question) -> Any:
            return self.say(question)

        async def told(question: Question) -> Any:
            return Answered(self.say(question), ("callback",))

        return {"memory": MemoryApprover(self.say), "function": function, "told": told}[kind]


def asking(folder: Path, approver: Any, write: str, clock: MemoryClock) -> Gate:
    backends = Backends.memory(approver=approver, files=MemoryFiles({f"{folder}/keep": ""}), clock=clock)
    approvals = {"write": write, "expires_seconds": SECONDS}
    return gate(folder, note, backends=backends, fs_reach={"write": [str(folder)]}, approvals=approvals)


def made(at: Gate) -> Result:
    async def run() -> Result:
        async with at.session("s") as session:
            return await session.call("note", {"text": "x"})

    return asyncio.run(run())


@pytest.fixture(params=["memory", "function", "told"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("write", ["call", "session"])
@pytest.mark.parametrize("answer", ["approved", "denied", "absent"])
@pytest.mark.sampled(8)
def test_an_answer_after_the_expiry_does_not_count(tmp_path: Path, kind: str, write: str, answer: str) -> None:
    person = Person(answer)
    at = asking(tmp_path, person.approver(kind), write, person.clock)
    person.thinks = SECONDS
    late = made(at)
    assert (late.reason, late.approvals) == ("APPROVAL_EXPIRED", ())
    person.thinks = SECONDS - 1
    assert made(at).reason != "APPROVAL_EXPIRED"
    assert person.asked == 2  # what came too late is not remembered either


def test_an_approval_for_a_session_expires_from_the_time_of_the_question(tmp_path: Path, kind: str) -> None:
    person = Person()
    at = asking(tmp_path, person.approver(kind), "session", person.clock)
    person.thinks = 200
    asked = []
    for seconds in (0, SECONDS - 200 - 1, 1):
        person.clock.advance(seconds)
        assert made(at).ok
        asked.append(person.asked)
    assert asked == [1, 1, 2]


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the time of this machine pass, for those that wait for it."""
    passed = 0.0

    def advance(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(deadlines, "monotonic", lambda: time.monotonic() + passed)
    return advance


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_approver_that_never_answers_is_not_waited_for(
    tmp_path: Path, pass_time: Callable[[float], None], stubborn: bool
) -> None:
    ended = []

    async def silent(question: Question) -> str:
        pass_time(SECONDS)
        for _ in range(1 + stubborn):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                ended.append(question.approval.tool)
        return "approved"  # also when it makes one out of its end

    assert made(asking(tmp_path, silent, "session", MemoryClock())).reason == "APPROVAL_EXPIRED"
    assert ended == ["note"] * (1 + stubborn)


def test_a_call_that_is_cancelled_while_it_asks_is_cancelled(tmp_path: Path) -> None:
    async def silent(question: Question) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.get_running_loop().create_future()
        return "approved"

    with pytest.raises(asyncio.CancelledError):
        made(asking(tmp_path, silent, "call", MemoryClock()))


def test_a_timeout_error_of_the_approver_itself_is_no_expiry(tmp_path: Path) -> None:
    async def broken(question: Question) -> str:
        raise TimeoutError("the mail server does not answer")

    result = made(asking(tmp_path, broken, "call", MemoryClock()))
    assert not result.ok
    assert result.reason != "APPROVAL_EXPIRED"
