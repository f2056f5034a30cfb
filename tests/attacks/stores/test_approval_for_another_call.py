"""A yes to one call is used for another: another session, agent, tool, manifest, directory, or other arguments."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from guard.questions import SPEC, question
from licet import Capability
from licet.backends.approvals.store import SqliteApprovals
from licet.ports import Question

WIDER = (Capability("network:*:*"),)
OTHERS: dict[str, dict[str, Any]] = {
    "another session": {"session": "s-2"},
    "a session of a similar name": {"session": "s-1/x"},
    "another agent": {"agent": "thief"},
    "a delegate": {"agent": "clerk>helper"},
    "another tool": {"tool": "transfer"},
    "another definition of the tool": {"spec": replace(SPEC, description="Pay everything.")},
    "another manifest": {"manifest": "sha256:" + "1" * 64},
    "more at stake": {"stakes": WIDER},
    "another directory": {"workdir": "/home"},
    "a stronger class": {"effect": "destructive"},
}
CALLS: dict[str, dict[str, Any]] = {
    "another recipient": {"to": "mallory", "amount": 5},
    "another amount": {"to": "alice", "amount": 500},
    "a number as text": {"to": "alice", "amount": "5"},
    "one argument more": {"to": "alice", "amount": 5, "note": ""},
    "one argument less": {"to": "alice"},
    "values exchanged": {"to": 5, "amount": "alice"},
}


def test_a_store_that_knows_only_the_tool_lets_everything_pass() -> None:
    approved = {question().approval.tool}
    assert question(arguments=CALLS["another recipient"], session="s-2").approval.tool in approved


def answer(store: SqliteApprovals, asked: Question) -> str:
    return asyncio.run(store.ask(asked)).answer


def approved(folder: Path, asked: Question, **how: Any) -> SqliteApprovals:
    """A store in which the question was asked and answered with yes."""
    store = SqliteApprovals(folder / "approvals.sqlite")
    request = asyncio.run(store.ask(asked)).request
    asyncio.run(store.approve(asyncio.run(store.find(request)), **how))
    return store


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("scope", ["call", "session", "use"])
def test_a_yes_reaches_nothing_that_was_not_asked(tmp_path: Path, scope: str, other: dict[str, Any]) -> None:
    store = approved(tmp_path, question(scope))
    assert answer(store, question(scope, **other)) == "absent"
    assert answer(store, question(scope)) == "approved"


@pytest.mark.parametrize("arguments", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("scope", ["call", "use"])
def test_a_yes_to_a_call_is_for_its_exact_arguments(tmp_path: Path, scope: str, arguments: dict[str, Any]) -> None:
    store = approved(tmp_path, question(scope))
    assert answer(store, question(scope, arguments)) == "absent"
    assert answer(store, question(scope)) == "approved"


@pytest.mark.parametrize("arguments", CALLS.values(), ids=CALLS)
def test_a_yes_to_a_session_can_be_narrowed_to_these_arguments(tmp_path: Path, arguments: dict[str, Any]) -> None:
    store = approved(tmp_path / "wide", question("session"))
    assert answer(store, question("session", arguments)) == "approved"
    store = approved(tmp_path / "narrow", question("session"), only_these_arguments=True)
    assert answer(store, question("session", arguments)) == "absent"
    assert [answer(store, question("session")) for _ in range(3)] == ["approved"] * 3


def test_a_yes_to_a_call_is_none_to_the_session_or_to_an_act_in_it(tmp_path: Path) -> None:
    scopes = ("call", "session", "use")
    for given in scopes:
        store = approved(tmp_path / given, question(given))
        assert {scope: answer(store, question(scope)) for scope in scopes} == {
            scope: "approved" if scope == given else "absent" for scope in scopes
        }


def test_what_is_shown_is_what_is_asked_about(tmp_path: Path) -> None:
    store = SqliteApprovals(tmp_path / "approvals.sqlite")
    with pytest.raises(ValueError, match="not those that are asked about"):
        asyncio.run(store.ask(replace(question(), arguments={"to": "alice", "amount": 1})))
    assert asyncio.run(store.list()) == []
