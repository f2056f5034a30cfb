"""Tools and answers as OpenAI and Anthropic take them, without a client library."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from gates import DONE, Behind, gate_of, receipts
from licet.adapters import PlainTools, anthropic_tools, openai_tools


def chat(name: str, given: Any, n: int = 0) -> dict[str, Any]:
    return {"id": f"c-{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}


def test_definitions_are_in_the_form_of_each_api() -> None:
    gate = gate_of()
    first = openai_tools(gate, session="s")[0]
    assert (first["type"], first["function"]["name"]) == ("function", "add")
    assert first["function"]["parameters"]["type"] == "object"
    flat = openai_tools(gate, session="s", api="responses")[0]
    assert (flat["type"], flat["name"], flat["strict"]) == ("function", "add", False)
    assert anthropic_tools(gate, session="s")[0]["input_schema"]["required"] == ["a"]
    json.dumps([first, flat])


def test_answers_are_in_the_form_of_each_api() -> None:
    gate = gate_of()
    assert openai_tools(gate, session="s").answer_blocking([chat("add", {"a": 1})]) == [
        {"role": "tool", "tool_call_id": "c-0", "content": "2"}
    ]
    item = {"type": "function_call", "call_id": "f-1", "name": "add", "arguments": '{"a": 1}'}
    assert openai_tools(gate, session="s", api="responses").answer_blocking([item]) == [
        {"type": "function_call_output", "call_id": "f-1", "output": "2"}
    ]
    block = SimpleNamespace(type="tool_use", id="t-1", name="read", input={"path": "key"})
    text = "PATH_NOT_REACHABLE: read not permitted for key"
    assert anthropic_tools(gate, session="s").answer_blocking([block]) == [
        {"type": "tool_result", "tool_use_id": "t-1", "content": text, "is_error": True}
    ]


@pytest.mark.parametrize(
    "call",
    [
        {},
        None,
        {"function": {}},
        {"id": 1, "function": {"name": None}},
        {"function": {"name": "add", "arguments": "{"}},
    ],
)
def test_a_call_that_is_no_call_is_refused_and_not_raised(call: Any) -> None:
    [answer] = openai_tools(gate_of(), session="s").answer_blocking([call])
    assert answer["content"].split(":")[0] in ("UNKNOWN_TOOL", "INPUT_INVALID", "DECISION_FAILED")


def test_many_calls_are_answered_in_order_in_a_running_loop() -> None:
    tools = openai_tools(gate_of(), session="s")
    calls = [chat("add", {"a": n}, n) for n in range(30)]
    answers = asyncio.run(tools.answer(calls))
    assert [one["content"] for one in answers] == [str(n + 1) for n in range(30)]
    assert [one["tool_call_id"] for one in answers] == [f"c-{n}" for n in range(30)]
    assert asyncio.run(tools.answer(None)) == []


def asking(answer: Any) -> tuple[PlainTools, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    def ask(question: dict[str, Any]) -> Any:
        asked.append(question)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return openai_tools(gate_of(), session="s", ask=ask, by="maria"), asked


OTHERS: tuple[Any, ...] = (None, "yes", 1, OSError())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (True, "wrote a"),
        (False, "APPROVAL_DENIED: the person who was asked said no"),
        *(
            (answer, "APPROVAL_REQUIRED: this call of note needs the approval of a person")
            for answer in (None, "yes", 1)
        ),
        (OSError(), "APPROVAL_REQUIRED: this call of note needs the approval of a person"),
    ],
)
def test_a_person_is_asked_with_a_function(answer: Any, text: str) -> None:
    tools, asked = asking(answer)
    [reply] = tools.answer_blocking([chat("note", {"name": "a", "text": "Sun."})])
    assert asked[0]["arguments"] == {"name": "a", "text": "Sun."}
    assert reply["content"] == text
    assert len(DONE) == (answer is True)


def test_a_person_is_asked_with_a_coroutine() -> None:
    async def ask(question: dict[str, Any]) -> bool:
        return bool(question["tool"] == "note")

    gate = gate_of()
    [reply] = openai_tools(gate, session="s", ask=ask).answer_blocking([chat("note", {"name": "a", "text": "x"})])
    assert reply["content"] == "wrote a"
    assert [one.by for one in receipts(gate)[-1].approvals] == [("framework",)]


def test_without_a_function_the_approver_of_the_gate_is_asked() -> None:
    gate = gate_of(parts={"approver": (behind := Behind())})
    openai_tools(gate, session="s").answer_blocking([chat("note", {"name": "a", "text": "x"})])
    assert len(behind.asked) == 1


def test_tools_close_their_session() -> None:
    gate = gate_of()
    with openai_tools(gate, session="s") as tools:
        assert tools.answer_blocking([chat("add", {"a": 1})])[0]["content"] == "2"
    assert tools.answer_blocking([chat("add", {"a": 1})])[0]["content"].startswith("SESSION_ENDED: ")

    async def within() -> None:
        async with openai_tools(gate, session="s") as tools:
            assert (await tools.answer([chat("add", {"a": 1})]))[0]["content"] == "2"
        assert (await tools.answer([chat("add", {"a": 1})]))[0]["content"].startswith("SESSION_ENDED: ")

    asyncio.run(within())
