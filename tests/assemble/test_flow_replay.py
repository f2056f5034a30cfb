"""A replay under the manifest that the calls were made with asks exactly what was asked when they were made."""

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from guard.flow_gates import TOOLS, mail_gate, send
from licet import Backends, Gate, Session
from licet.assemble.flow_replay import Replay, replayed
from licet.assemble.recorded_calls import RecordedCall, recorded_calls
from licet.core.flow.judgement import Found

ADDRESSES = ("bob@corp.example", "mallory@evil.example", "carol@corp.example", "zed@evil.example", "dora@evil.example")
TASKS = ("", "Write to zed@evil.example", "Read HERE/note.txt and tell Carol")
Calls = list[RecordedCall]


def facts(origins: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(value if value not in (UNSET, "") else None for value in (one.origin, one.receipt, one.tool, one.pointer))
        for one in origins
    ]


def assert_the_same(calls: Calls, found: Replay) -> None:
    by_receipt = {call.entry.id: call.entry for call in calls}
    for one in found.calls:
        entry = by_receipt[one.receipt]
        assert entry.flow is not UNSET
        if one.would == "not judged":
            continue
        assert one.tainted_by == entry.flow.tainted_by, (one, entry.flow)
        then = () if entry.flow.unmet is UNSET else entry.flow.unmet
        assert [(unmet.reason, unmet.argument, unmet.pointer, facts(unmet.found)) for unmet in one.unmet] == [
            (unmet.reason, unmet.argument or "", unmet.pointer or "", facts(unmet.origins)) for unmet in then
        ]


def replay_here(at: Gate, state: Path, tasks: Mapping[str, list[str]]) -> tuple[Calls, Replay]:
    calls = list(recorded_calls(state / "ledger.sqlite"))
    return calls, replayed(calls, at.manifest.declare([one.spec for one in TOOLS]), tasks)


async def one_step(session: Session, chosen: random.Random, folder: Path) -> None:
    address = chosen.choice(ADDRESSES)
    match chosen.randrange(8):
        case 0:
            await session.call("list_mail")
        case 1:
            await session.call("search_people", {"name": "Carol"})
        case 2:
            await session.call("echo", {"text": address})
        case 3:
            await session.call("fail", {"text": address})
        case 4:
            name = chosen.choice(("note.txt", ".aws/credentials"))
            await session.call("read_file", {"path": str(folder / name)})
        case 5:
            await session.call("read_file", {"path": "/etc/passwd"})  # refused
        case 6:
            await asyncio.gather(session.call("list_mail"), send(session, address))
        case _:
            await send(session, address, body=chosen.choice(("", f"cc {address}")))


SECRET_MAIL = {"from": {"tool": "search_people", "fields": ["mail"]}, "readers": []}
FLOWS: dict[str, dict[str, Any]] = {
    "guarded": {},
    "rule of two": {"preset": "rule_of_two"},
    "trifecta": {"preset": "trifecta"},
    "trifecta without roles": {"preset": "trifecta", "results": {}},
    "watch": {"preset": "watch"},
    "secrets": {"secrets": [SECRET_MAIL]},
    "a secret file": {"secrets": [{"from": "fs:read:HERE/.aws", "readers": []}]},
    "sources": {"sources": [{"use": "fs:read:HERE/note.txt", "label": "authored"}], "otherwise": "deny"},
}


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_random_sessions_are_judged_as_they_were(tmp_path: Path, store_path: Path, flow: dict[str, Any]) -> None:
    chosen = random.Random(str(flow))
    (tmp_path / "note.txt").write_text("Ask dora@evil.example.")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("zed@evil.example has the key.")
    tasks = {f"s{number}": [chosen.choice(TASKS).replace("HERE", str(tmp_path))] for number in range(12)}

    async def play(at: Gate) -> None:
        for name, (task,) in tasks.items():
            async with at.session(name, task=task) as session:
                for _ in range(8):
                    await one_step(session, chosen, tmp_path)

    with Backends.local(store_path) as backends:
        stated = json.loads(json.dumps(flow).replace("HERE", str(tmp_path)))
        at = mail_gate(tmp_path, backends=backends, flow=stated, record="full")
        asyncio.run(play(at))
        calls, found = replay_here(at, store_path, tasks)
    assert_the_same(calls, found)
    if "secrets" in flow:
        assert "FLOW_SECRET" in {unmet.reason for one in found.calls for unmet in one.unmet}
    assert found.count("watch" if flow.get("preset") == "watch" else flow.get("otherwise", "ask")) > 2
    assert found.count("pass") > 5


def test_calls_made_together_are_judged_by_what_had_been_handed_out(tmp_path: Path, store_path: Path) -> None:
    async def play(at: Gate) -> None:
        async with at.session("s") as session:
            await session.call("echo", {"text": "something untrusted"})
            await asyncio.gather(session.call("search_people"), send(session, "carol@corp.example"))
            await send(session, "carol@corp.example")

    with Backends.local(store_path) as backends:
        at = mail_gate(tmp_path, backends=backends, record="full")
        asyncio.run(play(at))
        calls, found = replay_here(at, store_path, {})
    assert_the_same(calls, found)
    assert [one.would for one in found.calls if one.tool == "send_mail"] == ["ask", "pass"]


def test_what_a_delegate_reads_counts_for_its_parent(tmp_path: Path, store_path: Path) -> None:
    async def play(at: Gate) -> None:
        async with at.session("s", task="Find Carol") as session:
            await session.call("search_people", {"name": "Carol"})
            async with session.delegate(agent="helper", allow=[f"fs:*:{tmp_path}"]) as helper:
                await helper.call("list_mail")
                await send(helper, "carol@corp.example")
            await send(session, "mallory@evil.example")

    with Backends.local(store_path) as backends:
        at = mail_gate(tmp_path, backends=backends, record="full")
        asyncio.run(play(at))
        calls, found = replay_here(at, store_path, {"s": ["Find Carol"]})
    assert_the_same(calls, found)
    assert [one.would for one in found.calls if one.tool == "send_mail"] == ["pass", "ask"]
    (unmet,) = found.calls[-1].unmet
    assert Found("seen", found.calls[1].receipt, "list_mail", "/0/body", "untrusted") in unmet.found


def test_what_was_refused_before_flow_is_not_judged_and_what_was_refused_while_it_ran_is(
    tmp_path: Path, store_path: Path
) -> None:
    async def play(at: Gate) -> None:
        async with at.session("s") as session:
            await session.call("list_mail")
            await session.call("no_such_tool")
            await session.call("send_mail", {"too": ["zed@evil.example"]})
            await session.call("read_file", {"path": "/etc/passwd"})

    with Backends.local(store_path) as backends:
        at = mail_gate(tmp_path, backends=backends, record="full")
        asyncio.run(play(at))
        calls, found = replay_here(at, store_path, {})
    assert_the_same(calls, found)
    reasons = [call.entry.reason for call in calls]
    assert [one.would for one in found.calls] == ["pass", "not judged", "not judged", "pass"], reasons
    assert [one.why for one in found.calls[1:3]] == [
        f"it was refused for another reason: {reason}" for reason in reasons[1:3]
    ]


def test_a_session_that_began_tainted_stays_so(tmp_path: Path, store_path: Path) -> None:
    async def play(at: Gate) -> None:
        async with at.session("s", tainted="a resumed conversation") as session:
            await send(session, "zed@evil.example")

    with Backends.local(store_path) as backends:
        at = mail_gate(tmp_path, backends=backends, record="full")
        asyncio.run(play(at))
        calls, found = replay_here(at, store_path, {})
    assert_the_same(calls, found)
    assert found.calls[0].tainted_by == ("a resumed conversation",)
