"""Approvals at the gateway: what the client is shown, and what its answer is worth."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from licet.assemble.gate import stored_approvals
from licet.backends.secrets import SigningKey, generated_key
from licet.gateway import client
from sandbox.levels import needs_walls

from .clients import Client, text_of
from .workspaces import Workspace

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
FORM = "elicitation/create"
YES = {"action": "accept", "content": {"approve": True}}
NO = {"action": "accept", "content": {"approve": False}}
WRITES = {"name": "writes", "inputSchema": {"type": "object"}}
SERVER: dict[str, Any] = {
    "script": {"tools": ["writes", "also"]},
    "grants": ["fs:write:${workdir}/data"],
    "tools": {name: {"effect": "write_limited", "approval": "call"} for name in ("writes", "also")},
}


def workspace(place: Path, state: Path, approvals: dict[str, Any] | None = None, **shared: Any) -> Workspace:
    needs_walls()
    (place / "data").mkdir()
    tools: dict[str, Any] = {"bundles": list(shared["bundles"])} if shared else {"tools": ["s.writes", "s.also"]}
    given = {
        **tools,
        "fs_reach": {"write": ["${workdir}/data"]},
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "call", **(approvals or {})},
    }
    return Workspace(place, state, {"s": SERVER}, given, **shared)


def played(
    made: Workspace, era: str, steps: Callable[[Client], Awaitable[Any]], answer: Callable[[Any], Any] | None = None
) -> Any:
    async def scene() -> Any:
        async with made.gateway(era, answers={FORM: answer} if answer else {}) as client:
            return await steps(client)

    return asyncio.run(scene())


async def approve(made: Workspace, key: SigningKey | None = None) -> str:
    """Approve the one request that waits, as the operator does; returns its id."""
    store = stored_approvals(made.state)
    [waiting] = [one for one in await store.list() if one.state(store.now()) == "waiting"]
    await store.approve(waiting, key)
    return waiting.request.id


@both_eras
def test_a_client_that_cannot_be_asked_is_told_which_request_waits(tmp_path: Path, store_path: Path, era: str) -> None:
    made = workspace(tmp_path, store_path)

    async def steps(client: Client) -> tuple[str, str, str]:
        first = await client.call("writes", {"a": 1})
        assert first["isError"] is True
        request = await approve(made)
        return text_of(first), request, await client.say("writes", {"a": 1})

    said, request, then = played(made, era, steps)
    assert said.startswith("APPROVAL_REQUIRED: ")
    assert re.search(r"a person can run `licet approvals approve a-[0-9a-f]+.*`; then call again", said)
    assert request in said
    assert json.loads(then) == {"a": 1}
    assert [one.reason for one in made.receipts()] == ["APPROVAL_REQUIRED", "ALLOWED"]
    assert made.receipts()[-1].approvals[0].by == ("command",)


@both_eras
@pytest.mark.parametrize("answer", [YES, NO, {"action": "accept", "content": {}}, {"action": "decline"}], ids=str)
@pytest.mark.sampled(4)
def test_by_default_the_answer_of_a_client_approves_nothing(
    tmp_path: Path, store_path: Path, era: str, answer: dict[str, Any]
) -> None:
    made = workspace(tmp_path, store_path)
    shown: list[Any] = []

    def answering(params: Any) -> dict[str, Any]:
        shown.append(params)
        return answer

    said = played(made, era, lambda client: client.say("writes", {"a": 1}), answering)
    assert said.startswith("APPROVAL_REQUIRED: ")
    [form] = shown
    assert 's.writes wants to run with {"a":1}' in form["message"]
    assert re.search(r"licet approvals approve a-[0-9a-f]{12}", form["message"])
    assert form["requestedSchema"]["properties"].keys() == {"continue"}
    assert [one.reason for one in made.receipts()] == ["APPROVAL_REQUIRED"]


@both_eras
def test_an_approval_that_came_meanwhile_is_found_when_the_client_looks_again(
    tmp_path: Path, store_path: Path, era: str
) -> None:
    made = workspace(tmp_path, store_path)

    async def answering(params: Any) -> dict[str, Any]:
        await approve(made)
        return {"action": "accept", "content": {}}

    assert json.loads(played(made, era, lambda client: client.say("writes", {"a": 1}), answering)) == {"a": 1}
    [receipt] = made.receipts()
    assert receipt.approvals[0].by == ("command",)


THROUGH: list[tuple[Any, str, tuple[str, ...]]] = [
    (YES, "ALLOWED", ("client",)),
    (NO, "APPROVAL_DENIED", ()),
    ({"action": "decline"}, "APPROVAL_DENIED", ()),
    ({"action": "cancel"}, "APPROVAL_REQUIRED", ()),
    ({"action": "accept", "content": {"approve": "true"}}, "APPROVAL_DENIED", ()),
    ({"action": "accept", "content": {"continue": True}}, "APPROVAL_DENIED", ()),
    ({"action": "yes", "content": {"approve": True}}, "APPROVAL_REQUIRED", ()),
    ({}, "APPROVAL_REQUIRED", ()),
]


@both_eras
@pytest.mark.parametrize(("answer", "reason", "by"), THROUGH, ids=[f"{case[0]}" for case in THROUGH])
@pytest.mark.sampled(6)
def test_through_the_client_only_a_plain_yes_approves(
    tmp_path: Path, store_path: Path, era: str, answer: Any, reason: str, by: tuple[str, ...]
) -> None:
    made = workspace(tmp_path, store_path, {"through_client": True})
    result = played(made, era, lambda client: client.call("writes", {"a": 1}), lambda _: answer)
    assert ("isError" in result) == (reason != "ALLOWED")
    [receipt] = made.receipts()
    assert receipt.reason == reason
    assert tuple(name for one in receipt.approvals for name in one.by) == by


@both_eras
@pytest.mark.parametrize("terms", ["keys", "quorum"])
@pytest.mark.sampled(2)
def test_a_yes_through_the_client_never_counts_where_signatures_do(
    tmp_path: Path, store_path: Path, era: str, terms: str
) -> None:
    keys = [generated_key(), generated_key()]
    wanted: dict[str, Any] = {"keys": [key.public for key in keys], **({"quorum": 2} if terms == "quorum" else {})}
    made = workspace(tmp_path, store_path, {"through_client": True, **wanted})
    asked: list[Any] = []

    def answering(params: Any) -> dict[str, Any]:
        asked.append(params)
        return YES

    said = played(made, era, lambda client: client.say("writes", {"a": 1}), answering)
    assert said.startswith("APPROVAL_REQUIRED: ")
    assert asked[0]["requestedSchema"]["properties"].keys() == {"continue"}

    async def signed(client: Client) -> str:
        for key in keys[: 2 if terms == "quorum" else 1]:
            await approve(made, key)
        return await client.say("writes", {"a": 1})

    assert json.loads(played(made, era, signed, answering)) == {"a": 1}
    assert "client" not in made.receipts()[-1].approvals[0].by


def test_a_bundle_can_take_approvals_through_the_client_away(tmp_path: Path, store_path: Path) -> None:
    bundles = {
        "careful": {"tools": ["s.writes"], "approvals": {"through_client": False}},
        "plain": {"tools": ["s.also"]},
    }
    made = workspace(tmp_path, store_path, {"through_client": True}, bundles=bundles)

    async def steps(client: Client) -> list[str]:
        return [await client.say(name, {}) for name in ("writes", "also")]

    careful, plain = played(made, "2025", steps, lambda _: YES)
    assert careful.startswith("APPROVAL_REQUIRED: ")
    assert plain == "{}"


@both_eras
def test_an_approval_is_for_one_call_with_these_arguments(tmp_path: Path, store_path: Path, era: str) -> None:
    made = workspace(tmp_path, store_path)

    async def steps(client: Client) -> list[str]:
        said = [await client.say("writes", {"a": 1})]
        await approve(made)
        calls: list[tuple[str, Any]] = [
            ("writes", {"a": 2}),
            ("also", {"a": 1}),
            ("writes", {"a": 1}),
            ("writes", {"a": 1}),
        ]
        return said + [await client.say(name, arguments) for name, arguments in calls]

    said = played(made, era, steps)
    assert [one.partition(":")[0] for one in said[:3]] == ["APPROVAL_REQUIRED"] * 3
    assert json.loads(said[3]) == {"a": 1}
    assert said[4].startswith("APPROVAL_REQUIRED: ")


def test_hidden_characters_of_arguments_are_shown_to_the_person(tmp_path: Path, store_path: Path) -> None:
    made = workspace(tmp_path, store_path)
    shown: list[Any] = []

    def says_yes(params: Any) -> Any:
        shown.append(params)
        return YES

    played(
        made,
        "2025",
        lambda client: client.say("writes", {"a": "x\u202ey"}),
        says_yes,
    )
    assert "\u202e" not in shown[0]["message"]
    assert "202e" in shown[0]["message"].lower()


def test_a_client_that_never_answers_ends_nothing_but_its_call(tmp_path: Path, store_path: Path) -> None:
    made = workspace(tmp_path, store_path, {"expires_seconds": 1})

    async def answering(params: Any) -> dict[str, Any]:
        await asyncio.sleep(60)
        return YES

    said = played(made, "2025", lambda client: client.say("writes", {"a": 1}), answering)
    assert said.startswith("APPROVAL_EXPIRED: ")


def test_a_question_that_is_not_answered_in_time_leaves_its_request_for_the_command(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(client, "LEAST_ASK_SECONDS", 0.05)
    made = workspace(tmp_path, store_path, {})

    async def answering(params: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        return YES

    async def steps(client: Client) -> tuple[str, str]:
        first = await client.say("writes", {"a": 1})
        await approve(made)
        return first, await client.say("writes", {"a": 1})

    first, second = played(made, "2025", steps, answering)
    assert first.startswith("APPROVAL_REQUIRED: ")
    assert "licet approvals approve" in first
    assert not second.startswith("APPROVAL_")


# Arguments, and how the form ends: a yes approves only what the person was shown.
LONG = [({"text": "a" * 15_000, "path": "/z"}, True), ({"text": "a" * 16_000, "path": "/z"}, False)]


@both_eras
@pytest.mark.parametrize(("arguments", "is_whole"), LONG, ids=["whole", "cut"])
@pytest.mark.sampled(2)
def test_a_yes_does_not_approve_arguments_that_were_not_shown_whole(
    tmp_path: Path, store_path: Path, era: str, arguments: dict[str, Any], is_whole: bool
) -> None:
    made = workspace(tmp_path, store_path, {"through_client": True})
    shown: list[Any] = []

    def answering(params: Any) -> dict[str, Any]:
        shown.append(params)
        return YES

    said = played(made, era, lambda client: client.call("writes", arguments), answering)
    [form] = shown
    assert (json.dumps(arguments["path"]) in form["message"]) == is_whole
    assert ("so an answer here approves nothing" in form["message"]) != is_whole
    assert form["requestedSchema"]["properties"].keys() == ({"approve"} if is_whole else {"continue"})
    assert bool(said.get("isError")) != is_whole
