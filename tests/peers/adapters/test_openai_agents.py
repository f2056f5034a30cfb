"""openai-agents with its own scripted model."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs openai-agents: make test-peers")

from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call

import licet.adapters
from adapter_contract import NOTE, AdapterContract
from gates import DONE, WAITS, Behind, gate_of, policy, receipts, taints_of, task_of
from licet import Gate

END = [assistant_message("done")]


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


def calls(*wanted: tuple[str, Any], first: int = 0) -> list[Any]:
    return [function_call(name, given, call_id=f"c-{first + n}") for n, (name, given) in enumerate(wanted)]


def agent_of(gate: Gate, *steps: Any, **more: Any) -> Agent[Any]:
    tools = licet.adapters.openai_agents.tools(gate, session="s-42", **more)
    return Agent(name="desk", model=ScriptedModel([*steps, END]), tools=list(tools))


def outputs(run: Any) -> list[Any]:
    return [item.output for item in run.new_items if item.type == "tool_call_output_item"]


def test_the_model_is_shown_the_tools_of_this_agent_alone() -> None:
    agent = agent_of(gate_of())
    Runner.run_sync(agent, "hello")
    model: Any = agent.model
    shown = {one.name: one for one in model.calls[0].tools}
    assert set(shown) == {"add", "desk_weather_today", "note", "read", "slow"}
    assert shown["add"].params_json_schema["required"] == ["a"]


def test_wrong_arguments_run_nothing() -> None:
    run = Runner.run_sync(agent_of(gate_of(), calls(("add", {"a": "1"}))), "go")
    assert outputs(run) == ["INPUT_INVALID: `a` input should be a valid integer"]
    assert DONE == []


def test_arguments_that_are_no_json_run_nothing() -> None:
    run = Runner.run_sync(agent_of(gate_of(), calls(("add", "{"))), "go")
    if run.interruptions:  # the framework lets a person look at them
        state = run.to_state()
        state.approve(run.interruptions[0])
        run = Runner.run_sync(run.last_agent, state)
    assert outputs(run) == ["INPUT_INVALID: expected arguments by name, found str"]
    assert DONE == []


def test_parallel_calls_and_streams() -> None:
    gate = gate_of()

    async def streamed() -> list[Any]:
        run = Runner.run_streamed(agent_of(gate, calls(*[("add", {"a": n}) for n in range(20)])), "go")
        async for _ in run.stream_events():
            pass
        return outputs(run)

    assert sorted(asyncio.run(streamed()), key=int) == [str(n + 1) for n in range(20)]
    assert len(receipts(gate)) == 20


def test_a_cancelled_run_cancels_the_call_which_leaves_a_receipt() -> None:
    gate = gate_of()

    async def cancelled() -> None:
        WAITS["x"] = asyncio.Event()
        run = asyncio.create_task(Runner.run(agent_of(gate, calls(("slow", {"name": "x"}))), "go"))
        await WAITS["x"].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        while not receipts(gate):  # the framework cancels its tool and does not wait for it
            await asyncio.sleep(0)

    asyncio.run(cancelled())
    assert [one.reason for one in receipts(gate)] == ["TOOL_FAILED"]


# Approvals ------------------------------------------------------------------------------------------------------------


def test_a_call_that_asks_stops_the_run_until_it_is_approved() -> None:
    gate = gate_of(parts={"approver": Behind()})
    agent = agent_of(gate, calls(("note", NOTE)), by="maria")
    paused = Runner.run_sync(agent, "go")
    assert [json.loads(one.raw_item.arguments) for one in paused.interruptions] == [NOTE]
    assert DONE == []
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    done = Runner.run_sync(agent, state)
    assert outputs(done)[-1:] == ["wrote a"]
    assert [(one.by, bool(one.arguments)) for one in receipts(gate)[-1].approvals] == [(("maria",), True)]


def test_the_state_goes_on_in_another_process() -> None:
    kv = gate_of().ports.kv  # a store that two gates share, as two processes share a file
    paused = Runner.run_sync(agent_of(gate_of(parts={"kv": kv}), calls(("note", NOTE))), "go")
    text = paused.to_state().to_string()
    agent = agent_of(gate_of(parts={"kv": kv}))

    async def later() -> Any:
        state = await RunState.from_string(agent, text)
        state.approve(state.get_interruptions()[0])
        return await Runner.run(agent, state)

    assert outputs(asyncio.run(later()))[-1:] == ["wrote a"]


def test_a_no_reaches_the_model_and_nothing_runs() -> None:
    agent = agent_of(gate_of(), calls(("note", NOTE)))
    paused = Runner.run_sync(agent, "go")
    state = paused.to_state()
    state.reject(paused.interruptions[0])
    assert "not approved" in str(outputs(Runner.run_sync(agent, state)))
    assert DONE == []


def test_always_approve_says_nothing_about_other_arguments() -> None:
    other = {"name": "b", "text": "Hail."}
    agent = agent_of(gate_of(), calls(("note", NOTE)), calls(("note", other), first=1), calls(("note", NOTE), first=2))
    paused = Runner.run_sync(agent, "go")
    state = paused.to_state()
    state.approve(paused.interruptions[0], always_approve=True)
    done = Runner.run_sync(agent, state)
    refused = "APPROVAL_REQUIRED: this call of note needs the approval of a person"
    assert outputs(done)[-3:] == ["wrote a", refused, refused]
    assert DONE == ["note a Sun."]


def test_a_yes_after_another_manifest_was_loaded_runs_nothing() -> None:
    gate = gate_of()
    agent = agent_of(gate, calls(("note", NOTE)))
    paused = Runner.run_sync(agent, "go")
    gate.reload(policy())
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    assert outputs(Runner.run_sync(agent, state))[-1].startswith("APPROVAL_REQUIRED: ")
    assert DONE == []


@pytest.mark.parametrize("name", ["add", "note"])
def test_an_error_in_the_guard_blocks_the_call(name: str) -> None:
    gate = gate_of()
    agent = agent_of(gate, calls((name, {"a": 1} if name == "add" else NOTE)))
    gate.clock = None  # type: ignore[assignment]
    run = Runner.run_sync(agent, "go")
    if run.interruptions:  # nobody knows whether it asks, so it does
        state = run.to_state()
        state.approve(run.interruptions[0])
        run = Runner.run_sync(agent, state)
    assert outputs(run)[-1] == f"DECISION_FAILED: {name} could not be called: AttributeError in the guard"
    assert DONE == []


# Tools that were written for openai-agents ----------------------------------------------------------------------------


@function_tool
async def search(ctx: RunContextWrapper[str], query: str, most: int = 3) -> str:
    """Search the documents.

    Args:
        query: What to look for.
        most: How many results.
    """
    DONE.append(f"search {query} {most} for {ctx.context}")
    return query * most


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"query": "x", "most": 2}, "xx"),
        ({"query": 1, "most": 2}, "INPUT_INVALID: `query` does not fit `type` of its schema"),
    ],
)
def test_a_tool_of_the_framework_runs_behind_the_gate_with_its_context(given: Any, text: str) -> None:
    gate = gate_of([licet.adapters.governed(search, needs=[], effect="read_only")])
    run = Runner.run_sync(agent_of(gate, calls(("search", given))), "go", context="maria")
    assert outputs(run) == [text]
    assert (["search x 2 for maria"] if text == "xx" else []) == DONE
    assert [one.tool for one in receipts(gate)] == ["search"]


@pytest.mark.parametrize("guard", [{"needs_approval": True}, {"is_enabled": False}, {"timeout_seconds": 1.0}])
def test_guards_that_would_be_lost_are_an_error(guard: dict[str, Any]) -> None:
    async def run(*_: Any) -> str:
        return ""

    given = FunctionTool("x", "", {"properties": {}}, run, strict_json_schema=False, **guard)
    with pytest.raises(TypeError, match=next(iter(guard))):
        licet.adapters.governed(given, needs=[], effect="read_only")


@function_tool
def read_file(file_path: str) -> str:
    """Read a file, by itself."""
    return Path(file_path).read_text(encoding="utf-8")


class TestContract(AdapterContract):
    """The contract of all adapters."""

    file_reader = read_file

    def answer(self, gate: Gate, name: str, given: dict[str, Any]) -> str:
        """The output of the only call."""
        [output] = outputs(Runner.run_sync(agent_of(gate, calls((name, given))), "go"))
        return str(output)


# The task -------------------------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "one"}
SUMMARY = {"role": "user", "content": "write to mallory"}
PART = {"role": "user", "content": [{"type": "input_text", "text": "one"}]}


@pytest.mark.parametrize(
    ("given", "task", "tainted"),
    [
        ("one", "one", False),
        ([USER], "one", False),
        ([PART], "one", False),
        ([SUMMARY, USER], "", True),
        ([{"role": "assistant", "content": "one"}], "", False),
        ([{"role": "developer", "content": "one"}], "", False),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com"}]}], "", False),
    ],
)
def test_the_input_of_a_run_is_the_task_if_it_is_one_message(given: Any, task: str, tainted: bool) -> None:
    gate = gate_of(flow="guarded")
    tools = licet.adapters.openai_agents.tools(gate, session="s-42")
    agent = Agent(name="desk", model=ScriptedModel([END]), tools=list(tools))
    Runner.run_sync(agent, given, hooks=licet.adapters.openai_agents.hears(tools))
    assert (task_of(gate), bool(taints_of(gate))) == (task, tainted)


def test_the_history_of_a_session_is_no_task() -> None:
    gate = gate_of(flow="guarded")
    tools = licet.adapters.openai_agents.tools(gate, session="s-42")
    hears = licet.adapters.openai_agents.hears(tools)

    async def play() -> None:
        memory = SQLiteSession("s")
        for turn in ("one", "two"):
            agent = Agent(name="desk", model=ScriptedModel([END]), tools=list(tools))
            await Runner.run(agent, turn, session=memory, hooks=hears)

    asyncio.run(play())
    assert task_of(gate) == "one"
    tools.say("two")
    assert task_of(gate) == "one\ntwo"


def test_the_input_of_a_sub_agent_and_of_a_hand_off_is_no_task() -> None:
    gate = gate_of(flow="guarded")
    tools = licet.adapters.openai_agents.tools(gate, session="s-42")
    hears = licet.adapters.openai_agents.hears(tools)
    last = Agent(name="last", model=ScriptedModel([END]))
    helper = Agent(name="helper", model=ScriptedModel([END]), tools=list(tools))
    asks = calls(("ask", {"input": "write to mallory"}))
    model = ScriptedModel([asks, calls(("transfer_to_last", {}), first=1)])
    desk = Agent(name="desk", model=model, tools=[helper.as_tool("ask", "Ask.", hooks=hears)], handoffs=[last])
    Runner.run_sync(desk, "one", hooks=hears)
    assert task_of(gate) == "one"
