"""An approver that waits: the call continues with the answer, and the store is not polled too often."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from guard.questions import question
from licet import Backends, Context, Gate, load_manifest, tool
from licet.backends.approvals.requests import StoredRequest
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.approvals.waiting import WaitingApprover
from licet.guard.ports import Answered, Question


class Scene:
    """A store, an approver that waits on it, and its announcements."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteApprovals(folder / "approvals.sqlite")
        self.announced: asyncio.Queue[StoredRequest] = asyncio.Queue()
        self.approver = WaitingApprover(self.store, self._announce, 0.01)

    def _announce(self, asked: Question, kept: StoredRequest, fix: str) -> None:
        assert fix == f"run `licet approvals approve {kept.request.id}`"
        self.announced.put_nowait(kept)


def test_the_answer_arrives_while_the_call_waits(tmp_path: Path) -> None:
    async def scene() -> None:
        there = Scene(tmp_path)
        for act, expected in ((there.store.approve, "approved"), (there.store.deny, "denied")):
            waiting = asyncio.create_task(there.approver.ask(question()))
            shown = await there.announced.get()
            assert not waiting.done()
            await act(shown)
            answered = await waiting
            assert (answered.answer, answered.request) == (expected, shown.request.id)
        assert there.announced.empty()

    asyncio.run(scene())


def test_a_yes_that_another_call_has_used_is_asked_for_again(tmp_path: Path) -> None:
    async def scene() -> None:
        there = Scene(tmp_path)
        calls = [asyncio.create_task(there.approver.ask(question())) for _ in range(2)]
        first = [await there.announced.get() for _ in range(2)]
        assert first[0].request.id == first[1].request.id  # two calls for the same share a request
        await there.store.approve(first[0])
        await there.store.approve(await there.announced.get())
        answers = [await call for call in calls]
        assert {one.answer for one in answers} == {"approved"}
        assert len({one.request for one in answers}) == 2

    asyncio.run(scene())


def test_waiting_ends_when_the_request_expires(tmp_path: Path) -> None:
    async def scene() -> Answered:
        return await Scene(tmp_path).approver.ask(question(expires_seconds=1))

    answered = asyncio.run(scene())
    assert answered.answer == "expired"
    assert f"request {answered.request} expired at" in answered.note


def test_a_question_that_cannot_be_stored_is_answered_at_once(tmp_path: Path) -> None:
    async def scene() -> Answered:
        return await Scene(tmp_path).approver.ask(question(arguments={"text": "x" * 70_000}))

    assert asyncio.run(scene()).answer == "absent"


@tool(needs=["fs:write:${workdir}/notes"], effect="write_limited", sandbox="native")
async def note(ctx: Context, text: str) -> str:
    """Write a note."""
    await ctx.fs.write("notes/a", text)
    return text


POLICY = """
agent: desk
capabilities:
  tools: [note]
  native: [note]
  max_side_effect_class: write_limited
  fs_reach: {write: ["${workdir}/notes"]}
  approvals: {write: call}
  limits: {wall_seconds: 1}
"""


def test_the_deadline_of_a_call_is_paused_while_a_gate_waits(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "agent.yaml").write_text(POLICY)
    state = tmp_path / "state"
    backends = Backends.local(state, wait_for_approval=True)
    gate = Gate(load_manifest(tmp_path / "agent.yaml"), [note], backends, workdir=tmp_path)

    async def scene() -> Any:
        store = SqliteApprovals(state / "approvals.sqlite")
        async with gate.session("s") as session:
            call = asyncio.create_task(session.call("note", {"text": "Rain."}))
            while not (asked := await store.list()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)  # longer than the call may take
            await store.approve(asked[0])
            return await call

    result = asyncio.run(scene())
    assert result.unwrap() == "Rain."
    assert [one.by for one in result.approvals] == [("command",)]
    backends.close()


def test_waiting_and_another_approver_cannot_be_combined(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="`wait_for_approval=` and `approver=` were both given"):
        Backends.local(tmp_path, wait_for_approval=True, approver=None)
