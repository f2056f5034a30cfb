"""What a running call has recorded is on disk before the call ends: once, in order, and in few entries."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import cast

import pytest

from guard.gates import gate
from guard.grants import grant as made_grant
from licet import Backends, Context, Gate, Refused, Result, tool
from licet.backends.memory import MemoryLedger
from licet.core.algebra.rules import Use
from licet.core.decision.decision import KeyKept, KeyPlaced, RequestMade
from licet.core.ledger.entry import Entry, EventFact
from licet.guard.bind import BoundContext, parts_of
from licet.guard.grant import Grant
from licet.guard.limits import PROGRESS_SECONDS
from licet.guard.ports import LedgerUnavailable

ELSEWHERE = Use("network:https:post@evil.example")
DO: list[Callable[[Grant], Awaitable[None]]] = []  # what the tool does with its grant


@tool(needs=["env:read:A"], effect="read_only", sandbox="native")
async def work(ctx: Context) -> None:
    """Do what the test says."""
    await DO[-1](parts_of(cast("BoundContext", ctx)).grant)


class Failing(MemoryLedger):
    """A ledger that keeps no entry of a running call."""

    async def record(self, entry: Entry) -> None:
        if entry.kind == "progress":
            raise LedgerUnavailable("the disk is full")
        await super().record(entry)


class Gated(MemoryLedger):
    """A ledger whose entries of running calls wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def record(self, entry: Entry) -> None:
        if entry.kind == "progress":
            self.asked.set()
            await self.go.wait()
        await super().record(entry)


def at(folder: Path, ledger: MemoryLedger) -> Gate:
    return gate(folder, work, backends=Backends.memory(ledger=ledger), env=["A"])


async def run(folder: Path, ledger: MemoryLedger, do: Callable[[Grant], Awaitable[None]]) -> Result:
    DO.append(do)
    async with at(folder, ledger).session("s") as session:
        return await session.call("work")


def refuse(grant: Grant, use: Use = ELSEWHERE) -> None:
    with pytest.raises(Refused):
        grant.check(use)


def kinds(ledger: MemoryLedger) -> list[str]:
    return [entry.kind for entry in ledger.entries]


def test_a_refusal_is_in_the_ledger_before_the_call_ends(tmp_path: Path) -> None:
    ledger, seen = MemoryLedger(), []

    async def do(grant: Grant) -> None:
        refuse(grant)
        seen.append(kinds(ledger))
        await grant.settle()
        seen.append(kinds(ledger))

    result = asyncio.run(run(tmp_path, ledger, do))
    assert result.ok
    assert seen == [["decision"], ["decision", "progress"]]
    decision, progress, receipt = ledger.entries
    assert [event.kind for event in progress.events] == ["SandboxEntered", "CapabilityDenied"]
    assert progress.events[1].capability == str(ELSEWHERE)
    assert receipt.events == (*decision.events, *progress.events)  # each event once
    same = ("id", "agent", "session", "tool", "time", "manifest", "tool_digest", "arguments")
    assert all(getattr(one, name) == getattr(decision, name) for one in (progress, receipt) for name in same)


def test_what_is_written_already_is_not_written_again(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def do(grant: Grant) -> None:
        for _ in range(2):
            refuse(grant)
            await grant.settle()
            await grant.settle()

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger) == ["decision", "progress", "progress", "receipt"]
    assert [len(entry.events) for entry in ledger.entries] == [2, 2, 1, 5]


def test_a_call_that_does_not_ask_for_it_has_two_entries(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def do(grant: Grant) -> None:
        refuse(grant)
        grant.note_about(RequestMade, "network:https:get@a.example", rule="GET / → 200, 1 bytes")

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger) == ["decision", "receipt"]


def test_a_key_is_noted_before_it_is_used(tmp_path: Path) -> None:
    ledger, seen = MemoryLedger(), list[EventFact]()

    async def do(grant: Grant) -> None:
        await grant.note_durably(KeyPlaced, "secret:read:github/token", rule="api.github.com")
        seen.extend(ledger.entries[-1].events)

    asyncio.run(run(tmp_path, ledger, do))
    last = seen[-1]
    assert (last.kind, last.capability, last.rule) == ("KeyPlaced", "secret:read:github/token", "api.github.com")


@pytest.mark.parametrize("durable", [True, False], ids=["settled", "without the guard"])
def test_a_ledger_that_cannot_be_written_refuses(tmp_path: Path, durable: bool) -> None:
    ledger, sent = Failing(), []

    async def do(grant: Grant) -> None:
        if durable:
            await grant.note_durably(KeyPlaced, "secret:read:k", rule="a.example")
        else:
            grant.note_about(KeyPlaced, "secret:read:k", rule="a.example")
        sent.append("the key")

    result = asyncio.run(run(tmp_path, ledger, do))
    assert sent == ([] if durable else ["the key"])
    if durable:
        assert result.reason == "LEDGER_UNAVAILABLE"
        assert "the disk is full" in result.explain()


def test_many_refusals_at_once_are_few_entries(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def one(grant: Grant) -> None:
        refuse(grant)
        await grant.settle()

    async def do(grant: Grant) -> None:
        await asyncio.gather(*(one(grant) for _ in range(500)))

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger) == ["decision", "progress", "receipt"]
    assert len(ledger.entries[1].events) == 501


def test_refusals_one_after_the_other_are_a_few_entries_a_second(tmp_path: Path) -> None:
    ledger, took = MemoryLedger(), 0.0

    async def do(grant: Grant) -> None:
        nonlocal took
        began = monotonic()
        for _ in range(3):
            refuse(grant)
            await grant.settle()
        took = monotonic() - began

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger).count("progress") == 3
    assert took >= 2 * PROGRESS_SECONDS  # the first one waits for nothing


def test_beyond_the_quota_refusals_are_counted_and_cause_no_entry(tmp_path: Path) -> None:
    ledger, before = MemoryLedger(), []

    async def do(grant: Grant) -> None:
        for _ in range(2000):
            refuse(grant)
        await grant.settle()
        before.extend(kinds(ledger))
        for _ in range(1000):
            refuse(grant)
            await grant.settle()

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger) == [*before, "receipt"] == ["decision", "progress", "receipt"]
    assert "more checks were refused" in str(ledger.entries[-1].events[-1].rule)


def test_no_flood_of_refusals_hides_a_key_that_is_sent_away(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def do(grant: Grant) -> None:
        for _ in range(2000):
            refuse(grant)
        for _ in range(2000):  # the same reason, and no request
            with pytest.raises(Refused):
                grant.refuse("SECRET_NOT_DECLARED", "no", Use("secret:read:k"))
        for _ in range(10):
            with pytest.raises(Refused):
                grant.refuse_key("github/token", ELSEWHERE)
        await grant.settle()

    asyncio.run(run(tmp_path, ledger, do))
    for entry in ledger.entries[1:]:
        sent = [one for one in entry.events if one.reason == "SECRET_NOT_DECLARED"]
        assert [one.capability for one in sent] == [str(ELSEWHERE)] * 10


def test_the_end_of_a_session_in_another_thread_wakes_who_waits(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def do(grant: Grant) -> None:
        refuse(grant)
        await grant.settle()
        refuse(grant)
        waiting = asyncio.ensure_future(grant.settle())
        await asyncio.sleep(0)
        await asyncio.to_thread(grant.end)
        with pytest.raises(Refused, match="SESSION_ENDED"):
            await waiting

    asyncio.run(run(tmp_path, ledger, do))
    assert kinds(ledger) == ["decision", "progress", "receipt"]


def test_events_beyond_the_quota_of_their_kind_are_counted(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def do(grant: Grant) -> None:
        for _ in range((KeyKept.most or 0) + 7):
            grant.note_about(KeyKept, "secret:read:k", rule="in the path")
        for _ in range((RequestMade.most or 0) + 9):
            grant.note_about(RequestMade, "network:https:get@a.example", rule="GET / → 200, 0 bytes")

    asyncio.run(run(tmp_path, ledger, do))
    last = ledger.entries[-1].events[-2:]
    assert [(event.kind, event.count) for event in last] == [("KeyKept", 7), ("RequestMade", 9)]


def test_a_cancelled_wait_loses_and_repeats_nothing(tmp_path: Path) -> None:
    ledger: list[Gated] = []

    async def do(grant: Grant) -> None:
        refuse(grant)
        first = asyncio.ensure_future(grant.settle())
        await ledger[0].asked.wait()
        second = asyncio.ensure_future(grant.settle())
        await asyncio.sleep(0)
        first.cancel()
        ledger[0].go.set()
        await second
        assert first.cancelled()

    async def begin() -> None:
        ledger.append(Gated())
        assert (await run(tmp_path, ledger[0], do)).ok

    asyncio.run(begin())
    assert kinds(ledger[0]) == ["decision", "progress", "receipt"]


def test_what_is_recorded_during_a_write_waits_for_the_next_one(tmp_path: Path) -> None:
    ledger: list[Gated] = []

    async def do(grant: Grant) -> None:
        refuse(grant)
        first = asyncio.ensure_future(grant.settle())
        await ledger[0].asked.wait()
        refuse(grant)
        second = asyncio.ensure_future(grant.settle())
        await asyncio.sleep(0)
        ledger[0].go.set()
        await first
        assert not second.done()
        await second
        assert [len(entry.events) for entry in ledger[0].entries] == [2, 2, 1]

    async def begin() -> None:
        ledger.append(Gated())
        assert (await run(tmp_path, ledger[0], do)).ok

    asyncio.run(begin())


def test_nothing_follows_the_receipt(tmp_path: Path) -> None:
    ledger, grants, late = MemoryLedger(), [], []

    async def do(grant: Grant) -> None:
        grants.append(grant)
        refuse(grant)
        await grant.settle()
        refuse(grant)
        late.append(asyncio.ensure_future(grant.settle()))  # waits until enough time has passed
        await asyncio.sleep(0)

    async def begin() -> None:
        assert (await run(tmp_path, ledger, do)).ok
        with pytest.raises(Refused, match="SESSION_ENDED"):
            await late[0]
        with pytest.raises(Refused, match="SESSION_ENDED"):
            await grants[0].note_durably(KeyPlaced, "secret:read:k", rule="a.example")

    asyncio.run(begin())
    assert kinds(ledger) == ["decision", "progress", "receipt"]
    assert len(ledger.entries[-1].events) == 5  # the refusal that came too late for an entry of its own, too


def test_many_new_events_do_not_end_up_after_the_receipt(tmp_path: Path) -> None:
    """Their entry is made in a thread, and the call may end meanwhile."""
    ledger, late = MemoryLedger(), []

    async def do(grant: Grant) -> None:
        for _ in range(300):
            refuse(grant)
        late.append(asyncio.ensure_future(grant.settle()))
        for _ in range(3):
            await asyncio.sleep(0)

    async def begin() -> None:
        await run(tmp_path, ledger, do)
        await asyncio.gather(*late, return_exceptions=True)

    asyncio.run(begin())
    assert kinds(ledger)[-1] == "receipt"


def test_a_grant_of_no_call_has_no_ledger() -> None:
    async def settled(grant: Grant) -> None:
        refuse(grant)
        await grant.settle()

    asyncio.run(settled(made_grant(["fs:read:/srv"])))


def test_a_key_that_is_sent_away_is_found_by_its_reason() -> None:
    grant = made_grant(["network:https:post@evil.example"])
    with pytest.raises(Refused) as refusal:
        grant.refuse_key("github/token", ELSEWHERE)
    (event,) = grant.events
    assert (event.capability, event.reason) == (str(ELSEWHERE), "SECRET_NOT_DECLARED")
    assert "tried to send the key github/token to evil.example" in event.rule
    # Nothing tells how to give the key to the host that it was sent to.
    assert "`stand_ins`" not in refusal.value.explain()
    assert "to allow it" not in refusal.value.explain()
