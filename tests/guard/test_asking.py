"""Approvers of several kinds, and what happens while one is asked. The rest is in cases/asking.yaml."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from guard.tools import counted, note, remember
from licet import Backends, Gate, Tool
from licet.backends.approvals.requests import request_of
from licet.backends.approvals.terminal import MemoryApprover
from licet.ports import Answer, Question


def asking(folder: Path, approver: Any, which: Tool = note, **more: Any) -> Gate:
    """A gate whose writes ask this approver, each time."""
    backends = Backends.memory(approver=approver, files={f"{folder}/keep": ""})
    return gate(
        folder, which, backends=backends, fs_reach={"write": [str(folder)]}, approvals={"write": "call"}, **more
    )


class Plainly:
    """An approver whose `ask` is an ordinary function, which may wait for a person."""

    def ask(self, question: Question) -> Answer:
        time.sleep(0.01)
        return _yes(question)


def _yes(question: Question) -> Answer:
    return "approved" if question.arguments == {"text": "x"} else "denied"


async def _later(question: Question) -> Answer:
    return _yes(question)


@pytest.mark.parametrize("approver", [Plainly(), _yes, _later], ids=["an object", "a function", "an async function"])
def test_an_approver_is_an_object_or_a_function_and_need_not_be_async(tmp_path: Path, approver: Any) -> None:
    at = asking(tmp_path, approver)
    assert [call(at, "note", {"text": text}).reason for text in "xy"] == ["ALLOWED", "APPROVAL_DENIED"]


def test_the_deadline_is_paused_while_an_approver_is_asked(tmp_path: Path) -> None:
    async def slow(question: Question) -> Answer:
        await asyncio.sleep(1.3)
        return "approved"

    at = asking(tmp_path, slow, limits={"wall_seconds": 1})
    started = time.monotonic()
    assert call(at, "note", {"text": "x"}).ok
    assert time.monotonic() - started > 1


@pytest.mark.parametrize("what", ["freeze", "end", "reload"])
def test_a_freeze_end_or_reload_while_an_approver_is_asked_refuses_the_call(tmp_path: Path, what: str) -> None:
    async def meanwhile(question: Question) -> Answer:
        match what:
            case "freeze":
                at.freeze()
            case "end":
                await at.session("s").end()
            case "reload":
                at.reload(at.manifest)
        return "approved"

    at = asking(tmp_path, meanwhile)
    expected = {"freeze": "FROZEN", "end": "SESSION_ENDED", "reload": "MANIFEST_CHANGED"}[what]
    assert call(at, "note", {"text": "x"}).reason == expected


def test_a_delegate_neither_reads_nor_ends_the_session_of_an_agent_with_a_slash_in_its_name(tmp_path: Path) -> None:
    backends = Backends.memory()
    desk, other = (
        gate(tmp_path, remember, backends=backends, top={"agent": agent}) for agent in ("desk", "desk/helper")
    )

    async def run() -> list[Any]:
        async with desk.session("s") as session, other.session("s") as apart:
            await apart.call("remember", {"value": "private"})
            child = session.delegate(agent="helper", allow=[])
            seen = (await child.call("remember")).value
            await child.end()
            return [seen, (await apart.call("remember")).value]

    assert asyncio.run(run()) == [["desk>helper", None], ["desk/helper", "private"]]


LARGE = (2**53 - 1, 2**53, 2**53 + 1, 2**80, -(2**64), 10**400)


def test_an_approval_of_an_integer_of_any_size_covers_no_other(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    at = asking(tmp_path, approver, counted)
    assert [call(at, "counted", {"number": number}).value for number in LARGE] == [str(number) for number in LARGE]
    assert len({question.approval.arguments for question in approver.asked}) == len(LARGE)
    for question in approver.asked:  # a stored request shows large numbers as they are
        assert request_of(question, 0).arguments == question.approval.arguments


@pytest.mark.parametrize("number", LARGE, ids=lambda number: f"{number:.4g}" if abs(number) < 10**99 else "huge")
def test_a_budget_takes_calls_with_integers_of_any_size(tmp_path: Path, number: int) -> None:
    at = gate(tmp_path, counted, budget={"max_calls_per_session": 1})
    assert call(at, "counted", {"number": number}).value == str(number)
