"""Without a call nothing of a tool uses its grant: not while a process waits, not after a freeze or a reload."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attacks.programs import alive
from licet import Backends, Gate, Result, Session, load_manifest
from licet.backends.memory import MemoryLedger
from licet.core.ledger.entry import Entry
from licet.sandbox.workers import pool
from pins import pinned
from sandbox import early_tools as early
from sandbox.levels import call, gate, needs_walls
from sandbox.workers.test_survival import soon


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()
    pool.close_workers()  # so that whoever waits belongs to the test


def opened(place: Path) -> Gate:
    (place / "data").mkdir()
    return gate(place, "isolated", early.save, early.save_on)


def written(place: Path) -> dict[int, int]:
    """Which process wrote something, and when for the first time."""
    found: dict[int, int] = {}
    for name in sorted(os.listdir(place / "data")):
        process, _, moment = name.partition("-")
        found[int(process)] = min(int(moment), found.get(int(process), int(moment)))
    return found


def waiting() -> list[int]:
    """The processes that wait for a call."""
    parked = [child for children in pool.pool._parked.values() for child in children]
    assert soon(lambda: all(child.pid for child in parked))
    return [child.pid for child in parked]


def test_a_process_that_waits_has_run_nothing_of_a_tool_that_may_write(tmp_path: Path) -> None:
    at = opened(tmp_path)
    began = {}
    for _ in range(6):
        before = time.monotonic_ns()
        began[call(at, "save").unwrap()] = before
        waiting()
    first = written(tmp_path)
    assert set(first) == set(began)  # each that served a call wrote, and nobody else
    assert [process for process in first if first[process] < began[process]] == []


def freeze(at: Gate, place: Path) -> None:
    at.freeze()


def reload(at: Gate, place: Path) -> None:
    at.reload(pinned(load_manifest(place / "agent.yaml")))


@pytest.mark.parametrize("name", ["save", "save_on"])
@pytest.mark.parametrize("end", [freeze, reload])
@pytest.mark.sampled(2)
def test_processes_that_wait_end_with_what_they_were_made_for(tmp_path: Path, name: str, end: object) -> None:
    at = opened(tmp_path)
    call(at, name).unwrap()
    parked = waiting()
    assert parked
    end(at, tmp_path)  # type: ignore[operator]
    assert soon(lambda: not any(map(alive, parked)))
    if not at.frozen:
        assert call(at, name).unwrap() not in parked


class Interrupting(MemoryLedger):
    """A ledger during whose work something happens: the call has been decided, and not yet begun."""

    then: Callable[[], None] = staticmethod(lambda: None)

    async def record(self, entry: Entry) -> None:
        await super().record(entry)
        if entry.kind == "decision":
            self.then()


def of_a_delegate(at: Gate) -> Session:
    return at.session("s").delegate(agent="helper", allow=[f"fs:*:{at.workdir}"])


@pytest.mark.parametrize("opening", [lambda at: at.session("s"), of_a_delegate], ids=["own", "delegate"])
@pytest.mark.parametrize("name", ["save", "save_on"])
@pytest.mark.parametrize("end", [freeze, reload])
@pytest.mark.sampled(3)
def test_nothing_waits_for_more_calls_under_what_has_ended_before_a_call_began(
    tmp_path: Path, name: str, end: Callable[[Gate, Path], None], opening: Callable[[Gate], Session]
) -> None:
    ledger = Interrupting()
    (tmp_path / "data").mkdir()
    at = gate(tmp_path, "isolated", early.save, early.save_on, backends=Backends.memory(ledger=ledger))
    session = opening(at)

    async def one() -> Result:
        return await session.call(name)

    asyncio.run(one()).unwrap()
    assert waiting()  # a call that nothing comes between has the next one made ready
    ledger.then = lambda: end(at, tmp_path)
    during = asyncio.run(one())  # a call keeps the policy that it began with; no freeze is overtaken
    assert during.reason == "FROZEN" if end is freeze else during.ok
    ledger.then = lambda: None
    assert waiting() == []
