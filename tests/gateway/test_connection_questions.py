"""Questions to the client: on the wire in 2025, by input-required results in 2026, and never without its consent."""

import asyncio
import json
from typing import Any

import pytest

from licet.gateway.client import CannotAsk, seconds_for_an_answer
from licet.gateway.limits import MOST_QUESTIONS, MOST_WAITING_CALLS
from licet.mcp.jsonrpc import Failure, Notification, Request, Response
from licet.mcp.limits import MOST_ROUNDS

from .scenes import played, scene_of
from .scripted_backend import CAN_ALL, FORM, QUESTIONS, SAMPLING, Scene, ScriptedBackend, resource

YES = {"action": "accept", "content": {"ok": True}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "yo"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///srv", "name": "srv"}]}
Said = list[dict[str, Any]]


def value(answers: Said) -> Any:
    """What the tool returned."""
    return json.loads(answers[-1]["result"]["content"][0]["text"])


def asked(answers: Said) -> tuple[Any, dict[str, Any]]:
    """The questions of an input-required result, and its state."""
    [answer] = answers
    assert answer["result"]["resultType"] == "input_required"
    return answer["result"]["requestState"], answer["result"]["inputRequests"]


async def repeat(
    scene: Scene, state: Any, responses: Any, questions: list[str], number: Any = 2, name: str = "ask"
) -> Said:
    params = {"name": name, "arguments": {"questions": questions}, "inputResponses": responses, "requestState": state}
    return await scene.request("tools/call", params, number)


# 2025 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params", "answer", "received"),
    [
        ("form", {"mode": "form", **FORM}, YES, YES),
        ("form", {"mode": "form", **FORM}, {**YES, "_meta": {"x": 1}, "odd": 1}, YES),
        ("form", {"mode": "form", **FORM}, {"action": "decline", "content": {"ok": True}}, {"action": "decline"}),
        ("sampling", SAMPLING, SAMPLED, SAMPLED),
        ("roots", None, ROOTS, ROOTS),
        ("roots", None, {"roots": [{"uri": "file:///a", "_meta": {}}]}, {"roots": [{"uri": "file:///a"}]}),
    ],
)
@played("2025", capabilities=CAN_ALL)
async def test_a_client_of_2025_is_asked_on_the_wire(
    scene: Scene, name: str, params: Any, answer: Any, received: Any
) -> None:
    [question] = await scene.call("ask", {"questions": [name]})
    assert (question["method"], question.get("params")) == (QUESTIONS[name].method, params)
    answers = await scene.tell(Response(question["id"], answer))
    assert (len(answers), value(answers)) == (1, [received])


@pytest.mark.parametrize("name", ["sampling"])
@played(capabilities=CAN_ALL)
async def test_context_of_other_servers_and_meta_stay_behind_and_are_reported(scene: Scene, name: str) -> None:
    answers = await scene.call("ask", {"questions": [name]})
    assert "includeContext" in QUESTIONS[name].params
    assert "includeContext" not in json.dumps(answers)
    assert {event.name for event in scene.backend.events} == {
        "sampling/createMessage includeContext", "sampling/createMessage _meta",
    }  # fmt: skip


ONLY_FORMS: dict[str, Any] = {"elicitation": {}}


@pytest.mark.parametrize(
    ("version", "capabilities", "name", "can"),
    [
        ("2025-11-25", {}, "form", False),
        ("2025-11-25", {}, "sampling", False),
        ("2025-11-25", {}, "roots", False),
        ("2025-11-25", {"elicitation": None}, "form", False),
        ("2025-11-25", ONLY_FORMS, "form", True),
        ("2025-11-25", ONLY_FORMS, "url", False),
        ("2025-11-25", {"elicitation": {"url": {}}}, "url", True),
        ("2025-11-25", {"elicitation": {"url": {}}}, "form", False),
        ("2025-11-25", {"sampling": {}}, "sampling", True),
        ("2025-11-25", {"sampling": {}}, "sampling with tools", False),
        ("2025-11-25", {"sampling": {}}, "sampling with a tool choice", False),
        ("2025-11-25", CAN_ALL, "sampling with tools", True),
        ("2025-11-25", CAN_ALL, "odd mode", False),
        ("2025-11-25", {**CAN_ALL, "start": {}}, "ping", False),
        ("2025-11-25", {**CAN_ALL, "vendor": {}}, "vendor", False),
        ("2025-06-18", CAN_ALL, "form", True),
        ("2025-03-26", CAN_ALL, "form", False),
        ("2024-11-05", CAN_ALL, "sampling", True),
        ("2026-07-28", {}, "form", False),
        ("2026-07-28", ONLY_FORMS, "form", True),
        ("2026-07-28", ONLY_FORMS, "url", False),
        ("2026-07-28", CAN_ALL, "url", True),
        ("2026-07-28", CAN_ALL, "ping", False),
    ],
)
def test_a_client_is_asked_only_what_it_announced(
    version: str, capabilities: dict[str, Any], name: str, can: bool
) -> None:
    async def steps(scene: Scene) -> None:
        answers = await scene.call("ask", {"questions": [name]})
        if not can:
            assert value(answers)[0].startswith(("-32601: ", "-32602: "))
        elif version == "2026-07-28":
            asked(answers)
        else:
            assert [answer["method"] for answer in answers] == [QUESTIONS[name].method]

    scene_of(steps, version[:4] if version == "2026-07-28" else "2025", capabilities=capabilities, version=version)


def test_questions_of_older_versions_have_no_mode_and_urls_of_2025_have_an_id() -> None:
    async def old(scene: Scene) -> None:
        [question] = await scene.call("ask", {"questions": ["form"]})
        assert question["params"] == FORM

    async def new(scene: Scene) -> None:
        [question] = await scene.call("ask", {"questions": ["url"]})
        assert question["params"].keys() == {"message", "mode", "url", "elicitationId"}

    async def newest(scene: Scene) -> None:
        _, requests = asked(await scene.call("ask", {"questions": ["url"]}))
        assert requests["1"]["params"].keys() == {"message", "mode", "url"}

    scene_of(old, "2025", capabilities=CAN_ALL, version="2025-06-18")
    scene_of(new, "2025", capabilities=CAN_ALL)
    scene_of(newest, "2026", capabilities=CAN_ALL)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("form", {}),
        ("form", {"action": "yes"}),
        ("form", {"action": ["accept"]}),
        ("sampling", {"role": "system", "content": {}, "model": "m"}),
        ("sampling", {"role": "user", "content": "text", "model": "m"}),
        ("roots", {}),
        ("roots", {"roots": {"uri": "file:///"}}),
        ("roots", {"roots": ["file:///"]}),
    ],
)
@played(capabilities=CAN_ALL)
async def test_a_malformed_answer_is_no_answer(scene: Scene, era: str, name: str, answer: Any) -> None:
    answers = await scene.call("ask", {"questions": [name]})
    if era == "2025":
        answers = await scene.tell(Response(answers[0]["id"], answer))
    else:
        answers = await repeat(scene, asked(answers)[0], {"1": answer}, [name])
    assert "malformed" in value(answers)[0]


@played("2025", capabilities=CAN_ALL)
async def test_an_accepted_form_without_content_is_accepted_without_content(scene: Scene) -> None:
    [question] = await scene.call("ask", {"questions": ["url"]})
    answers = await scene.tell(Response(question["id"], {"action": "accept", "content": None}))
    assert value(answers) == [{"action": "accept"}]


@played("2025", capabilities=CAN_ALL)
async def test_an_error_of_the_client_reaches_the_one_who_asked(scene: Scene) -> None:
    [question] = await scene.call("ask", {"questions": ["form"]})
    answers = await scene.tell(Failure(question["id"], -1, "x" * 9000))
    assert value(answers) == ["-1: " + "x" * 2000]


@played("2025", capabilities=CAN_ALL)
async def test_an_answer_counts_once_and_its_id_may_be_text(scene: Scene) -> None:
    [question] = await scene.call("ask", {"questions": ["form"]})
    answers = await scene.tell(Response(str(question["id"]), YES), Response(question["id"], {"action": "decline"}))
    assert value(answers) == [YES]
    assert [event.kind for event in scene.backend.events] == ["answer"]


@played("2025", capabilities=CAN_ALL)
async def test_a_cancelled_call_withdraws_its_question(scene: Scene) -> None:
    [question] = await scene.call("ask", {"questions": ["form"]}, 7)
    [withdrawn] = await scene.tell(Notification("notifications/cancelled", {"requestId": 7}))
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == question["id"]
    assert scene.timer.actions == {}
    assert await scene.tell(Response(question["id"], YES)) == []


@played("2025", capabilities=CAN_ALL)
async def test_a_client_that_never_answers_is_not_waited_for(scene: Scene) -> None:
    await scene.call("ask", {"questions": ["form"]})
    before = len(scene.sent)
    scene.timer.run_out()
    await scene.settle()
    withdrawn, answer = scene.sent[before:]
    assert withdrawn["method"] == "notifications/cancelled"
    assert value([answer]) == ["-32603: the client did not answer within 50 seconds"]


@played("2025", capabilities=CAN_ALL)
async def test_an_answer_at_the_last_moment_is_too_late(scene: Scene) -> None:
    [question] = await scene.call("ask", {"questions": ["form"]})
    scene.timer.run_out()
    assert "did not answer" in value(await scene.tell(Response(question["id"], YES)))[0]
    assert [event.kind for event in scene.backend.events] == ["answer"]


def test_questions_wait_until_the_client_is_initialized() -> None:
    async def run() -> None:
        scene = Scene()
        scene.modern = False
        claims = {"clientInfo": {}, "capabilities": CAN_ALL}
        await scene.tell(Request(0, "initialize", {"protocolVersion": "2025-11-25", **claims}))
        assert await scene.call("ask", {"questions": ["form"]}) == []
        [question] = await scene.tell(Notification("notifications/initialized"))
        assert question["method"] == "elicitation/create"
        assert await scene.tell(Notification("notifications/initialized")) == []  # asked once

    asyncio.run(run())


@played("2025", capabilities=CAN_ALL)
async def test_a_flood_of_questions_is_cut_off(scene: Scene) -> None:
    questions = await scene.call("ask_two", {"questions": ["form"] * (MOST_QUESTIONS + 2)})
    assert len(questions) == MOST_QUESTIONS
    answers = await scene.tell(*(Response(question["id"], YES) for question in questions))
    assert sum(answer == YES for answer in value(answers)) == MOST_QUESTIONS


def test_questions_outside_of_calls_are_for_2025_alone() -> None:
    async def steps(scene: Scene) -> None:
        task = asyncio.create_task(scene.client.ask(QUESTIONS["roots"]))
        await scene.settle()
        await scene.tell(Response(scene.sent[-1]["id"], ROOTS))
        assert await task == ROOTS

    async def later(scene: Scene) -> None:
        with pytest.raises(CannotAsk):
            await scene.client.ask(QUESTIONS["roots"])

    scene_of(steps, "2025", capabilities=CAN_ALL)
    scene_of(later, "2026", capabilities=CAN_ALL)


# 2026 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "input_request", "answer"),
    [
        ("form", {"method": "elicitation/create", "params": {"mode": "form", **FORM}}, YES),
        ("sampling", {"method": "sampling/createMessage", "params": SAMPLING}, SAMPLED),
        ("roots", {"method": "roots/list"}, ROOTS),
    ],
)
@played("2026", capabilities=CAN_ALL)
async def test_a_client_of_2026_is_asked_by_an_input_required_result(
    scene: Scene, name: str, input_request: Any, answer: Any
) -> None:
    state, requests = asked(await scene.call("ask", {"questions": [name]}))
    assert requests == {"1": input_request}
    answers = await repeat(scene, state, {"1": answer}, [name])
    assert (answers[-1]["id"], value(answers)) == (2, [answer])
    assert scene.timer.actions == {}
    assert scene.backend.happened == [("call", "s.ask", {"questions": [name]})]  # it ran once


@played("2026", capabilities=CAN_ALL)
async def test_several_questions_at_once_are_one_result_and_in_turn_are_several(scene: Scene) -> None:
    both = ["form", "roots"]
    state, requests = asked(await scene.call("ask_two", {"questions": both}))
    assert [request["method"] for request in requests.values()] == ["elicitation/create", "roots/list"]
    assert value(await repeat(scene, state, {"1": YES, "2": ROOTS}, both, name="ask_two")) == [YES, ROOTS]
    first, requests = asked(await scene.call("ask", {"questions": both}, 3))
    assert [request["method"] for request in requests.values()] == ["elicitation/create"]
    second, requests = asked(await repeat(scene, first, {"1": YES}, both, 4))
    assert (requests, first != second) == ({"2": {"method": "roots/list"}}, True)
    assert value(await repeat(scene, second, {"2": ROOTS}, both, 5)) == [YES, ROOTS]


@pytest.mark.parametrize("responses", [None, {}, {"9": YES}, [], "x"])
@played("2026", capabilities=CAN_ALL)
async def test_what_was_not_answered_is_asked_again(scene: Scene, responses: Any) -> None:
    state, requests = asked(await scene.call("ask", {"questions": ["form"]}))
    again, same = asked(await repeat(scene, state, responses, ["form"]))
    assert (again != state, same) == (True, requests)
    assert value(await repeat(scene, again, {"1": YES}, ["form"], 3)) == [YES]


@played("2026", capabilities=CAN_ALL)
async def test_a_call_asks_so_many_times_and_no_more(scene: Scene) -> None:
    questions = ["form"] * (MOST_ROUNDS + 1)
    answers = await scene.call("ask", {"questions": questions})
    for number in range(MOST_ROUNDS):
        state, _ = asked(answers)
        answers = await repeat(scene, state, {str(number + 1): YES}, questions, number + 2)
    assert value(answers)[:-1] == [YES] * MOST_ROUNDS
    assert "already" in value(answers)[-1]


@played("2026", capabilities=CAN_ALL)
async def test_a_flood_of_questions_in_one_call_is_cut_off(scene: Scene) -> None:
    questions = ["roots"] * (MOST_QUESTIONS + 2)
    state, requests = asked(await scene.call("ask_two", {"questions": questions}))
    assert len(requests) == MOST_QUESTIONS
    answers = await repeat(scene, state, dict.fromkeys(requests, ROOTS), questions, name="ask_two")
    assert sum(answer == ROOTS for answer in value(answers)) == MOST_QUESTIONS


@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("tools/call", {"arguments": {"questions": ["roots"]}}, id="other arguments"),
        pytest.param("tools/call", {"name": "ask_two"}, id="other tool"),
        pytest.param("tools/call", {"arguments": {"questions": ["form"], "x": True}}, id="true for 1"),
        pytest.param("prompts/get", {}, id="other method"),
        pytest.param("tools/call", {"requestState": "A" * 43}, id="made-up state"),
        pytest.param("tools/call", {"requestState": 1}, id="state that is no text"),
        pytest.param("tools/call", {"requestState": None}, id="answers without state"),
        pytest.param("tools/call", {"requestState": ["a"]}, id="state in a list"),
    ],
)
@played("2026", capabilities=CAN_ALL)
async def test_a_state_is_good_for_its_own_request_alone(scene: Scene, method: str, params: dict[str, Any]) -> None:
    first = {"name": "ask", "arguments": {"questions": ["form"], "x": 1}}
    state, _ = asked(await scene.request("tools/call", first))
    good = {**first, "requestState": state, "inputResponses": {"1": YES}}
    [answer] = await scene.request(method, {**good, **params}, 2)
    assert answer["error"]["code"] == -32602
    assert value(await scene.request("tools/call", good, 3)) == [YES]  # the call was not disturbed


@played("2026", capabilities=CAN_ALL)
async def test_a_state_is_good_once(scene: Scene) -> None:
    state, _ = asked(await scene.call("ask", {"questions": ["form"]}))
    await repeat(scene, state, {"1": YES}, ["form"])
    [answer] = await repeat(scene, state, {"1": YES}, ["form"], 3)
    assert answer["error"]["code"] == -32602
    assert len(scene.backend.happened) == 1


def test_a_state_of_another_connection_is_unknown() -> None:
    states = []

    async def first(scene: Scene) -> None:
        states.append(asked(await scene.call("ask", {"questions": ["form"]}))[0])

    async def second(scene: Scene) -> None:
        await scene.call("ask", {"questions": ["form"]})
        [answer] = await repeat(scene, states[0], {"1": YES}, ["form"])
        assert answer["error"]["code"] == -32602

    scene_of(first, "2026", capabilities=CAN_ALL)
    scene_of(second, "2026", capabilities=CAN_ALL)


@played("2026", capabilities=CAN_ALL)
async def test_an_abandoned_call_is_cancelled(scene: Scene) -> None:
    state, _ = asked(await scene.call("ask", {"questions": ["form"]}))
    scene.timer.run_out()
    await scene.settle()
    assert scene.connection._calls == {}
    [answer] = await repeat(scene, state, {"1": YES}, ["form"])
    assert "expired" in answer["error"]["message"]


@played("2026", capabilities=CAN_ALL)
async def test_the_end_of_a_connection_ends_its_waiting_calls(scene: Scene) -> None:
    await scene.call("ask", {"questions": ["form"]})
    assert len(scene.timer.actions) == 1
    await scene.connection.close()
    assert (scene.timer.actions, scene.connection._calls) == ({}, {})


@played("2026", capabilities=CAN_ALL)
async def test_the_oldest_of_too_many_waiting_calls_is_cancelled(scene: Scene) -> None:
    numbers = range(MOST_WAITING_CALLS + 1)
    states = [asked(await scene.call("ask", {"questions": ["form"]}, number))[0] for number in numbers]
    assert len(scene.connection._calls) == len(scene.timer.actions) == MOST_WAITING_CALLS
    [gone] = await repeat(scene, states[0], {"1": YES}, ["form"], 998)
    assert gone["error"]["code"] == -32602
    assert value(await repeat(scene, states[1], {"1": YES}, ["form"], 999)) == [YES]


@played("2026", capabilities=CAN_ALL)
async def test_waiting_calls_do_not_count_as_running(scene: Scene) -> None:
    for number in range(MOST_WAITING_CALLS):
        await scene.call("ask", {"questions": ["form"]}, number)
    hanging = [scene.message("tools/call", {"name": "hang"}, number) for number in range(200)]
    assert await scene.tell(*hanging) == []


@played("2026", capabilities=CAN_ALL)
async def test_the_id_of_an_asking_request_is_free_and_its_cancellation_means_nothing(scene: Scene) -> None:
    state, _ = asked(await scene.call("ask", {"questions": ["form"]}, 7))
    await scene.tell(Notification("notifications/cancelled", {"requestId": 7}))
    assert value(await repeat(scene, state, {"1": YES}, ["form"], 7)) == [YES]


@played("2026", capabilities=CAN_ALL)
async def test_a_repeated_call_can_be_cancelled(scene: Scene) -> None:
    state, _ = asked(await scene.call("ask_then_hang", {"questions": ["form"]}))
    assert await repeat(scene, state, {"1": YES}, ["form"], 8, "ask_then_hang") == []
    assert scene.backend.happened[-1] == "hanging"
    assert await scene.tell(Notification("notifications/cancelled", {"requestId": 8})) == []
    assert scene.backend.happened[-1] == "stopped"


@played("2026", capabilities=CAN_ALL)
async def test_a_call_that_ends_while_it_waits_is_answered_when_it_is_repeated(scene: Scene) -> None:
    state, _ = asked(await scene.call("ask_impatiently", {"questions": ["form"]}))
    scene.backend.hurry.set()
    await scene.settle()
    assert len(scene.sent) == 1
    assert value(await repeat(scene, state, {"1": YES}, ["form"], name="ask_impatiently")) == ["too late"]


@played("2026", capabilities=CAN_ALL)
async def test_progress_of_a_repeated_call_goes_to_its_new_request(scene: Scene) -> None:
    arguments = {"questions": ["form"], "then": {"progress": 1}}
    [first] = await scene.call("ask_then_tell", arguments, 1, progressToken="one")
    state, _ = asked([first])
    params = {"name": "ask_then_tell", "arguments": arguments, "requestState": state, "inputResponses": {"1": YES}}
    told, answer = await scene.request("tools/call", params, 2, progressToken="two")
    assert (told["params"]["progressToken"], answer["id"]) == ("two", 2)


@played("2026", backend=lambda: ScriptedBackend(resources=[resource("s", "a://ask")]), capabilities=CAN_ALL)
async def test_reading_a_resource_can_ask_and_completing_cannot(scene: Scene) -> None:
    state, _ = asked(await scene.request("resources/read", {"uri": "a://ask"}))
    params = {"uri": "a://ask", "requestState": state, "inputResponses": {"1": YES}}
    [answer] = await scene.request("resources/read", params, 2)
    assert json.loads(answer["result"]["contents"][0]["text"]) == YES
    ref = {"type": "ref/resource", "uri": "a://ask"}
    [answer] = await scene.request("completion/complete", {"ref": ref, "argument": {"name": "n", "value": "ask"}}, 3)
    assert "cannot be asked during" in answer["result"]["completion"]["values"][0]


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [(0.0, 50.0), (10.0, 40.0), (47.0, 3.0), (49.0, 2.0), (59.0, 2.0), (61.0, 50.0)],
)
def test_a_question_ends_before_clients_give_up_their_request(waited: float, seconds: float) -> None:
    assert seconds_for_an_answer(waited) == seconds
