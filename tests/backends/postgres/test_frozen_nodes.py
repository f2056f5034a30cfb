"""Freezes of a state in PostgreSQL: exact for all nodes, heard by each, and not undone by whoever has the database."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from backends.postgres.ledger_nodes import StoreNodes
from backends.postgres.test_database import in_loop
from licet.assemble.operators import set_operators
from licet.backends.memory import MemoryLedger
from licet.backends.postgres.address import Connection
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_freezes import PostgresFreezes
from licet.backends.secrets import generated_key
from licet.core.ledger.entry import STATE_AGENT, STATE_SESSION, Entry, StateFact
from licet.core.ledger.state_acts import StateAct, row_bytes
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.freezing import ActRefused, freeze_act, freeze_state, keep_act, thaw_act
from licet.guard.ports import Unavailable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANNA = generated_key()


class FreezingNodes(StoreNodes):
    """Nodes with one ledger."""

    def __init__(self, url: str, place: Path) -> None:
        super().__init__(url)
        self.place, self.ledger = place, MemoryLedger()

    def freezes(self, *, is_enrolled: bool = True) -> PostgresFreezes:
        return PostgresFreezes(*self.node(is_enrolled=is_enrolled), self.is_enrolled, self.place, self.recorded)

    async def recorded(self) -> Sequence[Entry]:
        return await self.ledger.entries_of(STATE_AGENT, STATE_SESSION)

    async def freeze(self, freezes: PostgresFreezes) -> StateAct:
        act = freeze_act(NOW, "stop", "test")
        await freeze_state(freezes, self.ledger, act)
        return act


async def begin(freezes: PostgresFreezes) -> str:
    """As the begin of a call."""
    await freezes.look_up("a", "t")
    return freezes.frozen("a", "t")


@pytest.fixture
def team(postgres: str, tmp_path: Path) -> Iterator[FreezingNodes]:
    made = FreezingNodes(postgres, tmp_path)
    yield made
    made.close()


@in_loop
async def test_a_freeze_is_known_to_a_call_that_begins_later_and_soon_to_those_that_run(team: FreezingNodes) -> None:
    one, two = team.freezes(), team.freezes()
    assert await begin(two) == two.frozen("a", "t") == ""
    await asyncio.sleep(0.1)  # it listens
    act = await team.freeze(one)
    returned = time.monotonic()
    while not two.frozen("a", "t"):
        assert time.monotonic() - returned < 0.7
        await asyncio.sleep(0.01)
    three = team.freezes()
    assert three.frozen("a", "t") == await begin(three) == "stop"
    await keep_act(one, team.ledger, thaw_act((act.id,), NOW, await one.view(), "test", None))
    assert await begin(team.freezes()) == ""


@in_loop
async def test_a_freeze_waits_for_openings_that_are_under_way(team: FreezingNodes) -> None:
    one, two = team.freezes(), team.freezes()
    await two.look_up("a", "t")
    done: list[str] = []

    async def opening(connection: Connection) -> None:
        await connection.execute("SELECT pg_advisory_xact_lock_shared(licet.freeze_lock())")
        assert await connection.fetchval("SELECT licet.frozen('a', 't')") == ""
        await asyncio.sleep(0.3)
        done.append("opened")

    work = asyncio.create_task(team.databases[1].run(opening))
    await asyncio.sleep(0.1)
    await team.freeze(one)
    done.append("frozen")
    await work
    assert done == ["opened", "frozen"]


@in_loop
async def test_a_node_hears_of_a_freeze_after_the_time_of_its_first_call(team: FreezingNodes) -> None:
    one, two = team.freezes(), team.freezes()
    first = CURRENT.set(StoreDeadline(0.3))
    assert await begin(two) == ""
    CURRENT.reset(first)
    await asyncio.sleep(0.4)
    await team.freeze(one)
    returned = time.monotonic()
    while not two.frozen("a", "t"):
        assert time.monotonic() - returned < 0.7
        await asyncio.sleep(0.01)


@in_loop
async def test_a_freeze_is_in_force_although_somebody_holds_its_lock(team: FreezingNodes) -> None:
    one, two = team.freezes(), team.freezes()
    assert await begin(two) == ""
    holder = await asyncpg.connect(team.url)
    await holder.execute("SELECT pg_advisory_lock_shared(licet.freeze_lock())")
    CURRENT.set(StoreDeadline(1))
    with pytest.raises(Unavailable, match="is in force, and a call that was beginning at that moment may have begun"):
        await team.freeze(one)
    CURRENT.set(None)
    assert await begin(two) == await begin(team.freezes()) == "stop"
    await holder.close()


@in_loop
async def test_notifications_without_number_are_one_look(team: FreezingNodes) -> None:
    """Whoever may connect can notify: thousands of looks would hold up every call."""
    one = team.freezes()
    assert await begin(one) == ""
    await asyncio.sleep(0.2)  # it listens
    looks = 0
    read = one._read

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        return await read()

    one._read = counted  # type: ignore[method-assign]
    await team.sql("SELECT pg_notify('licet_freezes', n::text) FROM generate_series(1, 2000) AS n")
    began = time.monotonic()
    assert await begin(one) == ""
    assert time.monotonic() - began < 1
    await team.freeze(one)
    assert one.frozen("a", "t") == "stop"
    assert looks < 100


@in_loop
async def test_a_freeze_that_the_database_drops_has_not_returned(team: FreezingNodes) -> None:
    one = team.freezes()
    assert await begin(one) == ""
    await team.sql("CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    await team.sql("CREATE TRIGGER q BEFORE INSERT ON licet.state_acts FOR EACH ROW EXECUTE FUNCTION public.f()")
    with pytest.raises(Unavailable, match=r"has taken the freeze .*, and does not have it"):
        await team.freeze(one)


@pytest.mark.parametrize("column", ["body", "node", "signature"])
@pytest.mark.parametrize("value", ["NULL", "text"])
@in_loop
async def test_a_column_that_was_changed_is_no_act(team: FreezingNodes, column: str, value: str) -> None:
    one = team.freezes()
    act = await team.freeze(one)
    change = {
        "NULL": f"ALTER COLUMN {column} DROP NOT NULL, ALTER COLUMN {column} TYPE bytea USING NULL",
        "text": f"ALTER COLUMN {column} TYPE xml USING xmlcomment('x')"
        if column == "node"
        else f"ALTER COLUMN {column} TYPE text USING 'x'",
    }[value]
    await team.sql(f"ALTER TABLE licet.state_acts {change}")
    assert (await one.view()).freezes == (await team.freezes().view()).freezes == (act,)  # it is in the ledger


@in_loop
async def test_rows_of_an_administrator_thaw_nothing(team: FreezingNodes) -> None:
    one = team.freezes()
    await set_operators(one, team.ledger, [ANNA.public], NOW)
    act = await team.freeze(one)
    forged = row_bytes(StateAct("thaw", "t-1", "now", StateFact(about=(act.id,))))
    stranger = Node(generated_key())
    signature = stranger.sign("state act", forged)
    query, *values = (
        "SELECT licet.add_state_act('t-1', 'thaw', NULL, NULL, '', $1, $2, $3, $4)",
        [act.id],
        forged,
        stranger.public,
        signature,
    )
    await team.databases[0].once(lambda connection: connection.execute(query, *values))
    two = team.freezes()
    assert two.frozen("a", "t") == await begin(two) == "stop"
    assert (await one.view()).unsound == ("thaw t-1: no enrolled node has signed it",)
    # A node that is enrolled is no operator either.
    await team.freezes().add(StateAct("thaw", "t-2", "now", StateFact(about=(act.id,))))
    assert two.frozen("a", "t") == "stop"
    with pytest.raises(ActRefused, match="sign with the key"):
        thaw_act((), NOW, await two.view(), "test", None)
    await team.sql("TRUNCATE licet.state_acts, licet.thawed")
    for node in (one, two, team.freezes()):  # the last one finds it in the ledger
        assert (await node.view()).freezes == (act,)
        assert await begin(node) == "stop"
    await keep_act(one, team.ledger, thaw_act((), NOW, await one.view(), "test", ANNA))
    assert await begin(team.freezes()) == ""


@in_loop
async def test_an_unsigned_freeze_stops_calls_is_listed_and_ends_as_others_do(team: FreezingNodes) -> None:
    one = team.freezes()
    await set_operators(one, team.ledger, [ANNA.public], NOW)
    assert await begin(one) == ""
    act = freeze_act(NOW, "of a stranger", "test")
    await team.freezes(is_enrolled=False).add(act)
    assert await begin(one) == "no enrolled node has signed this freeze"
    assert [found.id for found in (await one.view()).freezes] == [act.id]
    await keep_act(one, team.ledger, thaw_act((), NOW, await one.view(), "test", ANNA))
    for node in (one, team.freezes()):
        assert await begin(node) == ""
        assert (await node.view()).freezes == ()


@in_loop
async def test_a_freeze_of_a_node_that_does_not_know_the_operators_is_in_force(team: FreezingNodes) -> None:
    await set_operators(one := team.freezes(), team.ledger, [ANNA.public], NOW)
    known, team.place = team.place, team.place / "other"
    team.place.mkdir()
    await team.freeze(team.freezes())
    team.place = known
    assert await begin(one) == "stop"


@in_loop
async def test_a_freeze_that_cannot_be_read_stops_calls_and_is_named(team: FreezingNodes) -> None:
    one = team.freezes()
    assert await begin(one) == ""
    await team.sql("SELECT licet.add_state_act('f-1', 'freeze', NULL, NULL, 'stop', '{}', '', '', '')")
    with pytest.raises(Unavailable, match="no enrolled node has signed that"):
        await one.look_up("a", "t")


@in_loop
async def test_a_node_without_pinned_keys_is_not_used(team: FreezingNodes) -> None:
    await set_operators(team.freezes(), team.ledger, [ANNA.public], NOW)
    team.place = team.place / "other"
    team.place.mkdir()
    two = team.freezes()
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"operators\.json with their keys is missing"):
            two.frozen("a", "t")
    await set_operators(two, team.ledger, [ANNA.public], NOW)
    assert two.frozen("a", "t") == ""


@in_loop
async def test_the_runtime_role_changes_no_act(team: FreezingNodes) -> None:
    await team.freeze(team.freezes())
    for change in ("DELETE FROM licet.state_acts", "UPDATE licet.state_acts SET why = ''", "DELETE FROM licet.thawed"):

        async def act(connection: Connection, change: str = change) -> None:
            await connection.execute("SET LOCAL ROLE licet_runtime")
            await connection.execute("SELECT licet.frozen('a', 't')")
            await connection.execute(change)

        with pytest.raises(Unavailable, match="permission denied"):
            await team.databases[0].run(act)
