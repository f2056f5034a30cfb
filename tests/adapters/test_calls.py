"""What every adapter shares: the tools that are shown, calls with and without an event loop, a yes in a framework."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gates import DONE, WAITS, Behind, add, gate_of, note, policy, receipts, remove, signed
from licet import Gate, Tool, tool
from licet.adapters.framework_calls import GateTools, Outcome
from licet.mcp.shown_names import shown_names
from licet.testing import InThisProcess, MemoryClock, MemoryKv

NOTE = {"name": "a", "text": "Sun."}


def tools_of(gate: Gate, **more: Any) -> GateTools:
    return GateTools(gate, "s-42", **more)


# Names and texts ------------------------------------------------------------------------------------------------------


def test_only_tools_that_this_agent_may_call_are_offered() -> None:
    tools = tools_of(gate_of())
    assert [one.name for one in tools.offered()] == ["add", "desk_weather_today", "note", "read", "slow"]
    assert tools.offered()[0].schema["required"] == ["a"]


def test_a_tool_that_a_new_manifest_does_not_admit_is_no_longer_offered() -> None:
    gate = gate_of()
    tools = tools_of(gate)
    gate.reload(policy([add]))
    assert [one.name for one in tools.offered()] == ["add"]
    assert tools.call_blocking("note", NOTE).text.startswith("TOOL_NOT_IN_BUNDLE: ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("add", "add"),
        ("server.tool", "server_tool"),
        ("a/b.c-d_e", "a_b_c-d_e"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 57 + "_" + "92b2ed"),
    ],
)
def test_names_fit_what_providers_take(name: str, shown: str) -> None:
    [made] = shown_names([name], "whole")
    assert len(made) <= 64
    assert made[:57] == shown[:57]


def test_names_that_would_be_the_same_are_an_error() -> None:
    same = [tool(name=name, needs=[], effect="read_only", sandbox="native")(add.fn) for name in ("a.b", "a/b")]
    with pytest.raises(ValueError, match=r"`a\.b` and `a/b` would both be shown as `a_b`: rename one of them"):
        tools_of(gate_of(same))


@pytest.mark.parametrize(
    ("shown", "given", "text"),
    [
        ("add", {"a": 1, "b": 2}, "3"),
        ("add", '{"a": 1}', "2"),
        ("desk_weather_today", {"city": "oslo"}, '{"city":"oslo","sky":"rain"}'),
        ("read", {"path": "notes/a"}, "Rain."),
        ("read", {"path": "key"}, "PATH_NOT_REACHABLE: read not permitted for key"),
        ("add", "no JSON", "INPUT_INVALID: expected arguments by name, found str"),
        ("add", "[1]", "INPUT_INVALID: expected arguments by name, found list"),
        ("add", None, "INPUT_INVALID: `a` is required"),
        ("hidden", {}, "TOOL_NOT_IN_BUNDLE: hidden may not be called"),
        ("made_up", {}, "UNKNOWN_TOOL: made_up may not be called"),
    ],
)
def test_a_result_is_text_and_so_is_a_refusal(shown: str, given: Any, text: str) -> None:
    gate = gate_of()
    assert tools_of(gate).call_blocking(shown, given).text == text
    assert len(receipts(gate)) == 1


def test_a_result_that_was_cut_says_so() -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    def long() -> str:
        return "x" * 5000

    text = tools_of(gate_of([long], limits={"output_kb": 1})).call_blocking("long", {}).text
    assert text.endswith("\n[cut: the result was longer than its limit]")


# With and without an event loop ---------------------------------------------------------------------------------------


def in_no_loop(tools: GateTools) -> Outcome:
    return tools.call_blocking("add", {"a": 1})


def in_a_running_loop(tools: GateTools) -> Outcome:
    async def call() -> Outcome:
        return await tools.call("add", {"a": 1})

    return asyncio.run(call())


def blocking_in_a_running_loop(tools: GateTools) -> Outcome:
    async def call() -> Outcome:
        return tools.call_blocking("add", {"a": 1})

    return asyncio.run(call())


def in_another_thread(tools: GateTools) -> Outcome:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(tools.call_blocking("add", {"a": 1})))
    thread.start()
    thread.join()
    return found[0]


WAYS = [in_no_loop, in_a_running_loop, blocking_in_a_running_loop, in_another_thread]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_runs_with_and_without_a_loop(way: Callable[[GateTools], Outcome]) -> None:
    assert way(tools_of(gate_of())).text == "2"


def test_one_adapter_serves_all_ways_in_turn() -> None:
    gate = gate_of()
    tools = tools_of(gate)
    assert [way(tools).text for way in (*WAYS, *WAYS)] == ["2"] * (2 * len(WAYS))
    assert {one.session for one in receipts(gate)} == {"s-42"}


def test_a_tool_that_waits_for_the_loop_it_runs_in_is_refused_and_does_not_hang() -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    async def inner() -> str:
        return tools.call_blocking("add", {"a": 1}).text

    tools = tools_of(gate_of([add, inner]))
    assert (
        tools.call_blocking("inner", {}).text == "DECISION_FAILED: add could not be called: RuntimeError in the guard"
    )


def test_a_cancelled_call_ends_with_a_receipt() -> None:
    gate = gate_of()
    tools = tools_of(gate)

    async def cancelled() -> None:
        WAITS["x"] = asyncio.Event()
        call = asyncio.create_task(tools.call("slow", {"name": "x"}))
        await WAITS["x"].wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert [one.reason for one in receipts(gate)] == ["TOOL_FAILED"]


def test_closing_closes_the_session_and_another_adapter_continues_it() -> None:
    gate = gate_of(budget={"max_calls_per_session": 2})
    tools = tools_of(gate)
    assert tools.call_blocking("add", {"a": 1}).ok
    tools.close()
    tools.close()
    assert tools.call_blocking("add", {"a": 1}).text == "SESSION_ENDED: this session has ended"
    assert tools.offered() == []
    again = tools_of(gate)
    assert again.call_blocking("add", {"a": 1}).ok
    assert again.call_blocking("add", {"a": 1}).text == "BUDGET_EXCEEDED: add would exceed the budget"


def test_an_open_session_such_as_a_delegate_is_used_and_left_open() -> None:
    gate = gate_of()
    delegate = gate.session("s-1").delegate(agent="child", allow=["tool:call:add"])
    tools = GateTools(gate, delegate)
    assert [one.name for one in tools.offered()] == ["add"]
    assert tools.call_blocking("add", {"a": 1}).ok
    tools.close()
    assert tools.call_blocking("add", {"a": 1}).ok


@pytest.mark.parametrize("by", ["", " ", "ed25519:AAAA", None])
def test_nobody_approves_under_the_name_of_a_key(by: Any) -> None:
    with pytest.raises(ValueError, match="never a key"):
        tools_of(gate_of(), by=by)


def test_an_error_in_the_guard_is_a_refusal() -> None:
    gate = gate_of()
    tools = tools_of(gate)
    gate.clock = None  # type: ignore[assignment]
    done = tools.call_blocking("add", {"a": 1})
    assert (done.ok, done.text) == (False, "DECISION_FAILED: add could not be called: AttributeError in the guard")
    assert DONE == []


# A yes in the framework -----------------------------------------------------------------------------------------------


def test_a_call_that_asks_has_a_question_and_runs_after_a_yes() -> None:
    gate = gate_of(parts={"approver": (behind := Behind())})
    tools = tools_of(gate, by="maria")
    first = tools.call_blocking("note", NOTE, call_id="c-1")
    assert first.text == "APPROVAL_REQUIRED: this call of note needs the approval of a person"
    assert first.question is not None
    shown = first.question.shown()
    assert (shown["tool"], shown["arguments"], shown["effect"]) == ("note", NOTE, "write_limited")
    assert shown["why"]
    assert DONE == []
    done = tools.call_blocking("note", NOTE, call_id="c-1", yes=True)
    assert done.text == "wrote a"
    assert done.result is not None
    assert [one.by for one in done.result.approvals] == [("maria",)]
    assert behind.asked == []


REFUSED_YES: dict[str, dict[str, Any]] = {
    "other arguments": {"arguments": {**NOTE, "text": "Hail."}},
    "another call of the framework": {"call_id": "c-2"},
    "another session": {"session": "s-43"},
}


@pytest.mark.parametrize("other", REFUSED_YES.values(), ids=REFUSED_YES)
def test_a_yes_counts_for_nothing_else(other: dict[str, Any]) -> None:
    gate = gate_of()
    assert tools_of(gate).call_blocking("note", NOTE, call_id="c-1").question is not None
    tools = GateTools(gate, other.get("session", "s-42"))
    given, call_id = other.get("arguments", NOTE), other.get("call_id", "c-1")
    done = tools.call_blocking("note", given, call_id=call_id, yes=True)
    assert done.text.startswith("APPROVAL_REQUIRED: ")
    assert DONE == []
    # Now that was asked about, too.
    assert done.question is not None
    assert tools.call_blocking("note", given, call_id=call_id, yes=True).ok


def test_a_yes_without_a_question_counts_for_nothing() -> None:
    tools = tools_of(gate_of())
    assert tools.call_blocking("note", NOTE, call_id="c-1", yes=True).text.startswith("APPROVAL_REQUIRED: ")
    assert DONE == []


class SlowKv(MemoryKv):
    """A store whose reads let other tasks go on, as those of a file do."""

    async def get(self, scope: str, key: str) -> Any:
        """Read a value, and let all others read theirs before this one is used."""
        found = await super().get(scope, key)
        for _ in range(50):
            await asyncio.sleep(0)
        return found


@pytest.mark.parametrize("kv", [MemoryKv, SlowKv])
def test_a_yes_serves_one_of_many_calls_at_once(kv: type[MemoryKv]) -> None:
    tools = tools_of(gate_of(parts={"kv": kv()}))
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None

    async def race() -> list[Outcome]:
        return await asyncio.gather(*(tools.call("note", NOTE, call_id="c-1", yes=True) for _ in range(20)))

    assert [one.ok for one in asyncio.run(race())].count(True) == 1
    assert DONE == ["note a Sun."]


def test_a_yes_is_not_good_for_the_same_call_again() -> None:
    tools = tools_of(gate_of())
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    for wanted in (True, False, False, False):
        assert tools.call_blocking("note", NOTE, call_id="c-1", yes=True).ok is wanted
        tools.call_blocking("note", NOTE, call_id="c-1")  # asks again, which opens no way for the old yes
    assert DONE == ["note a Sun."]


def test_calls_without_an_id_can_be_asked_about_again() -> None:
    tools = tools_of(gate_of())
    for _ in range(2):
        assert tools.call_blocking("note", NOTE, yes=True).question is None  # a yes alone opens no question
        assert tools.call_blocking("note", NOTE).question is not None
        assert tools.call_blocking("note", NOTE, yes=True).ok


def test_a_yes_that_comes_too_late_is_expired_and_asking_again_does_not_extend_the_time() -> None:
    clock = MemoryClock()
    tools = tools_of(gate_of(parts={"clock": clock, "kv": MemoryKv(lambda: clock.now().timestamp())}))
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    clock.advance(200)
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    clock.advance(100)
    done = tools.call_blocking("note", NOTE, call_id="c-1", yes=True)
    assert done.text == "APPROVAL_EXPIRED: nobody answered in time"
    assert DONE == []


def test_a_yes_under_an_older_manifest_counts_for_nothing_even_if_it_is_the_same() -> None:
    gate = gate_of()
    tools = tools_of(gate)
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    gate.reload(policy())
    assert tools.call_blocking("note", NOTE, call_id="c-1", yes=True).text.startswith("APPROVAL_REQUIRED: ")
    assert DONE == []


def test_the_question_survives_the_process_that_asked_it() -> None:
    kv = MemoryKv()  # a store that two gates share, as two processes share a file
    first = tools_of(gate_of(parts={"kv": kv}))
    assert first.call_blocking("note", NOTE, call_id="c-1").question is not None
    second = tools_of(gate_of(parts={"kv": kv}))
    assert second.call_blocking("note", NOTE, call_id="c-1", yes=True).ok


def test_a_no_is_recorded_and_runs_nothing_even_if_the_call_would_not_ask() -> None:
    gate = gate_of()
    tools = tools_of(gate, by="maria")
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    done = tools.call_blocking("note", NOTE, call_id="c-1", yes=False)
    assert done.text == "APPROVAL_DENIED: the person who was asked said no"
    assert receipts(gate)[-1].reason == "APPROVAL_DENIED"
    assert tools.call_blocking("add", {"a": 1}, yes=False).text == done.text
    assert DONE == []


def test_a_yes_works_without_a_store() -> None:
    tools = tools_of(gate_of(parts={"kv": None}))
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    assert tools.call_blocking("note", NOTE, call_id="c-1", yes=True).ok


def test_a_yes_does_not_approve_the_session() -> None:
    tools = tools_of(gate_of(approvals={"write": "session"}))
    assert tools.call_blocking("note", NOTE, call_id="c-1").question is not None
    assert tools.call_blocking("note", NOTE, call_id="c-1", yes=True).ok
    assert tools.call_blocking("note", NOTE, call_id="c-2").question is not None


@pytest.mark.parametrize("people", [1, 2])
def test_where_signatures_are_wanted_the_framework_is_not_asked(people: int) -> None:
    gate = gate_of(parts={"approver": (behind := Behind())}, approvals=signed(people))
    tools = tools_of(gate)
    for yes in (None, True):
        done = tools.call_blocking("note", NOTE, call_id="c-1", yes=yes)
        assert done.question is None
        assert done.result is not None
        assert "stored; a yes in the agent framework has no signature, and does not count here" in done.result.explain()
    assert len(behind.asked) == 2
    assert asyncio.run(tools.question("note", NOTE)) is None
    assert DONE == []


def test_a_framework_that_cannot_ask_leaves_the_question_to_the_approver_of_the_gate() -> None:
    gate = gate_of(parts={"approver": (behind := Behind())})
    assert tools_of(gate, asks=False).call_blocking("note", NOTE, yes=True).question is None
    assert len(behind.asked) == 1


def test_calls_past_the_adapter_are_asked_about_as_before() -> None:
    async def approve(question: object) -> Any:
        return "approved"

    gate = gate_of(parts={"approver": approve})
    tools = tools_of(gate)

    async def direct() -> Any:
        async with gate.session("s-42") as session:
            return await session.call("note", NOTE)

    done = asyncio.run(direct())
    assert done.approvals[0].by == ("callback",)
    assert tools.call_blocking("note", NOTE).question is not None


def test_a_tool_cannot_use_the_yes_of_its_own_call_for_another() -> None:
    inner: list[Any] = []

    @tool(needs=["fs:write:${workdir}/notes"], effect="write_limited", sandbox="native")
    async def outer(text: str) -> str:
        async with gate.session("s-42") as session:
            inner.append(await session.call("outer", {"text": text}))
            inner.append(await session.call("note", NOTE))
        return "done"

    gate = gate_of([outer, note])
    tools = tools_of(gate)
    assert tools.call_blocking("outer", {"text": "x"}, call_id="c-1").question is not None
    assert tools.call_blocking("outer", {"text": "x"}, call_id="c-1", yes=True).ok
    assert [one.reason for one in inner] == ["APPROVAL_REQUIRED"] * 2
    assert DONE == []


# Deletes --------------------------------------------------------------------------------------------------------------


def deleting(**more: Any) -> Gate:
    return gate_of(
        [remove],
        parts={"sandbox": InThisProcess(), **more},
        tools={"remove": {"args": {"path": {"scope": "fs:delete"}}}},
        native=[],
        max_side_effect_class="full",
        budget={"max_calls_per_session": 10},
        grants=["fs:delete:${workdir}/notes"],
    )


def test_one_yes_covers_a_call_and_the_delete_that_is_known_from_its_arguments() -> None:
    tools = tools_of(deleting())
    first = tools.call_blocking("remove", {"path": "notes/a"}, call_id="c-1")
    assert first.question is not None
    assert first.question.deletes == ("fs:delete:/desk/notes/a",)
    assert tools.call_blocking("remove", {"path": "notes/a"}, call_id="c-1", yes=True).text == "gone"
    assert DONE == ["removed notes/a"]


def test_a_delete_that_was_not_shown_goes_to_the_approver_of_the_gate() -> None:
    tools = tools_of(deleting(approver=(behind := Behind())))
    given = {"path": "notes/a", "also": "notes/b"}
    assert tools.call_blocking("remove", given, call_id="c-1").question is not None
    done = tools.call_blocking("remove", given, call_id="c-1", yes=True)
    assert done.question is None
    assert done.text.startswith("APPROVAL_REQUIRED: ")
    assert DONE == ["removed notes/a"]
    assert [one.approval.use for one in behind.asked] == ["fs:delete:/desk/notes/b"]


def test_tools_are_found_by_the_gate_alone() -> None:
    with pytest.raises(TypeError, match="expected a Gate, found type"):
        GateTools(Tool, "s-42")  # type: ignore[arg-type]
