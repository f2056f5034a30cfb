"""A call whose server is away or hangs is refused in its time; one that ran is recorded when the server answers."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.postgres.test_database import in_loop, pid
from licet import Backends, Gate, Result, load_manifest, run, tool
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.ports import Unavailable
from postgres_server import processes_of, server

POLICY = {"agent": "a", "capabilities": {"tools": ["act"], "native": ["act"], "budget": {"max_calls_per_session": 9}}}
DOING: list[Callable[[], None]] = []  # what the tool does when it runs


@tool(capabilities={}, effect="read_only", sandbox="native")
async def act() -> str:
    """Do what the test wants."""
    for one in DOING:
        one()
    return "done"


def send(number: signal.Signals) -> None:
    """Stop all processes of the server, or let them go on."""
    for one in processes_of(server()):
        os.kill(one, number)


@contextmanager
def hanging() -> Iterator[None]:
    """A server of which no process goes on."""
    try:
        send(signal.SIGSTOP)
        yield
    finally:
        send(signal.SIGCONT)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Gate]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    policy = {**POLICY, "capabilities": {**POLICY["capabilities"], "limits": {"wall_seconds": 1}}}  # type: ignore[dict-item]
    (tmp_path / "a.json").write_text(json.dumps(policy))
    yield lambda address: Gate(load_manifest(tmp_path / "a.json"), [act], Backends.postgres(address))
    DOING.clear()


def in_its_time(gate: Gate) -> Result:
    """The result of a call in a new session. Where each step has a time of its own, that takes more than 4 seconds."""
    began = time.monotonic()
    result = run(gate, "act", session=f"s{began}")
    assert time.monotonic() - began < 3.5
    return result


def test_a_call_is_refused_in_its_time_where_the_server_is_away_or_hangs(
    opened: Callable[[str], Gate], postgres: str
) -> None:
    away = opened(postgres.replace("licet-pg-", "licet-gone-"))
    result = in_its_time(away)
    assert (result.ok, result.reason, result.receipt) == (False, "LEDGER_UNAVAILABLE", "")
    assert "cannot be reached" in result.explain() or "did not answer in time" in result.explain()

    gate, new = opened(postgres), opened(postgres)
    assert run(gate, "act").ok
    with hanging():
        for one in (gate, new):
            result = in_its_time(one)
            assert (result.ok, result.reason) == (False, "LEDGER_UNAVAILABLE")
            assert "did not answer in time" in result.explain()
    assert run(gate, "act").ok  # and goes on at once


def test_a_call_that_ran_is_recorded_when_the_server_answers_again(
    opened: Callable[[str], Gate], postgres: str
) -> None:
    gate = opened(postgres)

    def hang() -> None:
        send(signal.SIGSTOP)
        threading.Timer(1.3, send, [signal.SIGCONT]).start()  # the time of the call is over then

    DOING.append(hang)
    began = time.monotonic()
    result = run(gate, "act")
    assert time.monotonic() - began > 1.2
    assert (result.ok, result.value) == (True, "done")


@in_loop
async def test_a_transaction_over_a_server_that_hangs_ends_in_time(postgres: str) -> None:
    database = Database(postgres)
    await database.run(pid)
    with hanging():
        token = CURRENT.set(StoreDeadline(0.2))
        with pytest.raises(Unavailable, match="did not answer in time"):
            await asyncio.wait_for(database.run(pid), 10)
        CURRENT.reset(token)
    assert await database.run(pid)
    database.close()


@in_loop
async def test_who_has_less_time_waits_no_longer_for_those_before(postgres: str) -> None:
    async def act(connection: Connection, items: Sequence[float]) -> Sequence[float]:
        await connection.execute("SELECT pg_sleep($1)", max(items))
        return items

    database = Database(postgres)
    lane = database.lane(act, most=1)
    patient = asyncio.ensure_future(lane.do(1.0))
    await asyncio.sleep(0)
    CURRENT.set(StoreDeadline(0.1))
    with pytest.raises(Unavailable, match="did not answer in time"):
        await lane.do(0.0)
    assert not patient.done()
    assert await patient == 1.0
    database.close()
