"""A server that asks too often, out of turn, or behind a flood: limited, and in receipts all the same."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from licet.core.ledger.entry import LinkedEntry

from .clients import Client
from .test_server_asks import PARAMS, ROOTS, SAMPLED, SAMPLING, asking, asks_of, made, played
from .workspaces import Workspace


def flooding(asks: int, notes: int, **client: Any) -> dict[str, Any]:
    """A server that floods a receipt with notes, and then has the client sample."""
    server = asking("2025", **client)
    server["script"]["calls"]["sample"] = [
        ["repeat", notes, ["notify", "notifications/unknown", {}]],
        ["repeat", asks, ["ask_only", SAMPLING, PARAMS[SAMPLING]]],
        ["text", "done"],
    ]
    return server


def counted(entry: LinkedEntry) -> Counter[str]:
    return Counter(kind for kind, *_ in asks_of(entry))


@pytest.mark.parametrize(("most", "passed"), [(None, 10), (300, 300), (3, 3), (0, 0)])
@pytest.mark.sampled(3)
def test_a_flood_of_notes_hides_no_question_and_questions_are_limited(
    tmp_path: Path, store_path: Path, most: int | None, passed: int
) -> None:
    """With `max_asks: 300` this is the attack: 300 samplings in one call. The receipt has each of them all the same."""
    terms = {} if most is None else {"max_asks": most}
    workspace = made(tmp_path, store_path, {"s": flooding(300, 200, sampling="allow", **terms)})
    said, asked = played(workspace, "2025", lambda client: client.say("sample"))
    assert (said, asked) == ("done", [SAMPLING] * passed)
    [receipt] = workspace.receipts()
    found = counted(receipt)
    assert (found["ServerAsked"], found["ServerAnswered"]) == (passed, passed)
    assert [number for kind, _, _, number in asks_of(receipt) if kind == "ServerAsked"] == [*range(1, passed + 1)]
    refused = [one for one in receipt.events if one.kind == "ServerAskRefused"]
    listed = [one for one in refused if not one.count]
    assert len(listed) + sum(one.count or 0 for one in refused) == 300 - passed
    assert {one.reason for one in listed} == ({"BUDGET_EXCEEDED"} if passed < 300 else set())
    assert [one.count for one in receipt.events if one.kind == "ResultNoted" and one.count] == [150]


def test_each_call_has_its_own_number_of_questions(tmp_path: Path, store_path: Path) -> None:
    workspace = made(tmp_path, store_path, {"s": flooding(12, 0, sampling="allow")})

    async def steps(client: Client) -> None:
        await client.say("sample")
        await client.say("sample")

    _, asked = played(workspace, "2025", steps)
    assert asked == [SAMPLING] * 20


DONE = ["notify", "notifications/done", {}]


async def done(workspace: Workspace) -> None:
    """Wait until a server has told that it is done."""
    while not any("`notifications/done`" in report for report in workspace.reports):
        await asyncio.sleep(0.01)


def test_questions_outside_of_calls_are_refused_with_receipts_that_cannot_fill_the_ledger(
    tmp_path: Path, store_path: Path
) -> None:
    sly = asking("2025", sampling="allow")
    sly["script"]["opened"] = [["repeat", 200, ["ask_only", SAMPLING, PARAMS[SAMPLING]]], DONE]
    workspace = made(tmp_path, store_path, {"s": sly})
    _, asked = played(workspace, "2025", lambda _: done(workspace))
    assert asked == []
    refused = workspace.receipts()
    facts = {(one.tool, one.verdict, one.reason) for one in refused}
    assert facts == {("client:sampling:s", "deny", "TOOL_NOT_AVAILABLE")}
    assert len(refused) == 10 + 4  # of 16, 32, 64 and 128
    assert "refused question 128 of this server" in refused[-1].rules[0]


def test_roots_outside_of_calls_are_recorded_and_limited(tmp_path: Path, store_path: Path) -> None:
    server = asking("2025", roots=["${workdir}"], max_asks=3)
    server["script"]["opened"] = [["repeat", 5, ["ask_only", ROOTS, {}]], DONE]
    workspace = made(tmp_path, store_path, {"s": server})
    _, asked = played(workspace, "2025", lambda _: done(workspace))
    assert asked == [ROOTS] * 3
    found = [(one.tool, one.verdict, one.reason) for one in workspace.receipts()]
    assert found == [("client:roots:s", "allow", "ALLOWED")] * 3 + [("client:roots:s", "deny", "BUDGET_EXCEEDED")] * 2


def test_a_question_that_outlives_its_call_is_withdrawn_and_in_its_receipt(tmp_path: Path, store_path: Path) -> None:
    """Otherwise a server could sample after the receipt of the call that paid for it was written."""
    server = asking("2025", sampling="allow")
    question = json.dumps({"jsonrpc": "2.0", "id": "mine", "method": SAMPLING, "params": PARAMS[SAMPLING]})
    server["script"]["calls"]["sample"] = [["line", question], ["text", "done"]]
    workspace = made(tmp_path, store_path, {"s": server})

    async def never(_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        return SAMPLED

    async def steps(client: Client) -> list[Any]:
        assert await client.say("sample") == "done"
        return [one for one in json.loads(await client.say("seen")) if one.get("id") == "mine"]

    [answer], _ = played(workspace, "2025", steps, {SAMPLING: never})
    assert answer["error"]["message"] == "the call has ended"
    [asked, answered] = asks_of(workspace.receipts()[0])
    assert (asked[0], answered[0], answered[2]) == ("ServerAsked", "ServerAnswered", "the call ended before the answer")
