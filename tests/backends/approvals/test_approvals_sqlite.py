"""The file of approvals: it survives, stays small, and detects changes."""

import asyncio
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.limits import MOST_EXPIRED, MOST_UNANSWERED
from licet.guard.ports import Answered, Unavailable

DAY = 24 * 3600


class Store(SqliteApprovals):
    """A store with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.time = 1_000_000.0
        super().__init__(folder / "state" / "approvals.sqlite", lambda: self.time)

    def get(self, *words: Any, **changes: Any) -> Answered:
        return asyncio.run(self.ask(question(*words, **changes)))

    def agree(self, request: str) -> None:
        asyncio.run(self.approve(asyncio.run(self.find(request))))

    def refuse(self, request: str) -> None:
        asyncio.run(self.deny(asyncio.run(self.find(request))))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_the_file_is_for_its_owner_alone(store: Store, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store.get()
    finally:
        os.umask(old)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()} == {0o600}
    store.close()


def test_acknowledged_writes_survive_a_power_cut(store: Store) -> None:
    store.get()
    level = asyncio.run(store._file.read(lambda db: db.execute("PRAGMA synchronous").fetchone()[0]))
    assert level == 2  # FULL


def test_calls_that_ask_the_same_share_one_request(store: Store) -> None:
    assert len({store.get().request for _ in range(3)}) == 1
    assert len({store.get("session", {"text": text}).request for text in "abc"}) == 1


def test_an_expired_request_is_reported_once_and_replaced(store: Store) -> None:
    first = store.get()
    store.time += 300
    second = store.get()
    assert (second.answer, second.request != first.request) == ("expired", True)
    assert second.request in second.fix
    third = store.get()
    assert (third.answer, third.request) == ("absent", second.request)
    store.agree(second.request)
    assert store.get().answer == "approved"
    assert store.get().answer == "absent"  # the expired one has been reported


def test_a_yes_that_came_and_was_not_used_in_time_is_expired(store: Store) -> None:
    store.agree(store.get().request)
    store.time += 300
    assert store.get().answer == "expired"


def test_a_no_lapses_with_its_request_and_does_not_count_as_late(store: Store) -> None:
    store.refuse(store.get().request)
    store.time += 299
    assert store.get().answer == "denied"
    store.time += 1
    assert store.get().answer == "absent"


def test_a_yes_can_be_taken_back_before_it_is_used(store: Store) -> None:
    for scope in ("call", "session"):
        request = store.get(scope).request
        store.agree(request)
        if scope == "session":
            assert store.get(scope).answer == "approved"
        store.refuse(request)
        assert store.get(scope).answer == "denied"


def test_a_model_cannot_fill_the_list(store: Store) -> None:
    for number in range(MOST_UNANSWERED):
        assert store.get(arguments={"number": number}).request
    refused = store.get(arguments={"number": -1})
    assert (refused.answer, refused.request, refused.fix) == ("absent", "", "")
    assert "answer those first" in refused.note
    assert len(asyncio.run(store.list())) == MOST_UNANSWERED
    assert store.get(arguments={"number": -1}, session="s-2").request  # another session is not blocked
    assert store.get(arguments={"number": 0}).request  # and waiting requests can still be found
    store.time += 300
    assert store.get(arguments={"number": -1}).request


def test_expired_unanswered_requests_are_kept_without_their_arguments(store: Store) -> None:
    silent, agreed, denied, used = (store.get(arguments={"number": number}).request for number in range(4))
    store.agree(agreed)
    store.refuse(denied)
    store.agree(used)
    assert store.get(arguments={"number": 3}).answer == "approved"
    store.time += 300
    store.get(arguments={"later": 1}, session="s-2")  # the next question deletes the arguments
    kept = {one.request.id: (one.arguments, one.state(store.now())) for one in asyncio.run(store.list())}
    assert [kept[name] for name in (silent, agreed, denied, used)] == [
        (None, "expired"),
        ({"number": 1}, "expired"),
        ({"number": 2}, "denied"),
        ({"number": 3}, "used"),
    ]
    with pytest.raises(CannotAnswer, match="is expired"):
        store.agree(silent)
    assert store.get(arguments={"number": 0}).answer == "expired"  # the request is still reported


def test_without_its_arguments_a_request_that_has_not_expired_cannot_be_answered(store: Store) -> None:
    request = store.get().request
    asyncio.run(store._file.write(lambda db: db.execute("UPDATE requests SET arguments = ''").rowcount))
    with pytest.raises(CannotAnswer, match="was changed after it was asked"):
        store.agree(request)
    assert asyncio.run(store.list()) == []


def test_expired_unanswered_requests_are_limited(store: Store) -> None:
    answered = store.get(arguments={"answered": True}).request
    store.agree(answered)
    store.get(arguments={"other": True}, session="s-2")
    made = []
    for number in range(MOST_EXPIRED + 20):
        store.time += 300
        made.append(store.get(arguments={"number": number}).request)
    kept = asyncio.run(store.list())
    assert [one.request.id for one in kept if one.request.session == "s-1"] == [answered, *made[19:]]
    assert [one.request.id for one in kept if one.arguments is not None] == [answered, made[-1]]
    assert [one.request.session for one in kept].count("s-2") == 1  # another session keeps its requests


def test_old_finished_requests_are_deleted_with_their_answers(store: Store) -> None:
    store.agree(store.get().request)
    store.time += 300 + 7 * DAY - 1
    store.get(arguments={"later": 1})
    assert len(asyncio.run(store.list())) == 2
    store.time += 1
    store.get(arguments={"later": 2})
    assert len(asyncio.run(store.list())) == 2
    counted = asyncio.run(store._file.read(lambda db: db.execute("SELECT count(*) FROM answers").fetchone()[0]))
    assert counted == 0


def test_of_two_answers_at_once_the_later_sees_the_earlier(store: Store) -> None:
    """One person denies a request after another has read it, and before that one approves it."""
    shown = asyncio.run(store.find(store.get().request))
    asyncio.run(store.deny(shown))
    with pytest.raises(CannotAnswer, match="is denied"):
        asyncio.run(store.approve(shown))
    assert store.get().answer == "denied"


def newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    path.chmod(0o600)


@pytest.mark.parametrize(("trouble", "said"), [(newer, "newer licet \\(format 9\\)"), (foreign, "another program")])
def test_a_file_that_cannot_be_trusted_is_a_clear_error(store: Store, tmp_path: Path, trouble: Any, said: str) -> None:
    store.get()
    store.close()
    trouble(tmp_path / "state" / "approvals.sqlite")
    with pytest.raises(Unavailable, match=said):
        store.get()
