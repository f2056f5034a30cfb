"""What every store of approvals does: requests are shared, expire, stay few, and answers count once."""

import asyncio
from typing import Any

import pytest

from backends.approvals.conftest import Opened
from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer
from licet.backends.limits import MOST_EXPIRED, MOST_UNANSWERED
from licet.guard.ports import Answered

DAY = 24 * 3600


class Store:
    """A store with a clock of its own."""

    def __init__(self, opened: Opened) -> None:
        self.time = 1_000_000.0
        self.approvals = opened(lambda: self.time)

    def get(self, *words: Any, **changes: Any) -> Answered:
        return asyncio.run(self.approvals.ask(question(*words, **changes)))

    def agree(self, request: str) -> None:
        asyncio.run(self.approvals.approve(asyncio.run(self.approvals.find(request))))

    def refuse(self, request: str) -> None:
        asyncio.run(self.approvals.deny(asyncio.run(self.approvals.find(request))))


@pytest.fixture
def store(opened: Opened) -> Store:
    return Store(opened)


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
    assert len(asyncio.run(store.approvals.list())) == MOST_UNANSWERED
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
    kept = {
        one.request.id: (one.arguments, one.state(store.approvals.now())) for one in asyncio.run(store.approvals.list())
    }
    assert [kept[name] for name in (silent, agreed, denied, used)] == [
        (None, "expired"),
        ({"number": 1}, "expired"),
        ({"number": 2}, "denied"),
        ({"number": 3}, "used"),
    ]
    with pytest.raises(CannotAnswer, match="is expired"):
        store.agree(silent)
    assert store.get(arguments={"number": 0}).answer == "expired"  # the request is still reported


def test_expired_unanswered_requests_are_limited(store: Store) -> None:
    answered = store.get(arguments={"answered": True}).request
    store.agree(answered)
    store.get(arguments={"other": True}, session="s-2")
    made = []
    for number in range(MOST_EXPIRED + 20):
        store.time += 300
        made.append(store.get(arguments={"number": number}).request)
    kept = asyncio.run(store.approvals.list())
    assert [one.request.id for one in kept if one.request.session == "s-1"] == [answered, *made[19:]]
    assert [one.request.id for one in kept if one.arguments is not None] == [answered, made[-1]]
    assert [one.request.session for one in kept].count("s-2") == 1  # another session keeps its requests


def test_old_finished_requests_are_deleted_with_their_answers(store: Store) -> None:
    store.agree(store.get().request)
    store.time += 300 + 7 * DAY - 1
    store.get(arguments={"later": 1})
    assert len(asyncio.run(store.approvals.list())) == 2
    store.time += 1
    store.get(arguments={"later": 2})
    assert len(asyncio.run(store.approvals.list())) == 2


def test_of_two_answers_at_once_the_later_sees_the_earlier(store: Store) -> None:
    """One person denies a request after another has read it, and before that one approves it."""
    shown = asyncio.run(store.approvals.find(store.get().request))
    asyncio.run(store.approvals.deny(shown))
    with pytest.raises(CannotAnswer, match="is denied"):
        asyncio.run(store.approvals.approve(shown))
    assert store.get().answer == "denied"
