"""pydantic-ai agents with its own test models."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: make test-peers")

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RunContext,
    TextPart,
    Tool,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    UserPromptPart,
)
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

import licet.adapters
from adapter_contract import AdapterContract
from gates import DONE, WAITS, Behind, add, gate_of, policy, receipts, taints_of, task_of
from licet import Gate

TestModel.__test__ = False  # it is no test


def says(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that makes these calls at once, and then repeats what the tools answered."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answers = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if answers:
            return ModelResponse([TextPart(" | ".join(str(part.content) for part in answers))])
        return ModelResponse([ToolCallPart(name, given, f"c-{n}") for n, (name, given) in enumerate(calls)])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        whole = reply(messages, info)
        for n, part in enumerate(whole.parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield {n: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    return FunctionModel(reply, stream_function=stream)


def agent_of(gate: Gate, model: Any, **more: Any) -> Any:
    tools = licet.adapters.pydantic_ai.tools(gate, session="s-42", **more)
    return Agent(model, tools=tools, output_type=[str, DeferredToolRequests])


def test_the_model_is_shown_the_tools_of_this_agent_alone() -> None:
    model = TestModel(call_tools=[])
    agent_of(gate_of(), model).run_sync("hello")
    shown = {one.name: one for one in model.last_model_request_parameters.function_tools}
    assert set(shown) == {"add", "desk_weather_today", "note", "read", "slow"}
    assert shown["add"].parameters_json_schema["properties"]["a"] == {"type": "integer"}
    assert shown["add"].description == "Add two numbers."


def test_the_test_model_calls_every_tool_with_made_up_arguments() -> None:
    gate = gate_of([add])
    agent_of(gate, TestModel()).run_sync("go")
    assert DONE == ["add 0 1"] or DONE == ["add 0 0"]
    assert [one.code for one in receipts(gate)] == ["ok"]


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("add", {"a": "1"}, "INPUT_INVALID: `a` input should be a valid integer"),
        ("add", {"a": 1, "ctx": 2}, "INPUT_INVALID: `ctx` is not an argument of this tool"),
    ],
)
def test_wrong_arguments_run_nothing(tool: str, given: dict[str, Any], text: str) -> None:
    assert agent_of(gate_of(), says((tool, given))).run_sync("go").output == text
    assert DONE == []


def test_parallel_calls_and_streams() -> None:
    gate = gate_of()
    agent = agent_of(gate, says(*[("add", {"a": n}) for n in range(20)]))

    async def streamed() -> str:
        async with agent.run_stream("go") as stream:
            return str(await stream.get_output())

    assert asyncio.run(streamed()) == " | ".join(str(n + 1) for n in range(20))
    assert len(receipts(gate)) == 20


def test_a_cancelled_run_cancels_the_call_which_leaves_a_receipt() -> None:
    gate = gate_of()
    agent = agent_of(gate, says(("slow", {"name": "x"})))

    async def cancelled() -> None:
        WAITS["x"] = asyncio.Event()
        run = asyncio.create_task(agent.run("go"))
        await WAITS["x"].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())
    assert DONE == ["begin x"]
    assert [one.reason for one in receipts(gate)] == ["TOOL_FAILED"]


def test_a_call_that_asks_pauses_the_run_until_it_is_approved() -> None:
    gate = gate_of(parts={"approver": Behind()})
    agent = agent_of(gate, says(("note", {"name": "a", "text": "Sun."})), by="maria")
    paused = agent.run_sync("go")
    [asked] = paused.output.approvals
    assert DONE == []
    question = paused.output.metadata[asked.tool_call_id]
    assert (question["tool"], question["arguments"]) == ("note", {"name": "a", "text": "Sun."})
    assert "/desk/notes" in str(question["reaches"])

    yes = DeferredToolResults(approvals={asked.tool_call_id: True})
    done = agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=yes)
    assert done.output == "wrote a"
    assert DONE == ["note a Sun."]
    last = receipts(gate)[-1]
    assert [(one.by, bool(one.arguments)) for one in last.approvals] == [(("maria",), True)]
    # The same yes is not good for a second run.
    for _ in range(2):
        again = agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=yes)
        assert again.output.startswith("APPROVAL_REQUIRED: ")
    assert DONE == ["note a Sun."]


def asked(gate: Gate, **given: Any) -> tuple[Any, Any, str]:
    """An agent, its paused run, and the id of the call that waits."""
    agent = agent_of(gate, says(("note", {"name": "a", "text": "Sun.", **given})))
    paused = agent.run_sync("go")
    [waiting] = paused.output.approvals
    return agent, paused, waiting.tool_call_id


def answered(agent: Any, paused: Any, waiting: str, answer: Any) -> Any:
    results = DeferredToolResults(approvals={waiting: answer})
    return agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=results).output


def test_a_no_reaches_the_model_and_nothing_runs() -> None:
    assert answered(*asked(gate_of()), ToolDenied("not today")) == "not today"
    assert DONE == []


def test_a_yes_with_other_arguments_asks_about_these_first() -> None:
    agent, paused, waiting = asked(gate_of())
    other = ToolApproved(override_args={"name": "b", "text": "Hail."})
    output = answered(agent, paused, waiting, other)
    assert isinstance(output, DeferredToolRequests)
    assert output.metadata[waiting]["arguments"] == {"name": "b", "text": "Hail."}
    assert DONE == []
    assert answered(agent, paused, waiting, other) == "wrote b"


def test_a_yes_after_another_manifest_was_loaded_asks_again() -> None:
    gate = gate_of()
    agent, paused, waiting = asked(gate)
    gate.reload(policy())
    assert isinstance(answered(agent, paused, waiting, True), DeferredToolRequests)
    assert DONE == []


def test_an_error_in_the_guard_blocks_the_call() -> None:
    gate = gate_of()
    agent = agent_of(gate, says(("add", {"a": 1})))
    gate.clock = None  # type: ignore[assignment] # every call fails before it is decided
    output = agent.run_sync("go").output
    assert output == "DECISION_FAILED: add could not be called: AttributeError in the guard"
    assert DONE == []


def test_a_closed_adapter_refuses() -> None:
    gate = gate_of()
    with licet.adapters.pydantic_ai.tools(gate, session="s-42") as tools:
        agent = Agent(says(("add", {"a": 1})), tools=tools)
        assert agent.run_sync("go").output == "2"
    assert "SESSION_ENDED" in str(tools.gate_tools.call_blocking("add", {"a": 1}).text)


# Tools that were written for pydantic-ai ------------------------------------------------------------------------------


def search(ctx: RunContext[str], query: str, most: int = 3) -> list[str]:
    """Search the documents.

    Args:
        query: What to look for.
        most: How many results.
    """
    DONE.append(f"search {query} {most} for {ctx.deps}")
    return [query] * most


def governed_search(**policy: Any) -> Any:
    tool = licet.adapters.governed(Tool(search), needs=[], effect="read_only")
    gate = gate_of([tool], **policy)
    return gate, licet.adapters.pydantic_ai.tools(gate, session="s-42")


def test_a_tool_of_the_framework_runs_behind_the_gate_with_its_context() -> None:
    gate, tools = governed_search()
    model = says(("search", {"query": "rain", "most": 2}))
    done = Agent(model, tools=tools, deps_type=str).run_sync("go", deps="maria")
    assert done.output == '["rain","rain"]'
    assert DONE == ["search rain 2 for maria"]
    assert [one.tool for one in receipts(gate)] == ["search"]


@pytest.mark.parametrize("given", [{"query": 1}, {}, {"query": "a", "more": 1}, {"query": "a", "most": "x"}])
def test_its_arguments_are_checked_by_its_schema(given: dict[str, Any]) -> None:
    _, tools = governed_search()
    done = Agent(says(("search", given)), tools=tools, deps_type=str).run_sync("go", deps="x")
    assert done.output.startswith("INPUT_INVALID: ")
    assert DONE == []


def test_the_manifest_has_rules_on_its_arguments() -> None:
    rule = {"search": {"args": {"query": {"enum": ["rain"]}}}}
    _, tools = governed_search(tools=rule)
    done = Agent(says(("search", {"query": "keys"})), tools=tools, deps_type=str).run_sync("go", deps="x")
    assert done.output.startswith("ARGUMENT_NOT_ALLOWED: ")
    assert DONE == []


def test_an_approval_that_would_be_lost_is_an_error() -> None:
    with pytest.raises(TypeError, match="requires_approval"):
        licet.adapters.governed(Tool(search, requires_approval=True), needs=[], effect="read_only")


def read_file(file_path: Path) -> str:
    """Read a file, by itself."""
    return file_path.read_text(encoding="utf-8")


class TestContract(AdapterContract):
    """The contract of all adapters."""

    file_reader = Tool(read_file)

    def answer(self, gate: Gate, name: str, given: dict[str, Any]) -> str:
        """What the agent's model repeats."""
        return str(agent_of(gate, says((name, given))).run_sync("go").output)


# The task -------------------------------------------------------------------------------------------------------------


def hearing(gate: Gate, *more: Any, model: Any = None) -> Any:
    tools = licet.adapters.pydantic_ai.tools(gate, session="s-42")
    heard = [licet.adapters.pydantic_ai.hears(tools)]
    return Agent(model or says(("add", {"a": 1})), tools=[*tools, *more], capabilities=heard)


def test_the_prompt_of_a_run_is_the_task_and_the_history_is_not() -> None:
    gate = gate_of(flow="guarded")
    agent = hearing(gate)
    first = agent.run_sync("one")
    agent.run_sync("two", message_history=first.all_messages())
    assert task_of(gate) == "one\ntwo"


def test_a_prompt_of_several_parts_is_its_text() -> None:
    gate = gate_of(flow="guarded")
    hearing(gate).run_sync(["one", ImageUrl("https://example.com/a.png"), "two"])
    assert task_of(gate) == "one\ntwo"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_history_that_ends_with_a_prompt_is_no_task(streamed: bool) -> None:
    gate = gate_of(flow="guarded")
    history = [ModelRequest([UserPromptPart("write to mallory")])]

    async def stream() -> None:
        async with hearing(gate).run_stream(message_history=history) as run:
            await run.get_output()

    asyncio.run(stream()) if streamed else hearing(gate).run_sync(message_history=history)
    assert task_of(gate) == ""
    assert [(one.tool, one.code) for one in receipts(gate)] == [("licet session read", "ok"), ("add", "ok")]
    assert taints_of(gate)


def test_a_streamed_run_is_heard() -> None:
    gate = gate_of(flow="guarded")

    async def stream() -> None:
        async with hearing(gate).run_stream("one") as run:
            await run.get_output()

    asyncio.run(stream())
    assert task_of(gate) == "one"


def test_the_prompt_of_a_sub_agent_is_no_task() -> None:
    gate = gate_of(flow="guarded")

    async def ask(text: str) -> str:
        """Ask a sub-agent."""
        return str((await hearing(gate).run(text)).output)

    hearing(gate, ask, model=says(("ask", {"text": "write to mallory"}))).run_sync("one")
    assert task_of(gate) == "one"
    assert DONE == ["add 1 1"]


def test_an_approved_run_that_goes_on_says_nothing_new() -> None:
    gate = gate_of(flow="guarded", parts={"approver": Behind()})
    tools = licet.adapters.pydantic_ai.tools(gate, session="s-42")
    heard = [licet.adapters.pydantic_ai.hears(tools)]
    model = says(("note", {"name": "a", "text": "Sun."}))
    agent = Agent(model, tools=tools, output_type=[str, DeferredToolRequests], capabilities=heard)
    paused = agent.run_sync("one")
    yes = DeferredToolResults(approvals={paused.output.approvals[0].tool_call_id: True})
    agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=yes)
    assert task_of(gate) == "one"
    assert DONE == ["note a Sun."]
