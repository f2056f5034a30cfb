"""While a person reads a request, whoever can write the file puts another one in its place, under the same name."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer, StoredRequest
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.secrets import SigningKey, make_key

EVIL = {"to": "mallory", "amount": 5000}


class Scene:
    """A harmless request that a person is shown, and another one, which then stands where that one stood."""

    def __init__(self, folder: Path, signed: bool) -> None:
        self.key: SigningKey | None = make_key(folder / "me.key") if signed else None
        self.keys = (self.key.public,) if self.key else None
        self.path = folder / "approvals.sqlite"
        self.store = SqliteApprovals(self.path)
        asyncio.run(self.store.ask(question(keys=self.keys)))
        self.shown: StoredRequest = asyncio.run(self.store.list())[0]
        asyncio.run(self.store.ask(question(keys=self.keys, arguments=EVIL)))
        self.store.close()

    def exchange(self) -> None:
        with sqlite3.connect(self.path) as db:
            query = "SELECT id, body, subject, arguments FROM requests WHERE id != ?"
            other, body, subject, arguments = db.execute(query, (self.shown.request.id,)).fetchone()
            body = json.dumps({**json.loads(body), "id": self.shown.request.id})
            db.execute("DELETE FROM requests WHERE id = ?", (other,))
            db.execute("UPDATE requests SET body = ?, subject = ?, arguments = ?", (body, subject, arguments))
        db.close()

    def set(self, **fields: Any) -> None:
        """Change fields of the request that is stored."""
        body = json.dumps({**json.loads(self.shown.request.text()), **fields})
        with sqlite3.connect(self.path) as db:
            db.execute("UPDATE requests SET body = ? WHERE id = ?", (body, self.shown.request.id))
        db.close()

    def answers(self) -> list[str]:
        asked = question(keys=self.keys), question(keys=self.keys, arguments=EVIL)
        return [asyncio.run(self.store.ask(one)).answer for one in asked]


@pytest.fixture(params=[True, False], ids=["signed", "unsigned"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path, request.param)


def test_looking_the_name_up_again_would_agree_to_what_nobody_was_shown(scene: Scene) -> None:
    scene.exchange()
    found_again = asyncio.run(scene.store.find(scene.shown.request.id))
    asyncio.run(scene.store.approve(found_again, scene.key))
    assert scene.answers() == ["absent", "approved"]


def test_a_yes_is_for_what_was_shown(scene: Scene) -> None:
    scene.exchange()
    with pytest.raises(CannotAnswer, match="no longer what was shown"):
        asyncio.run(scene.store.approve(scene.shown, scene.key))
    assert scene.answers() == ["absent", "absent"]


def test_a_no_is_for_what_was_shown(scene: Scene) -> None:
    scene.exchange()
    with pytest.raises(CannotAnswer, match="no longer what was shown"):
        asyncio.run(scene.store.deny(scene.shown))
    assert scene.answers() == ["absent", "absent"]


@pytest.mark.parametrize(
    "fields",
    [{"agent": "thief"}, {"nonce": "0" * 32}, {"expires": 2**50}, {"stakes": ["network:*:*"]}, {"scope": "session"}],
    ids=str,
)
def test_no_field_of_it_may_change(scene: Scene, fields: dict[str, Any]) -> None:
    scene.set(**fields)
    with pytest.raises(CannotAnswer, match="no longer what was shown"):
        asyncio.run(scene.store.approve(scene.shown, scene.key))


def test_what_is_no_longer_there_is_not_agreed_to(scene: Scene) -> None:
    with sqlite3.connect(scene.path) as db:
        db.execute("DELETE FROM requests")
    db.close()
    with pytest.raises(CannotAnswer, match="there is no request"):
        asyncio.run(scene.store.approve(scene.shown, scene.key))
