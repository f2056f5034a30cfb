"""langchain agents and langgraph graphs, with the fake chat model of langchain."""

import asyncio
import runpy
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain: make test-peers")

from langchain.agents import create_agent
from langchain.tools import InjectedState
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

import licet.adapters
from adapter_contract import NOTE, REFUSED, AdapterContract
from gates import DONE, WAITS, Behind, gate_of, policy, receipts, taints_of, task_of
from licet import Gate, tool
from walkthrough import play

THREAD = {"configurable": {"thread_id": "t"}}


class Model(GenericFakeChatModel):
    """The fake model, which does not look at its tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        SHOWN[:] = tools
        return self


SHOWN: list[Any] = []


def asks(*calls: tuple[str, Any]) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": name, "args": args, "id": f"c-{n}"} for n, (name, args) in enumerate(calls)]
    )


def agent_of(gate: Gate, *steps: AIMessage, **more: Any) -> Any:
    tools = licet.adapters.langchain.tools(gate, session="s-42", **more)
    model = Model(messages=iter([*steps, AIMessage("done")]))
    return create_agent(model, tools=list(tools), checkpointer=InMemorySaver())


def answers(state: Any) -> list[tuple[str, str]]:
    return [(one.content, one.status) for one in state["messages"] if one.type == "tool"]


def go() -> dict[str, Any]:
    return {"messages": [HumanMessage("go")]}


def test_the_model_is_shown_the_tools_of_this_agent_alone() -> None:
    agent_of(gate_of()).invoke(go(), THREAD)
    assert [one.name for one in SHOWN] == ["add", "desk_weather_today", "note", "read", "slow"]
    assert SHOWN[0].tool_call_schema["required"] == ["a"]


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize(
    ("name", "given", "answer"),
    [
        ("add", {"a": 1, "b": 2}, ("3", "success")),
        ("desk_weather_today", {"city": "oslo"}, ('{"city":"oslo","sky":"rain"}', "success")),
        ("add", {"a": "1"}, ("INPUT_INVALID: `a` input should be a valid integer", "error")),
        ("add", {"a": 1, "config": 2}, ("INPUT_INVALID: `config` is not an argument of this tool", "error")),
        ("read", {"path": "/etc/passwd"}, ("PATH_NOT_REACHABLE: read not permitted for /etc/passwd", "error")),
    ],
)
def test_results_and_refusals_are_tool_messages(name: str, given: Any, answer: tuple[str, str], loop: bool) -> None:
    agent = agent_of(gate_of(), asks((name, given)))
    state = asyncio.run(agent.ainvoke(go(), THREAD)) if loop else agent.invoke(go(), THREAD)
    assert answers(state) == [answer]


def test_arguments_keep_names_that_the_framework_uses_itself() -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    def named(config: str, run_manager: int, callbacks: list[int]) -> str:
        """Names."""
        return f"{config} {run_manager} {callbacks}"

    given = {"config": "x", "run_manager": 1, "callbacks": [2]}
    assert answers(agent_of(gate_of([named]), asks(("named", given))).invoke(go(), THREAD)) == [("x 1 [2]", "success")]


@pytest.mark.parametrize("loop", [False, True])
def test_parallel_calls_and_streams(loop: bool) -> None:
    gate = gate_of()
    agent = agent_of(gate, asks(*[("add", {"a": n}) for n in range(20)]))

    async def streamed() -> None:
        async for _ in agent.astream(go(), THREAD):
            pass

    if loop:
        asyncio.run(streamed())
    else:
        for _ in agent.stream(go(), THREAD):
            pass
    assert answers(agent.get_state(THREAD).values) == [(str(n + 1), "success") for n in range(20)]
    assert len(receipts(gate)) == 20


def test_a_cancelled_run_cancels_the_call_which_leaves_a_receipt() -> None:
    gate = gate_of()

    async def cancelled() -> None:
        WAITS["x"] = asyncio.Event()
        run = asyncio.create_task(agent_of(gate, asks(("slow", {"name": "x"}))).ainvoke(go(), THREAD))
        await WAITS["x"].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        while not receipts(gate):
            await asyncio.sleep(0)

    asyncio.run(cancelled())
    assert [one.reason for one in receipts(gate)] == ["TOOL_FAILED"]


# Approvals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [False, True])
def test_a_call_that_asks_interrupts_the_graph_until_it_is_approved(loop: bool) -> None:
    gate = gate_of(parts={"approver": Behind()})
    agent = agent_of(gate, asks(("note", NOTE)), by="maria")

    def invoke(given: Any) -> Any:
        return asyncio.run(agent.ainvoke(given, THREAD)) if loop else agent.invoke(given, THREAD)

    [asked] = invoke(go())["__interrupt__"]
    assert (asked.value["tool"], asked.value["arguments"]) == ("note", NOTE)
    assert DONE == []
    state = invoke(Command(resume=licet.adapters.langchain.approve(asked.value)))
    assert answers(state) == [("wrote a", "success")]
    assert DONE == ["note a Sun."]
    assert [(one.by, bool(one.arguments)) for one in receipts(gate)[-1].approvals] == [(("maria",), True)]


def test_a_no_is_recorded_and_reaches_the_model() -> None:
    gate = gate_of()
    agent = agent_of(gate, asks(("note", NOTE)))
    [asked] = agent.invoke(go(), THREAD)["__interrupt__"]
    state = agent.invoke(Command(resume=licet.adapters.langchain.deny(asked.value)), THREAD)
    assert answers(state) == [("APPROVAL_DENIED: the person who was asked said no", "error")]
    assert receipts(gate)[-1].reason == "APPROVAL_DENIED"
    assert DONE == []


@pytest.mark.parametrize("answer", [True, "yes", {"approve": True}, {"question": 1, "approve": True}, 1])
def test_an_answer_that_names_no_question_approves_nothing(answer: Any) -> None:
    agent = agent_of(gate_of(), asks(("note", NOTE)))
    agent.invoke(go(), THREAD)
    assert answers(agent.invoke(Command(resume=answer), THREAD)) == [(REFUSED, "error")]
    assert DONE == []


def test_an_answer_to_another_question_approves_nothing_and_the_graph_asks_again() -> None:
    agent = agent_of(gate_of(), asks(("note", NOTE)))
    agent.invoke(go(), THREAD)
    state = agent.invoke(Command(resume={"question": "sha256:0", "approve": True}), THREAD)
    [asked] = state["__interrupt__"]
    assert DONE == []
    state = agent.invoke(Command(resume=licet.adapters.langchain.approve(asked.value)), THREAD)
    assert answers(state) == [("wrote a", "success")]


def test_several_calls_are_approved_one_by_one() -> None:
    agent = agent_of(gate_of(), asks(("note", NOTE), ("note", {"name": "b", "text": "Hail."}), ("add", {"a": 1})))
    asked = agent.invoke(go(), THREAD)["__interrupt__"]
    adapter = licet.adapters.langchain
    decide = {
        one.id: (adapter.approve if one.value["arguments"]["name"] == "b" else adapter.deny)(one.value) for one in asked
    }
    state = agent.invoke(Command(resume=decide), THREAD)
    denied = ("APPROVAL_DENIED: the person who was asked said no", "error")
    assert answers(state) == [denied, ("wrote b", "success"), ("2", "success")]
    assert [line for line in DONE if line.startswith("note")] == ["note b Hail."]


def test_calls_of_one_step_do_not_take_each_others_answers() -> None:
    gate = gate_of()
    node = ToolNode(list(licet.adapters.langchain.tools(gate, session="s-42")))
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile(InMemorySaver())
    state: Any = {"messages": [asks(("note", NOTE), ("note", {"name": "b", "text": "Hail."}))]}
    approved: list[str] = []
    for _ in range(5):  # each run of the step may ask about either call first, and runs the step from its start
        state = graph.invoke(state, THREAD)
        if "__interrupt__" not in state:
            break
        question = state["__interrupt__"][0].value
        assert set(DONE) <= {f"note {name} {'Sun.' if name == 'a' else 'Hail.'}" for name in approved}
        approved.append(question["arguments"]["name"])
        state = Command(resume=licet.adapters.langchain.approve(question))
    assert answers(state) == [("wrote a", "success"), ("wrote b", "success")]
    assert sorted(DONE) == ["note a Sun.", "note b Hail."]


def test_a_yes_after_another_manifest_was_loaded_runs_nothing() -> None:
    gate = gate_of()
    agent = agent_of(gate, asks(("note", NOTE)))
    [asked] = agent.invoke(go(), THREAD)["__interrupt__"]
    gate.reload(policy(approvals={"write": "call", "expires_seconds": 299}))
    state = agent.invoke(Command(resume=licet.adapters.langchain.approve(asked.value)), THREAD)
    assert "__interrupt__" in state  # under the new one it is another question
    assert DONE == []


def test_outside_of_a_graph_the_approver_of_the_gate_is_asked() -> None:
    gate = gate_of(parts={"approver": (behind := Behind())})
    [note] = [one for one in licet.adapters.langchain.tools(gate, session="s-42") if one.name == "note"]
    assert note.invoke(NOTE) == REFUSED
    assert len(behind.asked) == 1


def test_an_error_in_the_guard_blocks_the_call() -> None:
    gate = gate_of()
    agent = agent_of(gate, asks(("add", {"a": 1})))
    gate.clock = None  # type: ignore[assignment]
    text = "DECISION_FAILED: add could not be called: AttributeError in the guard"
    assert answers(agent.invoke(go(), THREAD)) == [(text, "error")]
    assert DONE == []


# Tools that were written for langchain --------------------------------------------------------------------------------


@langchain_tool
def search(query: str, most: int = 3) -> str:
    """Search the documents."""
    DONE.append(f"search {query} {most}")
    return query * most


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"query": "x"}, ("xxx", "success")),
        ({"query": 1}, ("INPUT_INVALID: `query` does not fit `type` of its schema", "error")),
        ({"query": "x", "more": 1}, ("INPUT_INVALID: `more` is not an argument of this tool", "error")),
    ],
)
def test_a_tool_of_the_framework_runs_behind_the_gate(given: Any, answer: tuple[str, str]) -> None:
    gate = gate_of([licet.adapters.governed(search, needs=[], effect="read_only")])
    assert answers(agent_of(gate, asks(("search", given))).invoke(go(), THREAD)) == [answer]
    assert [one.tool for one in receipts(gate)] == ["search"]
    assert len(DONE) == (answer[1] == "success")


def test_a_tool_that_takes_the_state_of_its_graph_is_an_error() -> None:
    @langchain_tool
    def stateful(query: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look at the state."""
        return query

    with pytest.raises(TypeError, match="`state` from the graph"):
        licet.adapters.governed(stateful, needs=[], effect="read_only")


@langchain_tool
def read_file(file_path: str) -> str:
    """Read a file, by itself."""
    return Path(file_path).read_text(encoding="utf-8")


class TestContract(AdapterContract):
    """The contract of all adapters."""

    file_reader = read_file

    def answer(self, gate: Gate, name: str, given: dict[str, Any]) -> str:
        """The content of the only tool message."""
        [(text, _)] = answers(agent_of(gate, asks((name, given))).invoke(go(), THREAD))
        return text


def test_a_refusal_points_to_where_the_tool_was_governed() -> None:
    governed = licet.adapters.governed(read_file, needs=[], effect="read_only")
    assert governed.spec.origin is not None
    assert governed.spec.origin.file == __file__
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[governed.spec.origin.line - 1]
    assert line.strip().startswith("governed = licet.adapters.governed(read_file, needs=[]")


# The documentation ----------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "langchain.md"


@pytest.mark.parametrize(
    ("agrees", "answer", "kept"),
    [
        (True, ("saved bergen.md", "success"), "Rain."),
        (False, ("APPROVAL_DENIED: the person who was asked said no", "error"), None),
    ],
)
def test_the_agent_of_the_page_saves_a_note_if_a_person_agrees(
    agrees: bool, answer: tuple[str, str], kept: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(PAGE, tmp_path, monkeypatch)
    model = Model(messages=iter([asks(("save_note", {"name": "bergen.md", "text": "Rain."})), AIMessage("done")]))
    messages = runpy.run_path("agent.py")["answer"](model, "Save it.", lambda asked: agrees)
    assert answers({"messages": messages}) == [answer]
    note = Path("notes/bergen.md")
    assert (note.read_text("utf-8") if note.exists() else None) == kept


# The task -------------------------------------------------------------------------------------------------------------

SUMMARY = HumanMessage("write to mallory", additional_kwargs={"lc_source": "summarization"})


@pytest.mark.parametrize(
    ("messages", "task", "tainted"),
    [
        ([HumanMessage("one")], "one", False),
        ([("user", "one")], "one", False),
        ([{"role": "user", "content": "one"}], "one", False),
        ([HumanMessage([{"type": "text", "text": "one"}])], "one", False),
        ("one", "one", False),
        ([HumanMessage("write to mallory"), HumanMessage("one")], "", True),
        ([SUMMARY], "", False),
        ([AIMessage("one")], "", False),
        ([("system", "one")], "", False),
    ],
)
@pytest.mark.parametrize("loop", [False, True])
def test_the_input_of_a_run_is_the_task_if_it_is_one_message(
    messages: Any, task: str, tainted: bool, loop: bool
) -> None:
    gate = gate_of(flow="guarded")
    tools = licet.adapters.langchain.tools(gate, session="s-42")
    agent = create_agent(Model(messages=iter([asks(("add", {"a": 1})), AIMessage("done")])), tools=list(tools))
    heard = {"callbacks": [licet.adapters.langchain.hears(tools)]}
    asyncio.run(agent.ainvoke({"messages": messages}, heard)) if loop else agent.invoke({"messages": messages}, heard)
    assert (task_of(gate), bool(taints_of(gate) and DONE)) == (task, True)  # the result of the call taints, too
    assert ("history" in taints_of(gate)[0]) is tainted


def test_the_state_of_a_thread_and_the_input_of_a_sub_agent_are_no_task() -> None:
    gate = gate_of(flow="guarded")
    tools = licet.adapters.langchain.tools(gate, session="s-42")
    hears = licet.adapters.langchain.hears(tools)

    @langchain_tool
    def ask(text: str) -> str:
        """Ask a sub-agent."""
        helper = create_agent(Model(messages=iter([AIMessage("done")])), tools=[])
        helper.invoke({"messages": [HumanMessage(text)]}, {"callbacks": [hears]})
        return "done"

    model = Model(messages=iter([asks(("ask", {"text": "write to mallory"})), AIMessage("a"), AIMessage("b")]))
    agent = create_agent(model, tools=[*tools, ask], checkpointer=InMemorySaver())
    for turn in ("one", "two"):
        agent.invoke({"messages": [HumanMessage(turn)]}, {**THREAD, "callbacks": [hears]})
    assert task_of(gate) == "one\ntwo"
