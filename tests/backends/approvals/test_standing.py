"""Standing approvals of deletes: the same rules for the memory twin and for the store with its ledger."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from licet.backends.approvals.requests import ApprovalStore, CannotAnswer
from licet.backends.approvals.standing import LocalStanding, MemoryStanding
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.ledger.reader import verify_ledger
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_approvals import PostgresApprovals, PostgresStanding
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import generated_key
from licet.core.policy.terms import Approvals, StandingApproval
from licet.guard.ports import NotStanding
from postgres_server import server

DAY = 86_400.0
POLICY, OTHER = "sha256:policy", "sha256:other"
RULES = ("fs:delete:/srv/log", "fs:delete:/srv/work")
FREE = Approvals("manifest", delete="manifest")


class Desk:
    """Some standing approvals, with a clock and a machine that tests change."""

    def __init__(self, kind: str, place: Path) -> None:
        """Of a kind, or at the address of a database."""
        self.nodes: list[PostgresApprovals] = []
        self.ledgers: list[PostgresLedger] = []
        self.databases: list[Database] = []
        self.now, self.machine, self.place = 1_800_000_000.0, "one", place
        self.store: ApprovalStore
        self.standing: Any
        if kind == "memory":
            self.standing = MemoryStanding(lambda: self.now, machine=lambda: self.machine)
        elif kind == "file":
            self.store = store = SqliteApprovals(place / "approvals.sqlite", lambda: self.now)
            self.standing = LocalStanding(store, place / "ledger.sqlite", lambda: self.machine)
        else:
            self.url = kind
            self.standing = self.of_node("node", kind)
            self.store = self.nodes[0]

    def of_node(self, name: str, url: str) -> PostgresStanding:
        """The standing approvals of one more node; the first one has the key of the ledger."""
        self.databases.append(database := Database(url))
        node = Node.of(self.place / name)
        ledger = PostgresLedger(
            database, node, self.place / name, lambda: datetime.fromtimestamp(self.now, UTC), sequences=False
        )
        self.ledgers.append(ledger)
        store = PostgresApprovals(database, node, ledger.enrolled.check, lambda: self.now)
        self.nodes.append(store)
        return PostgresStanding(store, ledger, database, node, lambda: self.machine)

    def close(self) -> None:
        for ledger in self.ledgers:
            ledger.close()
        for database in self.databases:
            database.close()

    def give(self, days: int = 30, terms: Approvals = FREE, manifest: str = POLICY) -> Any:
        return asyncio.run(self.standing.give(manifest, "clerk", "/srv", RULES, terms, days))

    def withdraw(self, kept: Any) -> Any:
        return asyncio.run(self.standing.withdraw(kept))

    def find(self, name: str | None = None, manifest: str = POLICY, terms: Approvals = FREE) -> StandingApproval:
        found: StandingApproval = self.standing.find(name, manifest, terms)
        return found


@pytest.fixture(params=["memory", "file", "postgres"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    kind = request.param
    there = Desk(request.getfixturevalue("postgres") if kind == "postgres" else kind, tmp_path)
    yield there
    there.close()


@pytest.fixture
def team(postgres: str, tmp_path: Path) -> Iterator[Desk]:
    there = Desk(postgres, tmp_path)
    yield there
    there.close()


@pytest.fixture
def file(tmp_path: Path) -> Desk:
    return Desk("file", tmp_path)


def test_what_was_given_is_found_by_its_id_and_by_its_policy(desk: Desk) -> None:
    kept = desk.give(7)
    found = desk.find(kept.request.id)
    assert found == desk.find()
    until = int((desk.now + 7 * DAY) * 1000)
    assert found == StandingApproval(kept.request.id, POLICY, ("terminal",), RULES, until)
    assert desk.standing.stands(found)


def test_the_one_that_lasts_longest_counts(desk: Desk) -> None:
    desk.give(2)
    longest = desk.give(9)
    desk.give(5)
    assert desk.find().id == longest.request.id


def _later(seconds: float) -> Callable[[Desk, Any], None]:
    def act(desk: Desk, kept: Any) -> None:
        desk.now += seconds

    return act


def _machine(desk: Desk, kept: Any) -> None:
    desk.machine = "two"


ENDS: dict[str, tuple[Callable[[Desk, Any], object], str, bool]] = {
    "its time": (_later(30 * DAY), "ended at", False),
    "a clock that was turned back": (_later(-DAY), "begins in the future", False),
    "a withdrawal": (lambda desk, kept: desk.withdraw(kept), "was withdrawn", False),
    "another machine": (_machine, "was given on another machine", True),
}


@pytest.mark.parametrize("end", ENDS)
def test_it_ends(desk: Desk, end: str) -> None:
    act, why, stands = ENDS[end]
    found = desk.find((kept := desk.give()).request.id)
    act(desk, kept)
    with pytest.raises(NotStanding, match=why):
        desk.find(kept.request.id)
    with pytest.raises(NotStanding, match=why):
        desk.find()
    # Each delete asks for its end alone: a process does not change the machine that it runs on.
    assert desk.standing.stands(found) is stands


def test_it_counts_for_one_policy(desk: Desk) -> None:
    kept = desk.give()
    for name in (None, kept.request.id):
        with pytest.raises(NotStanding, match="was given for another policy, or for this one before it was changed"):
            desk.find(name, OTHER)


def test_nobody_has_given_one(desk: Desk) -> None:
    with pytest.raises(NotStanding, match="nobody has given a standing approval"):
        desk.find()
    with pytest.raises(NotStanding, match="there is no standing approval `a-1` here"):
        desk.find("a-1")


@pytest.mark.parametrize("days", [0, 31, -1])
def test_it_ends_after_thirty_days_at_most(desk: Desk, days: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 30 days"):
        desk.give(days)


def test_it_is_withdrawn_once(desk: Desk) -> None:
    gone = desk.withdraw(desk.give())
    with pytest.raises(CannotAnswer, match="withdrawn already"):
        desk.withdraw(gone)


def test_a_policy_with_keys_needs_their_signatures(desk: Desk) -> None:
    keys = generated_key(), generated_key(), generated_key()
    signed = Approvals("manifest", delete="manifest", quorum=2, keys=tuple(key.public for key in keys[:2]))
    kept = desk.give(terms=signed)
    with pytest.raises(NotStanding, match="has 0 of 2 signatures"):
        desk.find(terms=signed)
    # Neither does one count that was given before the policy had keys.
    desk.give()
    with pytest.raises(NotStanding, match="of 2 signatures"):
        desk.find(terms=signed)
    assert kept.keys == signed.keys


def test_signatures_are_checked_again_at_each_start(file: Desk) -> None:
    keys = generated_key(), generated_key()
    signed = Approvals("manifest", delete="manifest", quorum=2, keys=tuple(key.public for key in keys))
    kept = file.give(terms=signed)

    async def sign(key: Any) -> None:
        agreed = await file.store.approve(await file.store.find(kept.request.id), key)
        await file.standing.confirm(agreed)

    asyncio.run(sign(keys[0]))
    with pytest.raises(NotStanding, match="has 1 of 2 signatures"):
        file.find(terms=signed)
    with pytest.raises(CannotAnswer, match="not among"):
        asyncio.run(sign(generated_key()))
    asyncio.run(sign(keys[1]))
    assert sorted(file.find(terms=signed).by) == sorted(key.public for key in keys)
    asyncio.run(sign(keys[1]))  # again: there is one entry
    assert verify_ledger(file.place / "ledger.sqlite", _public(file)).ok
    with sqlite3.connect(file.place / "approvals.sqlite") as db:
        db.execute("UPDATE answers SET signature = ? WHERE signer = ?", (b"x" * 64, keys[0].public))
    db.close()
    with pytest.raises(NotStanding, match="has 1 of 2 signatures"):
        file.find(terms=signed)


def _public(desk: Desk) -> str:
    return (desk.place / "ledger.pub").read_text().strip()


def test_nobody_approves_it_without_a_key_outside_of_trust(file: Desk) -> None:
    kept = file.give()
    with pytest.raises(CannotAnswer, match="a person gives it at a terminal in `licet trust`"):
        asyncio.run(file.store.approve(kept))


def test_it_and_its_withdrawal_are_entries_of_the_ledger(file: Desk) -> None:
    file.withdraw(kept := file.give())
    with sqlite3.connect(file.place / "ledger.sqlite") as db:
        entries = [json.loads(body) for (body,) in db.execute("SELECT body FROM entries ORDER BY number")]
    db.close()
    assert [(entry["kind"], entry["id"], entry["verdict"]) for entry in entries] == [
        ("approval", kept.request.id, "allow"),
        ("withdrawal", kept.request.id, "deny"),
    ]
    assert entries[0]["standing"]["deletes"] == [*RULES]
    assert verify_ledger(file.place / "ledger.sqlite", _public(file)).ok


# One of the two files was changed, by somebody who can write it -> why the approval does not count.
FORGED = {
    "a denial that was removed": (
        True,
        "approvals.sqlite",
        "UPDATE requests SET denied = ''",
        "was withdrawn",
    ),
    "a longer time": (
        False,
        "approvals.sqlite",
        "UPDATE requests SET body = replace(body, '\"expires\":18', '\"expires\":19')",
        "lasts longer than 30 days",
    ),
    "another path": (
        False,
        "approvals.sqlite",
        "UPDATE requests SET body = replace(body, '/srv/work', '/')",
        "the ledger has no entry about",
    ),
    "no ledger entry": (False, "ledger.sqlite", "DELETE FROM entries", "the ledger has no entry about"),
    "an edited entry": (False, "ledger.sqlite", "UPDATE entries SET body = x'7b7d'", "cannot be read: .* was changed"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_approval_does_not_count(file: Desk, case: str) -> None:
    withdrawn, name, statement, why = FORGED[case]
    kept = file.give()
    if withdrawn:
        file.withdraw(kept)
    else:
        file.find()
    file.store.close()
    with sqlite3.connect(file.place / name) as db:
        db.execute(statement)
    db.close()
    with pytest.raises(NotStanding, match=why):
        file.find()


@pytest.mark.parametrize("later", [0, 2], ids=["the last entry", "one in between"])
def test_a_withdrawal_that_was_removed_from_both_files_restores_nothing(file: Desk, later: int) -> None:
    file.withdraw(file.give())
    for _ in range(later):
        file.give(manifest=OTHER)
    file.store.close()
    for name, statement in (
        ("approvals.sqlite", "UPDATE requests SET denied = ''"),
        ("ledger.sqlite", "DELETE FROM entries WHERE kind = 'withdrawal'"),
    ):
        with sqlite3.connect(file.place / name) as db:
            db.execute(statement)
        db.close()
    with pytest.raises(NotStanding, match="was changed: entries are missing"):
        file.find()


def test_a_clock_turned_back_does_not_lengthen_it(file: Desk) -> None:
    kept = file.give(1)
    file.now += 2 * DAY
    file.give(1)  # any entry in the ledger tells that it was later once
    file.now -= 2 * DAY
    with pytest.raises(NotStanding, match=f"{kept.request.id} ended at"):
        file.find(kept.request.id)


def test_finding_none_makes_no_files(file: Desk) -> None:
    with pytest.raises(NotStanding):
        file.find()
    assert [*file.place.iterdir()] == []


# Several nodes -------------------------------------------------------------------------------------------------------


def sql(team: Desk, *statements: str) -> Any:
    name = urlsplit(team.databases[0].address.dsn).path.removeprefix("/")
    return asyncio.run(server().sql(*statements, database=name))


def other_node(team: Desk) -> PostgresStanding:
    """A second node of the state."""
    other, public = team.of_node("other", team.url), Node.of(team.place / "other").public
    asyncio.run(team.ledgers[0].enrol(public))
    while not asyncio.run(
        team.ledgers[0].enrolled.check(public)
    ):  # it looks for nodes that it does not know now and then
        time.sleep(0.05)
    return other


def test_what_was_given_on_one_node_counts_on_no_other(team: Desk) -> None:
    kept, other = team.give(), other_node(team)
    assert team.find().id == kept.request.id
    with pytest.raises(NotStanding, match="was given on another machine"):  # although it names itself the same
        other.find(None, POLICY, FREE)


def test_a_withdrawal_on_one_node_reaches_the_others_at_once(team: Desk) -> None:
    kept, other = team.give(), other_node(team)
    found = team.find()
    assert team.standing.stands(found)
    while team.databases[0].is_deaf:
        time.sleep(0.01)
    asyncio.run(other.withdraw(kept))
    began = time.monotonic()
    while team.standing.stands(found):
        time.sleep(0.001)
    assert time.monotonic() - began < 1  # without news it would take longer: facts are used for two seconds
    with pytest.raises(NotStanding, match="was withdrawn"):
        team.find()


def test_a_look_at_each_delete_asks_the_database_seldom(team: Desk) -> None:
    team.give()
    found = team.find()
    began, looks = time.monotonic(), 20_000
    assert all(team.standing.stands(found) for _ in range(looks))
    assert (time.monotonic() - began) / looks < 0.0002


# What an administrator of the database does -> why an approval does not count.
CHANGED = {
    "a withdrawal was deleted": (True, "DELETE FROM licet.approval_answers WHERE denies", "was withdrawn|of 1 sign"),
    "its entry too": (True, "DELETE FROM licet.entries WHERE kind = 'withdrawal'", "entries are missing"),
    "and its place": (
        True,
        """WITH gone AS (DELETE FROM licet.entries WHERE kind = 'withdrawal' RETURNING sequence)
        DELETE FROM licet.places WHERE sequence = (SELECT sequence FROM gone) AND session = 'standing approvals'""",
        "entries are missing|cannot be read",
    ),
    "the entry was deleted": (False, "DELETE FROM licet.entries WHERE kind = 'approval'", "entries are missing"),
    "the entry was changed": (False, "UPDATE licet.entries SET body = 'x' WHERE kind = 'approval'", "cannot be read"),
    "its batch was signed by nobody": (False, "UPDATE licet.batches SET signature = ''", "cannot be read"),
    "its request was changed": (
        False,
        """UPDATE licet.approval_requests
        SET body = convert_to(replace(convert_from(body, 'UTF8'), '/srv/work', '/'), 'UTF8')""",
        "nobody has given",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_an_administrator_changes_gives_no_standing_approval(team: Desk, case: str) -> None:
    is_withdrawn, statement, why = CHANGED[case]
    kept = team.give()
    if is_withdrawn:
        team.withdraw(kept)
    asyncio.run(team.ledgers[0].sequencer.place_now())
    sql(team, statement)
    again = team.of_node("node", team.url)  # another process of this node, which has seen nothing before
    with pytest.raises(NotStanding, match=why):
        again.find(None, POLICY, FREE)
