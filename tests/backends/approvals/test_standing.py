"""Standing approvals of deletes: the same rules for the memory twin and for the store with its ledger."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from licet.backends.approvals.requests import CannotAnswer
from licet.backends.approvals.standing import LocalStanding, MemoryStanding
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.ledger.reader import verify_ledger
from licet.backends.secrets import generated_key
from licet.core.policy.terms import Approvals, StandingApproval
from licet.guard.ports import NotStanding

DAY = 86_400.0
POLICY, OTHER = "sha256:policy", "sha256:other"
RULES = ("fs:delete:/srv/log", "fs:delete:/srv/work")
FREE = Approvals("manifest", delete="manifest")


class Desk:
    """Some standing approvals, with a clock and a machine that tests change."""

    def __init__(self, kind: str, place: Path) -> None:
        self.now, self.machine, self.place = 1_800_000_000.0, "one", place
        self.store = SqliteApprovals(place / "approvals.sqlite", lambda: self.now)
        self.standing: Any = (
            MemoryStanding(lambda: self.now, machine=lambda: self.machine)
            if kind == "memory"
            else LocalStanding(self.store, place / "ledger.sqlite", lambda: self.machine)
        )

    def give(self, days: int = 30, terms: Approvals = FREE, manifest: str = POLICY) -> Any:
        return asyncio.run(self.standing.give(manifest, "clerk", "/srv", RULES, terms, days))

    def withdraw(self, kept: Any) -> Any:
        return asyncio.run(self.standing.withdraw(kept))

    def find(self, name: str | None = None, manifest: str = POLICY, terms: Approvals = FREE) -> StandingApproval:
        found: StandingApproval = self.standing.find(name, manifest, terms)
        return found


@pytest.fixture(params=["memory", "file"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(request.param, tmp_path)


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
