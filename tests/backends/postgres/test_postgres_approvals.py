"""Approvals of many nodes: one winner, answers that arrive, and rows that somebody else has written."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from backends.postgres.ledger_nodes import StoreNodes
from backends.postgres.test_database import in_loop
from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer
from licet.backends.approvals.waiting import WaitingApprover
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.postgres_approvals import ANSWERS, PostgresApprovals
from licet.backends.secrets import generated_key
from licet.guard.ports import Answered, Unavailable


class Nodes(StoreNodes):
    """Some nodes of one state, with the administrator of its database."""

    def open(self, *, is_enrolled: bool = True, **options: Any) -> PostgresApprovals:
        return PostgresApprovals(*self.node(is_enrolled=is_enrolled), self.is_enrolled, **options)


@pytest.fixture
def nodes(postgres: str) -> Iterator[Nodes]:
    there = Nodes(postgres)
    yield there
    there.close()


async def agreed(store: PostgresApprovals, *words: Any, **changes: Any) -> str:
    """Ask, and approve: the id of the request."""
    request = (await store.ask(question(*words, **changes))).request
    await store.approve(await store.find(request))
    return request


@in_loop
async def test_of_64_connections_one_uses_an_approval(nodes: Nodes) -> None:
    stores = [nodes.open() for _ in range(8)]
    request = await agreed(stores[0])
    answers = await asyncio.gather(*(store.ask(question()) for store in stores for _ in range(8)))
    assert [one.request for one in answers if one.answer == "approved"] == [request]
    # The others share one new request.
    assert len({one.request for one in answers if one.answer == "absent"}) == 1
    assert len(await stores[0].list()) == 2


@in_loop
async def test_an_opening_uses_an_approval_once_and_the_same_call_again(nodes: Nodes) -> None:
    store = nodes.open(leaves_use=True)
    request = await agreed(store)
    answers = [await store.ask(question()) for _ in range(2)]
    assert [(one.answer, one.request, one.to_use) for one in answers] == [("approved", request, True)] * 2
    other = nodes.open()

    async def use(call: str) -> bool:
        found: bool = await nodes.databases[0].run(
            lambda connection: connection.fetchval("SELECT licet.use_approval($1, $2)", request, call)
        )
        return found

    assert [await use(call) for call in ("c-1", "c-2", "c-1")] == [True, False, True]
    assert (await store.ask(question())).answer == "absent"
    assert (await other.find(request)).state(other.now()) == "used"
    with pytest.raises(CannotAnswer, match="is used"):
        await other.deny(await other.find(request))


@in_loop
async def test_no_call_uses_what_was_denied_meanwhile(nodes: Nodes) -> None:
    store = nodes.open(leaves_use=True)
    request = await agreed(store)
    assert (await store.ask(question())).to_use
    await nodes.open().deny(await store.find(request))
    used = await nodes.databases[0].run(
        lambda connection: connection.fetchval("SELECT licet.use_approval($1, 'c-1')", request)
    )
    assert used is False


async def asked_and_waiting(nodes: Nodes) -> tuple[PostgresApprovals, str, "asyncio.Task[Answered]"]:
    """Another node, a request, and the call that waits for its answer. It never looks by itself, so it must be told."""
    here, there = nodes.open(), nodes.open()
    shown = asyncio.Queue[str]()
    approver = WaitingApprover(here, lambda _, kept, __: shown.put_nowait(kept.request.id), interval=3600)
    waiting = asyncio.create_task(approver.ask(question()))
    request = await shown.get()
    while nodes.databases[0].is_deaf:
        await asyncio.sleep(0.01)
    return there, request, waiting


@in_loop
async def test_an_answer_reaches_a_waiting_node(nodes: Nodes) -> None:
    there, request, waiting = await asked_and_waiting(nodes)
    kept = await there.find(request)
    await there.approve(kept)
    answered = await asyncio.wait_for(waiting, 10)
    assert (answered.answer, answered.request) == ("approved", request)


@in_loop
async def test_an_answer_reaches_a_node_whose_connection_was_killed(nodes: Nodes) -> None:
    there, request, waiting = await asked_and_waiting(nodes)
    await nodes.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    await there.approve(await there.find(request))
    assert (await asyncio.wait_for(waiting, 10)).answer == "approved"


@in_loop
async def test_asking_notifies_nobody(nodes: Nodes) -> None:
    heard: list[str] = []
    store, listener = nodes.open(), Database(nodes.url)
    nodes.databases.append(listener)
    listener.listen(ANSWERS, heard.append)
    while listener.is_deaf:
        await asyncio.sleep(0.01)
    request = (await store.ask(question())).request
    await store.approve(await store.find(request))
    assert (await store.ask(question())).answer == "approved"
    while request not in heard:
        await asyncio.sleep(0.01)
    assert [text for text in heard if text] == [request]


@in_loop
async def test_a_killed_connection_opens_no_second_request(nodes: Nodes) -> None:
    store, database = nodes.open(), nodes.databases[0]
    killed: list[object] = []
    done = database.once

    async def once(act: Any) -> Any:
        async def kill_after(connection: Connection) -> Any:
            found = await act(connection)
            if not killed and found in ("opened", "answered", True):
                killed.append(found)
                await nodes.sql(f"SELECT pg_terminate_backend({connection.get_server_pid()})")  # type: ignore[attr-defined]
                await connection.fetchval("SELECT 1")
            return found

        return await done(kill_after)

    database.once = once  # type: ignore[method-assign]
    first = await store.ask(question())
    assert killed == ["opened"]
    assert (first.answer, len(await store.list())) == ("absent", 1)
    killed.clear()
    await store.approve(await store.find(first.request))
    assert killed == ["answered"]
    killed.clear()
    assert (await store.ask(question())).answer == "approved"
    assert killed == [True]


_EVE = {"to": "eve"}
# What an administrator of the database does after an approval.
TAMPERED = {
    "an answer under another id": """UPDATE licet.approval_answers SET id = 'y-1',
        body = convert_to(replace(convert_from(body, 'UTF8'), 'y-', 'y-1'), 'UTF8')""",
    "an answer to another request": """UPDATE licet.approval_answers
        SET request = (SELECT id FROM licet.approval_requests ORDER BY place LIMIT 1)""",
    "an answer by another node": "UPDATE licet.approval_answers SET node = 'ed25519:' || repeat('B', 43)",
    "an answer without a signature": "UPDATE licet.approval_answers SET signature = ''",
    "a request that was changed": """UPDATE licet.approval_requests
        SET body = convert_to(replace(convert_from(body, 'UTF8'), '"quorum":1', '"quorum":0'), 'UTF8')""",
    "a request that is none": "UPDATE licet.approval_requests SET body = '\\x00ff', signature = ''",
    "a column that is empty": """ALTER TABLE licet.approval_answers ALTER node DROP NOT NULL, ALTER body DROP NOT NULL;
        UPDATE licet.approval_answers SET node = NULL, body = NULL, signature = ''""",
    "a column of another type": "ALTER TABLE licet.approval_answers ALTER body TYPE text USING 'none'",
    "other arguments to read": "UPDATE licet.approval_shown SET body = '[\"{}\",[]]'",
    "no arguments to read": "DELETE FROM licet.approval_shown",
    "no requests any more": "DELETE FROM licet.approval_requests",
    "a use that nobody made": "INSERT INTO licet.approval_uses SELECT id, '', 'x' FROM licet.approval_requests",
    "a denial that nobody gave": "UPDATE licet.approval_answers SET denies = true",
}


@pytest.mark.parametrize("case", TAMPERED)
@in_loop
async def test_what_an_administrator_writes_approves_nothing(nodes: Nodes, case: str) -> None:
    store = nodes.open()
    await store.ask(question(arguments=_EVE))
    await agreed(store)
    await nodes.sql(*TAMPERED[case].split(";"))
    for reader in (store, nodes.open()):
        for asked in (question(), question(arguments=_EVE)):
            with suppress(Unavailable):
                assert (await reader.ask(asked)).answer != "approved"
        await reader.list()
        await reader.unbelieved()


@in_loop
async def test_an_approval_counts_before_somebody_tampers_with_it(nodes: Nodes) -> None:
    store = nodes.open()
    await agreed(store)
    assert (await nodes.open().ask(question())).answer == "approved"


@in_loop
async def test_rows_of_a_node_that_is_not_enrolled_are_absent_and_named(nodes: Nodes) -> None:
    store, foreign = nodes.open(), nodes.open(is_enrolled=False)
    request = (await store.ask(question())).request
    theirs = (await foreign.ask(question(session="s-2"))).request
    await foreign.approve(await foreign.find(request))  # it counts for itself alone
    assert (await store.ask(question())).answer == "absent"
    assert (await store.ask(question(session="s-2"))).request != theirs
    assert [one.request.id for one in await store.list() if one.request.id == theirs] == []
    assert sorted(await store.unbelieved()) == sorted([request, theirs])
    with pytest.raises(CannotAnswer, match="was changed after it was asked"):
        await store.find(theirs)


@in_loop
async def test_a_denial_that_was_deleted_restores_no_approval(nodes: Nodes) -> None:
    store = nodes.open()
    request = await agreed(store, "session")
    assert (await store.ask(question("session"))).answer == "approved"
    denied = await store.deny(await store.find(request))
    assert [one.by for one in denied.given] == ["command"]  # it stays listed
    await nodes.sql("DELETE FROM licet.approval_answers WHERE denies")
    assert (await store.ask(question("session"))).answer == "absent"


@in_loop
async def test_the_runtime_role_adds_rows_and_changes_none(nodes: Nodes) -> None:
    import asyncpg

    store = nodes.open()
    await nodes.sql("GRANT licet_runtime TO postgres")
    request = (await store.ask(question())).request
    for statement in (
        "UPDATE licet.approval_requests SET expires = expires + 1",
        "DELETE FROM licet.approval_answers",
        "UPDATE licet.approval_uses SET call = 'mine'",
        "DELETE FROM licet.approval_shown",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await nodes.sql("SET ROLE licet_runtime", statement)
    await nodes.sql(
        "SET ROLE licet_runtime", "SELECT licet.forget_approvals(4102444800000, 'a', 's', 0, -4102444800000)"
    )
    assert await store.find(request)

    # And what nodes do, it may do.
    done = nodes.databases[0].once

    async def as_runtime(act: Any) -> Any:
        async def run(connection: Connection) -> Any:
            await connection.execute("SET ROLE licet_runtime")
            return await act(connection)

        return await done(run)

    nodes.databases[0].once = as_runtime  # type: ignore[method-assign]
    await store.approve(await store.find(request))
    assert (await store.ask(question())).answer == "approved"
    await store.ask(question())
    assert (await store.deny(await store.find((await store.ask(question())).request))).denied


@pytest.mark.parametrize("what", ["used", "denied"])
@in_loop
async def test_the_runtime_role_cannot_bring_back_what_was_used_or_denied(nodes: Nodes, what: str) -> None:
    """Rows can be read and added. So who could also have them deleted would write an approval again, as it was."""
    store, scope = nodes.open(), "call" if what == "used" else "session"
    await agreed(store, scope)
    rows = {
        table: await nodes.sql(f"SELECT json_agg(t) FROM licet.{table} AS t")
        for table in ("approval_requests", "approval_shown", "approval_answers")
    }
    if what == "used":
        assert (await store.ask(question())).answer == "approved"
    else:
        (shown,) = await store.list()
        await store.deny(shown)
    forget = "SELECT licet.forget_approvals(1::bigint << 60, 'a', 's', 0, -(1::bigint << 60))"
    await nodes.sql("SET ROLE licet_runtime", forget)
    for table, found in rows.items():
        into = f"INSERT INTO licet.{table} OVERRIDING SYSTEM VALUE"
        with suppress(Exception):  # they are still there
            await nodes.sql(
                f"{into} SELECT * FROM json_populate_recordset(NULL::licet.{table}, $${found}$$)", "SELECT 1"
            )
    assert (await store.ask(question(scope))).answer != "approved"


@in_loop
async def test_the_end_of_a_session_closes_its_requests(nodes: Nodes) -> None:
    store = nodes.open()
    request = await agreed(store, "session")
    waiting = (await store.ask(question())).request
    elsewhere = (await store.ask(question(session="s-2"))).request
    await nodes.open().end_session("clerk", "s-1")
    states = {kept.request.id: kept.denied for kept in await store.list()}
    assert states == {request: "session ended", waiting: "session ended", elsewhere: ""}


@in_loop
async def test_a_question_that_was_answered_by_one_key_of_two_waits(nodes: Nodes) -> None:
    keys, store = [generated_key(), generated_key()], nodes.open()
    names = tuple(key.public for key in keys)
    asked = question(quorum=2, keys=names)
    request = (await store.ask(asked)).request
    for number, key in enumerate(keys):
        answered: Answered = await nodes.open().ask(asked)
        assert f"{number} of 2 signatures" in answered.note
        await store.approve(await store.find(request), key)
    # The signatures of people are checked too, not only those of nodes.
    assert sorted((await store.ask(asked)).by) == sorted(names)
