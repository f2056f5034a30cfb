"""What the ledger keeps of the process of a server: nothing, or what its proxy has settled, and how it ended."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from guard.grants import grant as made_grant
from licet import Refused
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import check_signature
from licet.core.algebra.rules import Use
from licet.core.decision.decision import KeyPlaced, RequestMade
from licet.core.ledger.entry import Entry
from licet.core.ledger.verify import verify
from licet.guard.grant import Grant
from licet.guard.ports import LedgerUnavailable, Ports
from licet.guard.process_record import recorded_process

ALLOWED, ELSEWHERE = Use("network:https:get@a.example"), Use("network:https:post@evil.example")
Do = Callable[[Grant], Awaitable[None]]


def server_grant() -> Grant:
    return made_grant(["network:https:get@a.example"], name="server git")


async def run(ledger: MemoryLedger | None, *do: Do) -> None:
    """A process for each of these, one after the other, with one grant."""
    grant = server_grant()
    for one in do:
        async with recorded_process(grant, Ports(ledger=ledger)):
            await one(grant)


async def refused(grant: Grant) -> None:
    grant.check(ALLOWED)
    with pytest.raises(Refused):
        grant.check(ELSEWHERE)
    await grant.settle()


async def quiet(grant: Grant) -> None:
    grant.check(ALLOWED)


def entries(ledger: MemoryLedger) -> list[tuple[str, list[str]]]:
    return [(entry.kind, [event.kind for event in entry.events]) for entry in ledger.entries]


def test_a_refused_request_of_a_server_is_kept_at_once() -> None:
    ledger = MemoryLedger()
    asyncio.run(run(ledger, refused))
    checks = ["CapabilityGranted", "CapabilityDenied"]
    assert entries(ledger) == [("decision", []), ("progress", checks), ("receipt", checks)]
    assert {(one.agent, one.session, one.tool, one.verdict) for one in ledger.entries} == {
        ("clerk", "server git", "server git", "allow")
    }
    assert len({(one.id, one.time, one.manifest) for one in ledger.entries}) == 1
    assert verify(ledger.rows, ledger.checkpoints(), key=ledger.key, check=check_signature).ok


@pytest.mark.parametrize("ledger", [MemoryLedger(), None], ids=["quiet", "no ledger"])
def test_a_server_that_settles_nothing_leaves_nothing(ledger: MemoryLedger | None) -> None:
    asyncio.run(run(ledger, quiet if ledger is not None else refused))
    assert ledger is None or not ledger.rows


def test_requests_that_were_looked_into_are_in_a_receipt() -> None:
    ledger = MemoryLedger()

    async def ask(grant: Grant) -> None:
        grant.note_about(RequestMade, str(ALLOWED), rule="GET / → 200, 5 bytes")

    asyncio.run(run(ledger, ask))
    assert entries(ledger) == [("decision", []), ("receipt", ["RequestMade"])]


def test_a_server_that_is_started_again_has_another_record() -> None:
    ledger = MemoryLedger()
    asyncio.run(run(ledger, refused, refused))
    assert entries(ledger)[3:] == entries(ledger)[:3]
    assert len({one.id for one in ledger.entries}) == 2
    assert verify(ledger.rows, ledger.checkpoints(), key=ledger.key, check=check_signature).ok


def test_nothing_is_kept_after_the_end_and_nothing_is_placed() -> None:
    ledger = MemoryLedger()

    async def late() -> None:
        grant = server_grant()
        async with recorded_process(grant, Ports(ledger=ledger)):
            await refused(grant)
        with pytest.raises(Refused, match="LEDGER_UNAVAILABLE"):
            await grant.note_durably(KeyPlaced, "secret:read:k", rule="a.example")

    asyncio.run(late())
    assert [kind for kind, _ in entries(ledger)] == ["decision", "progress", "receipt"]


def test_a_ledger_that_fails_refuses_and_the_process_still_ends() -> None:
    class Full(MemoryLedger):
        async def record(self, entry: Entry) -> None:
            raise LedgerUnavailable("the disk is full")

    async def place(grant: Grant) -> None:
        with pytest.raises(Refused, match="LEDGER_UNAVAILABLE"):
            await grant.note_durably(KeyPlaced, "secret:read:k", rule="a.example")

    asyncio.run(run(Full(), place))
