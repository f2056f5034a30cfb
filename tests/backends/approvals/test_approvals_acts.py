"""Requests for a call together with its known deletes: what an approval covers, and how often."""

import asyncio
import json
import time

import pytest

from backends.approvals.conftest import Opened
from guard.questions import question
from licet.core.decision.approval import request_from
from licet.guard.ports import Answered, Question

ACT, OTHER = "fs:delete:/srv/a", "fs:delete:/srv/b"


class Desk:
    """A store, and a person who approves every waiting request."""

    def __init__(self, opened: Opened) -> None:
        self.store = opened(time.time)

    def ask(self, asked: Question) -> Answered:
        return asyncio.run(self.store.ask(asked))

    def approve(self, asked: Question) -> str:
        request = self.ask(asked).request
        asyncio.run(self._approve(request))
        return request

    async def _approve(self, request: str) -> None:
        await self.store.approve(await self.store.find(request))


@pytest.mark.parametrize("scope", ["call", "use", "session"])
def test_one_yes_is_for_the_call_and_its_acts(opened: Opened, scope: str) -> None:
    desk, asked = Desk(opened), question(scope, acts=(ACT,))
    request = desk.approve(asked)
    answered = desk.ask(asked)
    assert (answered.answer, answered.request, answered.first_only) == ("approved", request, False)


def test_a_yes_for_a_session_lasts_and_that_for_its_act_does_not(opened: Opened) -> None:
    desk, asked = Desk(opened), question("session", acts=(ACT,))
    desk.approve(asked)
    assert not desk.ask(asked).first_only
    assert desk.ask(asked).first_only  # the same act again
    assert desk.ask(question("session", {"to": "bob"}, acts=(OTHER,))).first_only
    assert not desk.ask(question("session")).first_only


def test_a_yes_is_for_no_act_that_was_not_shown(opened: Opened) -> None:
    desk = Desk(opened)
    desk.approve(question("session"))
    assert desk.ask(question("session", acts=(ACT,))).first_only
    desk.approve(question("session", {"to": "bob"}, session="s-2", acts=(ACT,)))
    assert desk.ask(question("session", {"to": "eve"}, session="s-2", acts=(ACT,))).first_only  # of another call


def test_a_no_to_one_act_is_no_answer_about_another(opened: Opened) -> None:
    desk, asked = Desk(opened), question("session", acts=(ACT,))
    request = desk.ask(asked).request

    async def deny() -> None:
        await desk.store.deny(await desk.store.find(request))

    asyncio.run(deny())
    assert desk.ask(asked).answer == "denied"
    assert desk.ask(question("session", {"to": "bob"}, acts=(OTHER,))).answer == "absent"


def test_a_request_of_an_earlier_version_reads_as_it_was_signed(opened: Opened) -> None:
    desk = Desk(opened)
    request = desk.ask(question(why="")).request
    text = asyncio.run(desk.store.find(request)).request.text()
    assert json.loads(text).keys().isdisjoint({"acts", "why"})
    assert request_from(json.loads(text)).text() == text
    with pytest.raises(ValueError, match="other fields"):
        request_from({**json.loads(text), "more": 1})
