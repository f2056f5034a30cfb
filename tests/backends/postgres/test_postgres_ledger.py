"""The ledger in PostgreSQL: many nodes write one chain for each session, and one sequencer gives places in the tree."""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from backends.postgres.ledger_nodes import ROWS, Team, entry, team, write
from backends.postgres.test_database import in_loop
from licet.backends.ledger.state import read_last
from licet.backends.memory import SystemClock
from licet.backends.postgres import postgres_ledger
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import APPEND
from licet.backends.postgres.node_keys import node_entry
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import generated_key
from licet.core.ledger.entry import Entry
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.ports import LedgerUnavailable
from postgres_server import server


@in_loop
async def test_a_node_begins_a_ledger_and_enrols_itself(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        (node,) = nodes.nodes
        await write(node, [f"r{number}" for number in range(5)])
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries, outcome.signed) == (None, 6, 6)
        first = (await nodes.sql(ROWS))[0]
        assert (first["kind"], first["session"]) == ("enrolment", "nodes of the state")
        assert [one.id for one in await node.entries_of("a", "s")] == [f"r{number}" for number in range(5)]
    last = read_last(str(store_path / "node0" / "ledger.head"))
    assert last is not None
    assert last.facts.size == 6


@in_loop
async def test_four_nodes_on_one_session_are_one_chain(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, 4) as nodes:
        names = [[f"n{node}-{number}" for number in range(40)] for node in range(4)]
        one_after_another = [
            asyncio.gather(*(some(node, names[at][part::4]) for part in range(4)))
            for at, node in enumerate(nodes.nodes)
        ]
        await asyncio.gather(*one_after_another)
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries) == (None, 160 + 4)
        kept = await nodes.sql("SELECT id, sequence FROM licet.entries WHERE session = 's' ORDER BY sequence")
        assert sorted(one["id"] for one in kept) == sorted(name for some_names in names for name in some_names)
        assert [one["sequence"] for one in kept] == [*range(1, 161)]


async def some(ledger: PostgresLedger, names: Sequence[str]) -> None:
    for name in names:
        await ledger.record(entry(name))


@in_loop
async def test_killed_connections_lose_and_double_nothing(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, 2) as nodes:
        names = list[str]()
        is_killing = True

        async def load(worker: int) -> None:
            while is_killing:
                names.append(f"r{len(names)}")
                await nodes.nodes[worker % 2].record(entry(names[-1]))

        writing = asyncio.gather(*map(load, range(6)))
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        for _ in range(8):
            before = len(names)
            while len(names) < before + 10 and not writing.done():
                await asyncio.sleep(0.005)
            await nodes.sql(f"{kill} AND pid != pg_backend_pid()")
        is_killing = False
        await writing
        outcome = await nodes.verified()
        kept = [one["id"] for one in await nodes.sql("SELECT id FROM licet.entries WHERE session = 's'")]
        assert (outcome.finding, sorted(kept)) == (None, sorted(names))
        assert outcome.entries == len(names) + 2


# The first transaction with this entry ends at its very commit, together with its connection.
LOST_COMMIT = (
    "CREATE SEQUENCE public.commits",
    "GRANT USAGE ON SEQUENCE public.commits TO public",
    """CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('public.commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON licet.entries DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.id = 'lost') EXECUTE FUNCTION public.lose()""",
    "SELECT 1",
)


@in_loop
async def test_an_entry_whose_commit_is_lost_is_written_again(postgres: str, pooled: str, store_path: Path) -> None:
    async with team(pooled, store_path) as nodes:
        (node,) = nodes.nodes
        await node.record(entry("first"))
        nodes.url = postgres
        await nodes.sql(*LOST_COMMIT)
        await node.record(entry("lost"))
        assert await nodes.sql("SELECT last_value FROM public.commits") == [(2,)]
        await node.record(entry("next"))
        assert [one.id for one in await node.entries_of("a", "s")] == ["first", "lost", "next"]


@in_loop
async def test_a_look_that_is_overtaken_by_a_newer_head_is_no_database_that_was_set_back(
    postgres: str, store_path: Path
) -> None:
    async with team(postgres, store_path, sequences=False) as nodes:
        (node,) = nodes.nodes
        await write(node, ["r1"])

        class Slow:
            def __init__(self, connection: Connection) -> None:
                self._connection = connection

            async def fetchrow(self, query: str) -> Any:
                found = await self._connection.fetchrow(query)
                await node.sequencer.place_now()
                return found

        await nodes.databases[0].once(lambda connection: node.head.follow(Slow(connection)))  # type: ignore[arg-type]
        assert node.head.last is not None
        assert node.head.last.facts.size == 2


@in_loop
async def test_a_session_that_was_changed_fails_alone(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, 2) as nodes:
        one, two = nodes.nodes
        await write(one, ["r1"], "s")
        await write(one, ["r2"], "t")
        await nodes.sql("UPDATE licet.entries SET tool = 'other' WHERE id = 'r1'", "SELECT 1")
        answers = await asyncio.gather(
            *(two.record(entry(f"m-{session}", session)) for session in ("s", "t", "u")), return_exceptions=True
        )
        assert isinstance(answers[0], LedgerUnavailable)
        kept = await nodes.sql("SELECT id FROM licet.entries WHERE id LIKE 'm-%' ORDER BY 1")
        assert [f"m-{session}" for session, wrong in zip("stu", answers, strict=True) if wrong is None] == [
            row["id"] for row in kept
        ]


@in_loop
async def test_batches_without_anything_are_refused_and_named(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, sequences=False) as nodes:
        (node,) = nodes.nodes
        await node.record(entry("r1"))
        for column in ("node", "hashes", "signature"):
            await nodes.sql(f"ALTER TABLE licet.batches ALTER {column} DROP NOT NULL", "SELECT 1")
        await nodes.sql("UPDATE licet.batches SET node = NULL, hashes = NULL, signature = NULL", "SELECT 1")
        with pytest.raises(LedgerUnavailable, match="r1 in the database was changed"):
            await node.entries_of("a", "s")
        assert await node.sequencer.place_now() == 0
        assert "r1" in await without_place(nodes)


@in_loop
async def test_the_same_batch_sent_again_has_the_same_answer(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        (node,) = nodes.nodes
        begun = await node.begun()
        batch = node.chains.link(begun.ledger, [entry("r1"), entry("r2"), entry("r3", "t")], node_time())
        other = node.chains.link(begun.ledger, [entry("r4")], node_time())

        async def twice(connection: Connection) -> list[Any]:
            return [await connection.fetch(APPEND, *one.arguments()) for one in (batch, other, batch, other)]

        answers = await nodes.databases[0].run(twice)
        assert answers[0] == answers[2] == []
        assert [tuple(one) for one in answers[1]] == [("a", "s", 2, batch.rows[1].hash)]
        assert answers[1] == answers[3]
        assert await nodes.sql("SELECT count(*) FROM licet.entries") == [(3,)]


def node_time() -> datetime:
    return SystemClock.now()


@in_loop
async def test_a_second_sequencer_changes_nothing(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        await write(nodes.nodes[0], ["r0"])
        twin = nodes.stranger(at="node0")  # another process of the same node
        await write(twin, ["r1"])
        for at in range(6):
            await asyncio.gather(
                write(nodes.nodes[at % 2], [f"x{at}-{number}" for number in range(10)], f"t{at}"),
                *(one.sequencer.place_now() for one in nodes.nodes),
            )
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries) == (None, 63)


@in_loop
async def test_a_forgotten_transaction_holds_places_back_and_no_call(
    postgres: str, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_ledger, "CHECK_SECONDS", 0.0)
    limited = f"{postgres}&max_head_age=60"
    now = node_time()
    async with team(limited, store_path, now=lambda: now, sequences=False) as nodes:
        nodes.url = postgres
        (node,) = nodes.nodes
        await write(node, ["r0"])
        await node.sequencer.place_now()
        forgotten = await asyncpg.connect(postgres)
        try:
            await forgotten.execute("BEGIN; SELECT pg_current_xact_id()")
            await write(node, ["r1"])
            assert await node.sequencer.place_now() == 0
            assert await without_place(nodes) == {"r1"}
            now = now.replace(year=now.year + 1)
            with pytest.raises(LedgerUnavailable, match="max_head_age"):
                await node.record(entry("r2"))
        finally:
            await forgotten.close()
        assert await node.sequencer.place_now() == 1
        await write(node, ["r3"])
        assert (await nodes.verified()).entries == 4


async def without_place(nodes: Team) -> set[str]:
    """The ids of the entries without a place."""
    places = "SELECT FROM licet.places AS p WHERE (p.agent, p.session, p.sequence) = (e.agent, e.session, e.sequence)"
    return {one["id"] for one in await nodes.sql(f"SELECT id FROM licet.entries AS e WHERE NOT EXISTS ({places})")}


@in_loop
async def test_a_node_that_is_not_enrolled_is_refused_and_not_placed(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        await write(nodes.nodes[0], ["r0"])
        stranger = nodes.stranger()
        with pytest.raises(LedgerUnavailable, match=f"licet state enrol {stranger.node.public}"):
            await stranger.record(entry("r1", "t"))
        begun = await stranger.begun()
        await sent(nodes, stranger, begun.ledger, entry("r2", "u"))  # as a changed licet would
        await nodes.verified()
        assert await without_place(nodes) == {"r2"}
        with pytest.raises(LedgerUnavailable, match="not enrolled"):
            await nodes.nodes[0].record(entry("r3", "u"))  # it does not link to what a stranger wrote
        await nodes.nodes[0].enrol(stranger.node.public)
        await stranger.record(entry("r4", "t"))
        await nodes.verified()
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries) == (None, 5)  # what it wrote before counts now


async def sent(nodes: Team, node: PostgresLedger, ledger: str, *entries: Entry) -> None:
    batch = node.chains.link(ledger, entries, node_time())
    assert not await nodes.databases[0].once(lambda connection: connection.fetch(APPEND, *batch.arguments()))


@in_loop
async def test_a_dismissed_node_writes_no_more(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, 2) as nodes:
        first, second = nodes.nodes
        await write(second, ["r0", "r1"])
        await first.dismiss(second.node.public)
        second = nodes.stranger(at="node1")  # after a restart
        with pytest.raises(LedgerUnavailable, match="was dismissed from this state: run `licet state enrol"):
            await second.record(entry("r2"))
        begun = await second.begun()
        await sent(nodes, second, begun.ledger, entry("r3", "t"))
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries) == (None, 5)
        assert await without_place(nodes) == {"r3"}


@in_loop
async def test_operators_alone_enrol_from_when_they_were_set(postgres: str, store_path: Path) -> None:
    anna, other = generated_key(), generated_key()
    async with team(postgres, store_path, 2) as nodes:
        first, second = nodes.nodes
        await write(first, ["r0"])
        with pytest.raises(LedgerUnavailable, match=r"the node with ledger\.key signs"):
            await second.enrol(other.public, anna)
        with pytest.raises(LedgerUnavailable, match="the key of the ledger is on another node"):
            await second.hand_over([anna.public])
        await first.hand_over([anna.public])
        # Who was enrolled by the key of the ledger stays, and nobody else comes by it.
        await write(first, ["r1"])
        await write(second, ["r2"])
        third = nodes.stranger()
        with pytest.raises(LedgerUnavailable, match="this state has operators: sign with the key of one"):
            await first.enrol(third.node.public)
        with pytest.raises(LedgerUnavailable, match="is no operator"):
            await third.enrol(third.node.public, other)
        key = first.head.key
        assert key is not None
        begun = await first.begun()
        forged = node_entry("enrolment", [third.node.public], begun.ledger, key, node_time())
        await second.record(forged)  # a changed licet, at a node that has stolen the key of the ledger
        with pytest.raises(LedgerUnavailable, match="not enrolled"):
            await third.record(entry("r3", "t"))


@in_loop
async def test_nodes_stay_when_operators_come_and_change(postgres: str, store_path: Path) -> None:
    anna, ben = generated_key(), generated_key()
    async with team(postgres, store_path) as nodes:
        (first,) = nodes.nodes
        await write(first, ["r0"])
        await first.hand_over([anna.public])
        await first.hand_over([anna.public])  # again: nothing happens
        second = nodes.stranger()
        await second.enrol(second.node.public, anna)  # from a machine that is no node
        await write(second, ["r1"])
        with pytest.raises(LedgerUnavailable, match="is no operator"):
            await first.hand_over([ben.public], ben)
        await first.hand_over([ben.public], anna)
        for number, node in enumerate((first, second)):
            await node.record(entry(f"s{number}", "s"))
        with pytest.raises(LedgerUnavailable, match="is no operator"):
            await first.dismiss(second.node.public, anna)
        await first.dismiss(second.node.public, ben)
        outcome = await nodes.verified()
        assert (outcome.finding, outcome.entries) == (None, 9)
        assert await without_place(nodes) == set()


@in_loop
async def test_a_node_believes_no_ledger_without_its_operators(postgres: str, store_path: Path) -> None:
    anna = generated_key()

    async def pinned() -> tuple[str, ...]:
        return (anna.public,)

    async with team(postgres, store_path, 2) as nodes:
        first = nodes.nodes[0]
        await write(first, ["r0"])
        late = nodes.stranger(at="node1", operators=pinned)
        with pytest.raises(LedgerUnavailable, match="does not name the operators"):
            await late.record(entry("r1"))
        holder = nodes.stranger(at="node0", operators=pinned)  # as after a move: the ledger gets to know them
        await holder.record(entry("r2"))
        await late.record(entry("r3"))
        assert (await nodes.verified()).finding is None


SET_BACK = {
    "places": "DELETE FROM licet.heads WHERE size > 3; DELETE FROM licet.places WHERE number > 3",
    "a place": "UPDATE licet.places SET hash = sha256('x') WHERE number = 5",
    "the ledger": "UPDATE licet.ledger SET id = 'another'",
    "all": "TRUNCATE licet.heads, licet.places, licet.ledger, licet.entries, licet.batches",
}


@pytest.mark.parametrize("way", SET_BACK)
@pytest.mark.sampled(2)
@in_loop
async def test_a_database_that_was_set_back_is_not_written(postgres: str, store_path: Path, way: str) -> None:
    async with team(postgres, store_path) as nodes:
        for number in range(6):
            await write(nodes.nodes[0], [f"r{number}"])
            await nodes.nodes[0].sequencer.place_now()
            if way == "a place" and number == 2:
                await asyncio.to_thread(nodes.nodes[0].close)
                before = (store_path / "node0" / "ledger.head").read_bytes()
    if way == "a place":  # the node saw a head in the middle, and not the last
        (store_path / "node0" / "ledger.head").write_bytes(before)
    async with team(postgres, store_path, 0) as nodes:
        await nodes.sql(SET_BACK[way], "SELECT")
        node = nodes.stranger(at="node0")
        with pytest.raises(LedgerUnavailable, match="was set back or changed"):
            await node.record(entry("late"))
        assert await nodes.sql("SELECT count(*) FROM licet.entries WHERE id = 'late'") == [(0,)]


@in_loop
async def test_a_backup_in_place_of_the_database_is_noticed_while_it_runs(postgres: str, store_path: Path) -> None:
    name = postgres.split("/")[3].split("?", maxsplit=1)[0]
    async with team(postgres, store_path) as nodes:
        await write(nodes.nodes[0], ["r0", "r1"])
        await nodes.nodes[0].sequencer.place_now()
        await asyncio.to_thread(nodes.close)
    await server().sql(f"CREATE DATABASE {name}_backup TEMPLATE {name}")
    async with team(postgres, store_path, 0) as nodes:
        node = nodes.stranger(at="node0")
        await write(node, ["r2", "r3"])
        await node.sequencer.place_now()
        await server().sql(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('{name}', '{name}_backup')",
            f"ALTER DATABASE {name} RENAME TO {name}_gone",
            f"ALTER DATABASE {name}_backup RENAME TO {name}",
            "SELECT 1",
        )
        with pytest.raises(LedgerUnavailable, match="was set back"):
            await node.record(entry("r4"))
        assert await nodes.sql("SELECT count(*) FROM licet.entries WHERE session = 's'") == [(2,)]
        assert await nodes.sql("SELECT max(size) FROM licet.heads") == [(3,)]


@in_loop
async def test_a_node_that_joins_pins_the_key_of_the_ledger(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path, 2) as nodes:
        first, second = nodes.nodes
        await second.record(entry("r0"))
        pinned = (second.directory / "ledger.pub").read_text().strip()
        assert pinned == first.head.key.public if first.head.key else ""
        third = nodes.stranger()
        third.directory.mkdir(parents=True, exist_ok=True)
        (third.directory / "ledger.pub").write_text(f"{generated_key().public}\n")
        with pytest.raises(LedgerUnavailable, match=r"ledger\.pub says"):
            await third.record(entry("r1"))


FORGED = {
    "body": "UPDATE licet.entries SET body = replace(convert_from(body, 'UTF8'), 'allow', 'never')::bytea",
    "last": "DELETE FROM licet.entries WHERE id = 'r2'",
    "middle": "DELETE FROM licet.entries WHERE id = 'r1'",
    "batch": "UPDATE licet.batches SET signature = sha256('x') || sha256('y')",
    "node": "UPDATE licet.batches SET node = 'ed25519:AAAA'",
    "no node": "ALTER TABLE licet.batches ALTER node DROP NOT NULL, ALTER node TYPE bytea USING NULL",
    "no hashes": "ALTER TABLE licet.batches ALTER hashes DROP NOT NULL, ALTER hashes TYPE text USING NULL",
    "no signature": "ALTER TABLE licet.batches ALTER signature DROP NOT NULL, ALTER signature TYPE text USING NULL",
}


@pytest.mark.parametrize("way", FORGED)
@pytest.mark.sampled(3)
@in_loop
async def test_what_was_changed_in_the_database_is_not_believed(postgres: str, store_path: Path, way: str) -> None:
    async with team(postgres, store_path, sequences=False) as nodes:
        (node,) = nodes.nodes
        await write(node, ["r0", "r1", "r2"])
        assert len(await node.entries_of("a", "s")) == 3
        about = " WHERE session = 's'" if way == "body" else ""
        await nodes.sql(FORGED[way] + about, "SELECT")
        with pytest.raises(LedgerUnavailable):
            await node.entries_of("a", "s")
        if way == "last":
            with pytest.raises(LedgerUnavailable, match="was set back"):
                await node.record(entry("r3"))
        await node.sequencer.place_now()
        held = {"body": {"r0", "r1", "r2"}, "last": set[str](), "middle": {"r2"}}.get(way, {"r0", "r1", "r2"})
        assert held <= await without_place(nodes)


@in_loop
async def test_an_entry_that_cannot_be_written_fails_alone(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        (node,) = nodes.nodes
        kept = await asyncio.gather(
            *(node.record(entry(name)) for name in ("r0", "\0", "\ud800", "r1")), return_exceptions=True
        )
        assert [type(one) for one in kept] == [type(None), LedgerUnavailable, LedgerUnavailable, type(None)]
        assert (await nodes.verified()).entries == 3


@in_loop
async def test_a_ledger_that_cannot_be_reached_refuses_in_time(postgres: str, store_path: Path) -> None:
    async with team(postgres.replace("licet-pg-", "licet-gone-"), store_path) as nodes:
        token = CURRENT.set(StoreDeadline(0.3))
        try:
            with pytest.raises(LedgerUnavailable, match="cannot be reached"):
                await nodes.nodes[0].record(entry("r0"))
        finally:
            CURRENT.reset(token)


@in_loop
async def test_the_runtime_role_suffices(postgres: str, store_path: Path) -> None:
    name = f"member{os.getpid()}"
    await server().sql(f"CREATE ROLE {name} LOGIN IN ROLE licet_runtime", "SELECT 1")
    async with team(postgres.replace("//postgres@", f"//{name}@"), store_path, 2) as nodes:
        await write(nodes.nodes[1], ["r0", "r1"])
        assert (await nodes.nodes[0].entries_of("a", "s"))[0].id == "r0"
        assert (await nodes.verified()).finding is None
        for statement in ("DELETE FROM licet.entries", "UPDATE licet.heads SET size = 1", "TRUNCATE licet.places"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await nodes.sql(statement)


@in_loop
async def test_a_sequencer_fills_the_tree_by_itself_and_ends_with_its_database(postgres: str, store_path: Path) -> None:
    async with team(postgres, store_path) as nodes:
        await write(nodes.nodes[0], ["r0", "r1"])
        until = time.monotonic() + 10
        while len(await nodes.rows()) < 3 and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert [row.id for row in await nodes.rows()][1:] == ["r0", "r1"]
        began = time.monotonic()
        await asyncio.to_thread(nodes.databases[0].close)
        assert time.monotonic() - began < 2


@in_loop
async def test_an_answer_that_was_overtaken_is_no_database_that_was_set_back(postgres: str, store_path: Path) -> None:
    """Decisions and receipts of a node go over two connections: a later entry may be acknowledged first."""
    async with team(postgres, store_path, 2) as nodes:
        here, there = nodes.nodes
        await here.record(entry("r1"))
        await there.record(entry("r2"))

        class Slow:
            """A connection on which the answer comes after an entry was acknowledged on another one."""

            def __init__(self, own: Connection) -> None:
                self.own, self.overtaken = own, False

            async def fetch(self, query: str, *given: Any) -> Any:
                found = await self.own.fetch(query, *given)
                if query == APPEND and not self.overtaken:
                    self.overtaken = True
                    await here.record(entry("r3"))
                return found

            def __getattr__(self, name: str) -> Any:
                return getattr(self.own, name)

        async def late(connection: Connection) -> Any:
            return await here._append(Slow(connection), [entry("r4")])

        assert await nodes.databases[0].once(late) == [None]
        assert [one.id for one in await there.entries_of("a", "s")] == ["r1", "r2", "r3", "r4"]
