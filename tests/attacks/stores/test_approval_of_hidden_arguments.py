"""A yes to one call is used for another that looks the same, because type hints hide what the tool will get."""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, RootModel, SecretStr, field_serializer

from licet import Backends, Context, Gate, Tool, load_manifest, run, tool
from licet.backends.approvals.requests import StoredRequest
from licet.backends.approvals.store import SqliteApprovals
from licet.declare.plain_json import plain_json

MANIFEST = """
agent: desk
capabilities:
  tools: [pay]
  native: [pay]
  max_side_effect_class: write_limited
  fs_reach: {write: ["${workdir}/notes"]}
  approvals: {write: call}
"""


class Excluded(BaseModel):
    """Of what is sent, one part is never shown again."""

    to: str
    amount: int = Field(exclude=True)


class Disguised(BaseModel):
    """Shown as something else."""

    to: str

    @field_serializer("to")
    def disguise(self, to: str) -> str:
        """What is shown."""
        return "someone" if to else to


class Private(BaseModel):
    """Keeps what it was made of to itself."""

    _held: str = PrivateAttr("")
    to: str

    def model_post_init(self, _: Any) -> None:
        """Put it away."""
        self._held, self.to = self.to, ""


@dataclass
class Account:
    """Holds a secret below."""

    owner: str
    pin: SecretStr


class Pins(RootModel[dict[str, SecretStr]]):
    """Secrets by name."""


class Dated(BaseModel):
    """What nobody sends, and what differs each time."""

    to: str
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)


HIDDEN: dict[str, tuple[Any, Any, Any]] = {  # a hint, what is shown, and what is meant
    "a secret": (SecretStr, "harmless", "everything"),
    "secrets in a list": (list[SecretStr], ["harmless"], ["everything"]),
    "a secret in a dataclass": (Account, {"owner": "bob", "pin": "1"}, {"owner": "bob", "pin": "2"}),
    "a secret below a root": (Pins, {"bob": "1"}, {"bob": "2"}),
    "stars": (SecretStr, "everything", "**********"),
    "an excluded field": (Excluded, {"to": "bob", "amount": 1}, {"to": "bob", "amount": 1_000_000}),
    "a serialiser": (Disguised, {"to": "bob"}, {"to": "mallory"}),
    "a private field": (Private, {"to": "bob"}, {"to": "mallory"}),
    "a choice of types": (Excluded | str, {"to": "bob", "amount": 1}, {"to": "bob", "amount": 2}),
}
CALLS = {**HIDDEN, "a float and an integer": (Any, 1.2345678901234567e20, 123456789012345670000)}


def paying(hint: Any, *default: Any) -> tuple[Tool, list[Any]]:
    """A tool of one argument of some type, and what it was given."""
    got: list[Any] = []

    async def pay(ctx: Context, what: Any, note: str = "none") -> None:
        """Pay."""
        got.append(what)

    pay.__annotations__["what"] = hint
    if default:
        pay.__defaults__ = (*default, "none")
    declared = tool(capabilities={"fs_reach": {"write": "from-personality"}}, effect="write_limited", sandbox="native")(
        pay
    )
    return declared, got


def opened(folder: Path, declared: Tool) -> tuple[Gate, SqliteApprovals]:
    (folder / "agent.yaml").write_text(MANIFEST)
    store = SqliteApprovals(folder / "approvals.sqlite")
    return Gate(load_manifest(folder / "agent.yaml"), [declared], Backends.local(folder, approver=store)), store


def agree(store: SqliteApprovals) -> StoredRequest:
    """Say yes to the one request that waits."""
    (kept,) = [kept for kept in asyncio.run(store.list()) if kept.state(store.now()) == "waiting"]
    asyncio.run(store.approve(kept))
    return kept


@pytest.mark.parametrize(("hint", "shown", "meant"), HIDDEN.values(), ids=HIDDEN)
def test_as_the_json_of_what_a_tool_gets_they_look_the_same(hint: Any, shown: Any, meant: Any) -> None:
    validate = paying(hint)[0].validator()
    assert plain_json(validate({"what": shown})) == plain_json(validate({"what": meant}))


@pytest.mark.parametrize(("hint", "shown", "meant"), CALLS.values(), ids=CALLS)
def test_a_yes_serves_what_was_shown_and_nothing_else(tmp_path: Path, hint: Any, shown: Any, meant: Any) -> None:
    declared, got = paying(hint)
    gate, store = opened(tmp_path, declared)
    assert run(gate, "pay", {"what": shown}).reason == "APPROVAL_REQUIRED"
    assert agree(store).arguments == {"what": shown, "note": "none"}
    assert run(gate, "pay", {"what": meant}).reason == "APPROVAL_REQUIRED"
    assert not got
    assert run(gate, "pay", {"what": shown}).ok
    assert len(got) == 1


def test_a_secret_by_default_is_not_the_stars_that_somebody_sends(tmp_path: Path) -> None:
    declared, got = paying(SecretStr, SecretStr("hunter2"))
    gate, store = opened(tmp_path, declared)
    assert run(gate, "pay", {"what": "**********"}).reason == "APPROVAL_REQUIRED"
    agree(store)
    assert run(gate, "pay", {}).reason == "APPROVAL_REQUIRED"
    assert not got


@pytest.mark.parametrize(
    ("hint", "sent"),
    [
        (Dated, {"what": {"to": "bob"}}),
        (Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex)], {}),
        (Annotated[Dated, Field(default_factory=lambda: Dated(to="bob"))], {}),
        (Annotated[date, AfterValidator(lambda day: day)], {"what": "2026-01-01"}),
    ],
    ids=["in a model", "for a text", "for a model", "none"],
)
def test_a_default_that_is_another_each_time_can_be_agreed_to(tmp_path: Path, hint: Any, sent: Any) -> None:
    declared, got = paying(hint)
    gate, store = opened(tmp_path, declared)
    assert run(gate, "pay", sent).reason == "APPROVAL_REQUIRED"
    assert agree(store).arguments == {**sent, "note": "none"}
    assert run(gate, "pay", sent).ok
    assert len(got) == 1


def test_a_default_that_was_sent_is_no_longer_made(tmp_path: Path) -> None:
    declared, got = paying(Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex, alias="What")])
    gate, store = opened(tmp_path, declared)
    assert run(gate, "pay", {"What": "bob"}).reason == "APPROVAL_REQUIRED"
    assert agree(store).arguments == {"What": "bob", "note": "none"}
    assert run(gate, "pay", {"What": "mallory"}).reason == "APPROVAL_REQUIRED"
    assert not got


def test_what_hints_make_plain_is_shown_as_the_tool_gets_it(tmp_path: Path) -> None:
    declared, got = paying(Annotated[str, AfterValidator(lambda text: text.strip().lower())])
    gate, store = opened(tmp_path, declared)
    assert run(gate, "pay", {"what": "  BOB "}).reason == "APPROVAL_REQUIRED"
    assert agree(store).arguments == {"what": "bob", "note": "none"}
    assert run(gate, "pay", {"what": "bob"}).ok
    assert got == ["bob"]
