"""`licet state move`, and `licet receipts` with the address of a database: the same receipts, wherever the state is."""

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from backends.postgres.signed_ledger import call, entry
from command_line import enter_project, run
from licet.assemble.states import DatabaseState, DirectoryState, State, close_databases, read_state
from licet.core.ledger.entry import Entry
from licet.core.policy.terms import Budget
from licet.guard.ports import Claim, LedgerUnavailable

DAY = "2026-03-01"


@pytest.fixture
def address(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    enter_project(tmp_path, monkeypatch)
    yield postgres
    close_databases()


def record(state: State, *entries: Entry) -> None:
    ledger = state.ledger()

    async def kept() -> None:
        for one in entries:
            await ledger.record(one)

    try:
        asyncio.run(kept())
    finally:
        ledger.close()


def filled(folder: Path) -> DirectoryState:
    """A state of one machine, with two calls, a value and what they cost."""
    state = DirectoryState(folder)
    record(state, *call(1), *call(2, "s-2"))
    kv, budgets = state.kv(), state.budgets(None)

    async def spend() -> None:
        await kv.set("scope", "key", {"a": 1})
        held = await budgets.reserve(Claim("agent", "s-1", "add", DAY, Decimal("0.50"), Budget(), None, None))
        assert held is not None
        await budgets.settle(held, Decimal("0.25"))

    asyncio.run(spend())
    kv.close()
    return state


def spent(state: State) -> Any:
    async def asked() -> Any:
        return await state.kv().get("scope", "key"), await state.budgets(None).usage("agent", "s-1", DAY)

    return asyncio.run(asked())


def told(*words: str, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


def test_a_state_moves_to_a_database_and_back(address: str, tmp_path: Path) -> None:
    state = filled(tmp_path / "state")
    before, listed = spent(state), told("receipts", "list", "--state", str(state.path))["receipts"]
    moved = told("state", "move", str(state.path), address)
    assert (moved["entries"], moved["aside"]) == (4, str(state.path / "ledger.moved.sqlite"))
    there = read_state(address)
    assert isinstance(there, DatabaseState)
    assert spent(there) == before
    assert told("receipts", "list", "--state", address)["receipts"] == listed
    assert told("receipts", "show", "r-s-1-1", "--state", address)["receipt"]["number"] == 2
    assert told("receipts", "verify", "--state", address)["entries"] == 4
    assert told("receipts", "verify", address)["signed"] == 4
    assert [one["calls"] for one in told("receipts", "summary", "--state", address)["days"]] == [2]
    head = run("receipts", "head", "--state", address).stdout
    Path("head.txt").write_text(head)
    run("receipts", "export", "r-s-1-1", "-o", "pack.json", "--state", address)
    key = (there.directory / "ledger.pub").read_text().strip()
    assert told("receipts", "verify", "pack.json", "--key", key)["ok"]
    with pytest.raises(LedgerUnavailable, match="was moved to another state"):
        record(state, entry("decision", 3))

    record(there, *call(3))  # this node has the key of the ledger, so it enrols itself
    verified = told("receipts", "verify", "--state", address, "--head", "head.txt")
    assert (verified["entries"], verified["waiting"]) == (7, 0)
    again = tmp_path / "again"
    assert told("state", "move", address, str(again))["entries"] == 7
    assert told("receipts", "verify", str(again), "--head", "head.txt")["signed"] == 7
    assert spent(DirectoryState(again)) == before
    record(DirectoryState(again), *call(4))
    assert told("receipts", "verify", str(again))["entries"] == 9
    close_databases()
    with pytest.raises(LedgerUnavailable, match="the ledger was moved, to /"):
        record(read_state(address), entry("decision", 5))


def test_what_verify_finds_in_a_database_is_located(address: str, tmp_path: Path) -> None:
    filled(tmp_path / "state")
    told("state", "move", str(tmp_path / "state"), address)
    there = read_state(address)
    assert isinstance(there, DatabaseState)
    change = "UPDATE licet.entries SET verdict = 'deny' WHERE session = 's-2' AND sequence = 2"
    there.database.wait(lambda connection: connection.execute(change), 10)
    finding = told("receipts", "verify", "--state", address, code=1)["finding"]
    assert (finding["kind"], finding["entry"] if "entry" in finding else finding["number"]) == ("column", 4)
    refused = run("receipts", "show", "r-s-2-2", "--state", address, code=1)
    assert "entry 4 (r-s-2-2) was changed" in refused.output


@pytest.mark.parametrize("words", [("state", "other"), ("{address}", "{address}"), ("nowhere", "{address}")])
def test_what_cannot_be_moved_is_refused(address: str, words: tuple[str, str]) -> None:
    assert run("state", "move", *(word.format(address=address) for word in words), code=1).output.count("\n") == 1
