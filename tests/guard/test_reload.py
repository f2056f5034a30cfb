"""Reloads: after one, no thread, session or delegate uses the old policy."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet import Backends, Context, Gate, Manifest, Refused, run, tool
from licet.core.decision.request import Ground
from licet.core.values import Origin, Problem
from licet.guard.gate import _Delegated
from licet.guard.ports import Answer, Question
from licet.guard.registration import RegisteredTools


@tool(needs=["fs:read:/srv"], effect="read_only", sandbox="native")
async def peek(ctx: Context) -> str:
    """Read a file."""
    return await ctx.fs.read("/srv/a")


@tool(needs=["fs:delete:/srv"], effect="full", sandbox="restricted")
async def drop(ctx: Context) -> None:
    """Delete a file."""
    await ctx.fs.delete("/srv/a")


def manifest(*tools: str, agent: str = "a") -> Manifest:
    """A manifest that admits some of the tools."""
    reach = {"read": ["/srv"], "write": ["/srv"]}
    budget = {"max_calls_per_session": 99}
    more = {"native": ["peek"], "max_side_effect_class": "full", "budget": budget}
    return Manifest.from_data({"agent": agent, "capabilities": {"tools": list(tools), "fs_reach": reach, **more}})


def gate_of(*tools: Any, **given: Any) -> Gate:
    """A gate on memory backends with one file."""
    names = [one.name for one in tools]
    return Gate(manifest(*names), tools, Backends.memory(files={"/srv/a": "x"}, **given))


@pytest.mark.parametrize("given", [None, {"agent": "a"}, "agent.yaml", Path("agent.yaml"), Gate])
def test_reloading_something_other_than_a_manifest_changes_nothing(given: Any) -> None:
    gate = gate_of(peek)
    with pytest.raises(TypeError, match="expected a Manifest"):
        gate.reload(given)
    assert run(gate, "peek").ok


def test_a_manifest_that_differs_from_its_lock_denies_every_call() -> None:
    gate = gate_of(peek)
    child = gate.delegated("helper", ["fs:read:/srv"])
    problem = Problem(Origin("licet.lock", 1, 1), "another digest", "the same", "review it")
    with pytest.raises(Refused, match="another digest in its lock"):
        gate.reload(replace(manifest("peek"), lock_problem=problem))
    assert [run(one, "peek").reason for one in (gate, child)] == ["MANIFEST_CHANGED", "MANIFEST_CHANGED"]
    gate.reload(manifest("peek"))
    assert [run(one, "peek").ok for one in (gate, child)] == [True, True]


class _Held(Gate):
    """A gate that waits in the middle of loading one manifest."""

    waits_for: Manifest | None = None
    began: threading.Event
    go: threading.Event

    def _register(self, manifest: Manifest, *, refuse: bool, parent: RegisteredTools | None = None) -> RegisteredTools:
        if manifest is self.waits_for:
            self.began.set()
            assert self.go.wait(30)
        return super()._register(manifest, refuse=refuse, parent=parent)


def test_the_later_of_two_reloads_stays_in_force() -> None:
    gate = _Held(manifest("peek"), [peek], Backends.memory(files={"/srv/a": "x"}))
    gate.began, gate.go = threading.Event(), threading.Event()
    gate.waits_for = manifest("peek")
    first = threading.Thread(target=gate.reload, args=(gate.waits_for,))
    first.start()
    assert gate.began.wait(30)
    second = threading.Thread(target=gate.reload, args=(manifest(),))
    second.start()
    second.join(0.2)  # without a lock, it has ended by now
    gate.go.set()
    first.join()
    second.join()
    assert run(gate, "peek").reason == "TOOL_NOT_IN_BUNDLE"


def test_no_thread_sees_the_old_policy_of_a_delegate_after_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = gate_of(peek)
    child = gate.delegated("helper", ["fs:read:/srv"])
    before = child.policy.tools["peek"]
    gate.reload(manifest())
    began, go = threading.Event(), threading.Event()
    found: list[RegisteredTools] = []
    narrowed = _Delegated._narrowed

    def slow(self: _Delegated) -> Manifest:
        began.set()
        assert go.wait(30)
        return narrowed(self)

    monkeypatch.setattr(_Delegated, "_narrowed", slow)
    first = threading.Thread(target=lambda: found.append(child.policy))
    first.start()
    assert began.wait(30)
    assert not child.is_current(before)
    second = threading.Thread(target=lambda: found.append(child.policy))
    second.start()
    second.join(0.2)
    go.set()
    first.join()
    second.join()
    assert [policy.tools["peek"].reach for policy in found] == [None, None]


def test_a_reload_voids_the_question_about_a_delete() -> None:
    asked: list[str] = []
    gates: list[Gate] = []

    async def agree(question: Question) -> Answer:
        asked.append(question.approval.use)
        if question.approval.use:
            gates[0].reload(manifest())
        return "approved"

    gates.append(gate_of(drop, approver=agree))
    result = run(gates[0], "drop")
    assert "fs:delete:/srv/a" in asked
    assert result.reason == "MANIFEST_CHANGED"


def test_a_session_is_refused_after_a_reload_for_another_agent() -> None:
    gate = gate_of(peek)

    async def go() -> list[str]:
        async with gate.session("s") as session:
            below = session.delegate(agent="helper", allow=["fs:read:/srv"])
            found: list[str] = [(await one.call("peek")).reason for one in (session, below)]
            gate.reload(manifest("peek", agent="b"))
            late = session.delegate(agent="late", allow=["fs:read:/srv"])
            found += [(await one.call("peek")).reason for one in (session, below, late)]
            assert await session.available() == []
        async with gate.session("s") as again:
            found.append((await again.call("peek")).reason)
        return found

    refused = ["SESSION_ENDED", "MANIFEST_CHANGED", "SESSION_ENDED"]
    assert asyncio.run(go()) == ["ALLOWED", "ALLOWED", *refused, "ALLOWED"]


def test_a_withdrawn_policy_denies_every_call_until_one_is_loaded_again() -> None:
    gate = gate_of(peek)
    child = gate.delegated("helper", ["fs:read:/srv"])
    gate.withdraw(Ground("MANIFEST_CHANGED", "the files say something else", fix="review them"))
    gate.renew_standing()  # before each call: it must not load what was withdrawn
    results = [run(one, "peek") for one in (gate, child)]
    assert [one.reason for one in results] == ["MANIFEST_CHANGED", "MANIFEST_CHANGED"]
    assert results[0].error == "MANIFEST_CHANGED: the files say something else"
    assert "review them" in results[0].explain()
    gate.reload(manifest("peek"))
    assert [run(one, "peek").ok for one in (gate, child)] == [True, True]


def test_an_end_of_a_standing_approval_does_not_bring_a_withdrawn_policy_back() -> None:
    """`renew_standing` loads the manifest of the gate again if the approval that it was loaded with has ended."""
    gate = gate_of(drop)
    withdrawn = replace(gate.manifest, standing_problem="it has ended")
    gate._finds_standing = True  # type: ignore[misc]  # as the gates of commands
    gate.manifest = replace(gate.manifest, standing_problem="it has ended")
    gate.withdraw(Ground("MANIFEST_CHANGED", "the files say something else"), withdrawn)
    gate.ports = replace(gate.ports, standing=_AlwaysStanding())
    gate.renew_standing()
    assert run(gate, "drop").reason == "MANIFEST_CHANGED"


class _AlwaysStanding:
    """Standing approvals of which one is found, whatever is asked."""

    def find(self, id: str | None, manifest: str, approvals: Any) -> Any:  # noqa: A002
        return None

    def stands(self, approval: Any) -> bool:
        return True
