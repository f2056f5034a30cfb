"""An approval is forged: signed by nobody, by a stranger, twice by one person; or widened after it was signed."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.secrets import SigningKey, make_key
from licet.core.decision.approval import ApprovalRequest
from licet.core.values import key_bytes
from licet.ports import Question

Forge = Callable[["Scene"], None]


class Scene:
    """Two keys that the manifest lists, one that it does not, and a request that wants two signatures."""

    def __init__(self, folder: Path, scope: str) -> None:
        self.one, self.two, self.stranger = (make_key(folder / f"{name}.key") for name in ("one", "two", "stranger"))
        self.time = 1_000_000.0
        self.path = folder / "approvals.sqlite"
        self.store = SqliteApprovals(self.path, lambda: self.time)
        self.scope = scope
        self.id = asyncio.run(self.store.ask(self.question())).request

    def question(self, **changes: Any) -> Question:
        return question(self.scope, **{"quorum": 2, "keys": (self.one.public, self.two.public), **changes})

    def ask(self, **changes: Any) -> str:
        return asyncio.run(self.store.ask(self.question(**changes))).answer

    def approve(self, key: SigningKey | None, **how: Any) -> None:
        asyncio.run(self.store.approve(asyncio.run(self.store.find(self.id)), key, **how))

    @property
    def request(self) -> ApprovalRequest:
        return asyncio.run(self.store.find(self.id)).request

    def write(self, statement: str, *values: object) -> None:
        """Change the file behind the store's back."""
        self.store.close()
        with sqlite3.connect(self.path) as db:
            db.execute(statement, values)
        db.close()

    def answer(self, signer: str, signature: bytes, narrow: int = 0) -> None:
        self.write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, 0)", self.id, signer, narrow, signature)

    def change(self, **fields: Any) -> None:
        """Change what is stored of the request, wherever it stands."""
        body = {**json.loads(self.request.text()), **fields}
        self.write("UPDATE requests SET body = ? WHERE id = ?", json.dumps(body), self.id)
        for name in fields.keys() & {"asked", "expires", "session", "tool", "agent"}:
            self.write(f"UPDATE requests SET {name} = ? WHERE id = ?", fields[name], self.id)


@pytest.fixture(params=["call", "session", "use"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path, request.param)


def test_counting_strings_would_take_one_person_for_two(scene: Scene) -> None:
    answers = [scene.one.public, scene.one.public + "="]
    assert len(set(answers)) == 2
    assert key_bytes(answers[0]) == key_bytes(answers[1])


def test_two_distinct_keys_of_the_manifest_are_enough(scene: Scene) -> None:
    scene.approve(scene.one)
    assert scene.ask() == "absent"
    scene.approve(scene.two)
    assert scene.ask() == "approved"


def test_who_signed_is_told(scene: Scene) -> None:
    scene.approve(scene.one)
    scene.approve(scene.two)
    assert asyncio.run(scene.store.ask(scene.question())).by == tuple(sorted((scene.one.public, scene.two.public)))


def test_signatures_for_these_arguments_alone_count_for_them_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "session")
    scene.approve(scene.one)
    scene.approve(scene.two, only_these_arguments=True)
    assert scene.ask() == "approved"
    assert scene.ask(arguments={"to": "mallory"}) == "absent"
    narrow = scene.two.sign(scene.request.statement(only_these_arguments=True))
    scene.answer(scene.two.public, narrow)  # made wide again
    assert scene.ask(arguments={"to": "mallory"}) == "absent"


def test_a_quorum_without_keys_is_met_by_nobody(scene: Scene) -> None:
    other: dict[str, Any] = {"keys": None, "manifest": "sha256:" + "2" * 64}
    scene.id = asyncio.run(scene.store.ask(scene.question(**other))).request
    for key in (scene.one, scene.two):
        with pytest.raises(CannotAnswer, match="lists no keys"):
            scene.approve(key)
        scene.answer(key.public, key.sign(scene.request.statement()))
    scene.answer("command", b"")
    assert scene.ask(**other) == "absent"


def other_spelling(name: str) -> str:
    key = key_bytes(name)
    assert key is not None
    return "ed25519:" + base64.b64encode(key).decode()  # the other alphabet, with its padding


def list_the_stranger(at: Scene) -> None:
    at.write("UPDATE requests SET keys = ?", json.dumps([at.one.public, at.stranger.public]))
    at.answer(at.stranger.public, at.stranger.sign(at.request.statement()))


FORGERIES: dict[str, Forge] = {
    "nothing": lambda at: None,
    "the same key again": lambda at: at.approve(at.one),
    "the same key, spelled otherwise": lambda at: at.answer(other_spelling(at.one.public),
        at.one.sign(at.request.statement())),
    "no signature": lambda at: at.answer(at.two.public, b""),
    "no bytes of a signature": lambda at: at.answer(at.two.public, b"\0" * 64),
    "the signature of the first, under the name of the second": lambda at: at.answer(at.two.public,
        at.one.sign(at.request.statement())),
    "a key that the manifest does not list": lambda at: at.answer(at.stranger.public,
        at.stranger.sign(at.request.statement())),
    "a mere yes": lambda at: at.answer("command", b""),
    "a yes in the words of a person": lambda at: at.answer("the boss", b""),
    "no key": lambda at: at.answer("ed25519:", at.two.sign(at.request.statement())),
    "a signature of the request alone": lambda at: at.answer(at.two.public, at.two.sign(at.request.text().encode())),
    "a signature of less, given for all": lambda at: at.answer(at.two.public,
        at.two.sign(at.request.statement(only_these_arguments=True))),
    "a signature of another answer": lambda at: at.answer(at.two.public,
        at.two.sign(at.request.statement().replace(b"approved", b"denied"))),
    "a smaller quorum in the file": lambda at: at.write("UPDATE requests SET quorum = 1"),
    "no keys in the file": lambda at: at.write("UPDATE requests SET quorum = 1, keys = NULL"),
    "another key in the file": list_the_stranger,
}  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_one_signature_and_a_forgery_are_not_two(scene: Scene, forge: Forge) -> None:
    scene.approve(scene.one)
    forge(scene)
    assert scene.ask() == "absent"
    scene.write("DELETE FROM answers WHERE signer NOT IN (?, ?)", scene.one.public, scene.two.public)
    scene.write("UPDATE requests SET quorum = 2, keys = ?", json.dumps([scene.one.public, scene.two.public]))
    scene.approve(scene.two)  # the real one
    assert scene.ask() == "approved"


def test_a_no_that_is_taken_out_of_the_file_leaves_no_yes_behind(scene: Scene) -> None:
    scene.approve(scene.one)
    scene.approve(scene.two)
    asyncio.run(scene.store.deny(asyncio.run(scene.store.find(scene.id))))
    scene.write("UPDATE requests SET denied = ''")
    assert scene.ask() == "absent"
    scene.approve(scene.one)
    assert scene.ask() == "absent"
    scene.approve(scene.two)  # those who said yes before the no must say it again
    assert scene.ask() == "approved"


def test_a_signature_for_one_request_is_none_for_the_next(scene: Scene) -> None:
    """Both ask for the very same; what differs is the nonce, and the time."""
    scene.approve(scene.one)
    scene.approve(scene.two)
    signed = {key.public: key.sign(scene.request.statement()) for key in (scene.one, scene.two)}
    scene.time += 300
    assert scene.ask() == "expired"
    [scene.id] = [kept.request.id for kept in asyncio.run(scene.store.list()) if kept.request.id != scene.id]
    for name, signature in signed.items():
        scene.answer(name, signature)
    assert scene.ask() == "absent"


WIDENED: dict[str, dict[str, Any]] = {
    "for longer": {"expires": 2_000_000_000},
    "asked later": {"asked": 1_000_200_000, "expires": 1_000_500_000},
    "with another nonce": {"nonce": "0" * 32},
    "for more": {"stakes": ["network:*:*"]},
    "for a stronger class": {"effect": "destructive"},
    "in another session": {"session": "s-2"},
    "by another agent": {"agent": "thief"},
    "with another tool": {"tool": "transfer"},
    "under another manifest": {"manifest": "sha256:" + "1" * 64},
    "in another directory": {"directory": "/"},
    "with a field more": {"also": True},
}


@pytest.mark.parametrize("fields", WIDENED.values(), ids=WIDENED)
def test_what_was_signed_cannot_be_widened_afterwards(scene: Scene, fields: dict[str, Any]) -> None:
    scene.approve(scene.one)
    scene.approve(scene.two)
    scene.change(**fields)
    spelled = {"directory": "workdir", "session": "session", "agent": "agent", "tool": "tool", "manifest": "manifest"}
    changes = {spelled[name]: value for name, value in fields.items() if name in spelled}
    assert scene.ask(**changes) == "absent"  # neither as it was, nor as it was made
    assert scene.ask() == "absent"


@pytest.mark.parametrize("fields", [WIDENED["for longer"], WIDENED["asked later"]], ids=str)
def test_a_yes_in_the_file_holds_no_longer_than_the_manifest_says(tmp_path: Path, fields: dict[str, int]) -> None:
    """Without signatures whoever writes the file decides; even so the manifest's time holds."""
    scene = Scene(tmp_path, "call")
    plain: dict[str, Any] = {"quorum": 1, "keys": None}
    scene.id = asyncio.run(scene.store.ask(scene.question(arguments={"to": "bob"}, **plain))).request
    scene.approve(None)
    scene.change(**fields)
    scene.time += 100
    assert scene.ask(arguments={"to": "bob"}, **plain) == "absent"


# Of the nonce there is no second place, and where nobody signs it binds nothing.
CHANGED = {name: fields for name, fields in WIDENED.items() if "nonce" not in fields}


@pytest.mark.parametrize("fields", CHANGED.values(), ids=CHANGED)
def test_a_stored_request_that_was_changed_answers_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Also where nobody signs: the file says what was asked in one place, and all the others must agree."""
    scene = Scene(tmp_path, "call")
    plain: dict[str, Any] = {"quorum": 1, "keys": None, "arguments": {"to": "bob"}}
    scene.id = asyncio.run(scene.store.ask(scene.question(**plain))).request
    scene.approve(None)
    scene.change(**fields)
    assert scene.ask(**plain) == "absent"


def test_arguments_that_are_shown_are_those_that_are_signed(scene: Scene) -> None:
    scene.write("UPDATE requests SET arguments = ?", json.dumps({"to": "alice", "amount": 1}))
    with pytest.raises(CannotAnswer, match="was changed after it was asked"):
        scene.approve(scene.one)
    assert asyncio.run(scene.store.list()) == []


@pytest.mark.parametrize(
    ("key", "said"),
    [(None, "sign with `--key FILE`"), ("stranger", "is not among the manifest's `approvals.keys`")],
)
def test_whoever_cannot_sign_is_told(scene: Scene, key: str | None, said: str) -> None:
    with pytest.raises(CannotAnswer, match=said):
        scene.approve(getattr(scene, key) if key else None)
    assert asyncio.run(scene.store.find(scene.id)).given == ()
