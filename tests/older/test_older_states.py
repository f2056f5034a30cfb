"""The states that earlier commits have left, in a directory and in a database: what is in them counts as it did."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from licet import load_manifest
from licet.assemble.states import own_directory
from licet.backends.secrets import read_approver_key
from licet.cli.app import licet
from licet.core.policy.terms import Approvals
from licet.guard.freezing import ActRefused, keep_act, thaw_act
from licet.guard.ports import NotStanding
from older.desk import RAN, READ, DatabaseStores, FileStores, Still, Stores
from older_files import MADE_BY, OLDER, older_database, older_state, private_copy


class Left:
    """A copy of what a commit has left: its stores, and the ids in them."""

    def __init__(self, commit: str, kind: str, scratch: Path) -> None:
        self.made = OLDER / commit
        self.facts: dict[str, Any] = json.loads((self.made / kind / "facts.json").read_text())
        self.requests, self.receipts = self.facts["requests"], self.facts["receipts"]
        policies, clock = self.made / "policies", Still(READ)
        self.stores: Stores
        if kind == "files":
            directory = older_state(self.made, scratch / "state")
            self.stores, self.address = FileStores(directory, clock, policies), str(directory)
        else:
            self.address = older_database(self.made)
            node = own_directory(self.address)
            for file in (self.made / "database" / "node").iterdir():
                private_copy(file, node / file.name)
            self.stores = DatabaseStores(self.address, node, clock, policies)
        RAN.clear()

    def key(self, name: str, scratch: Path) -> Any:
        """One of the private keys."""
        return read_approver_key(private_copy(self.made / "keys" / f"{name}.key", scratch / f"{name}.key"))

    def run(self, *words: str) -> Result:
        """A command on this state."""
        return CliRunner().invoke(licet, (*words, "--state", self.address), prog_name="licet", catch_exceptions=False)

    async def states(self) -> dict[str, str]:
        """What became of each request."""
        stored = {
            kept.request.id: kept.state(self.stores.approvals.now()) for kept in await self.stores.approvals.list()
        }
        return {name: stored[id] for name, id in self.requests.items() if id in stored}  # noqa: A001


@pytest.fixture(params=[(commit, kind) for commit in MADE_BY for kind in ("files", "database")], ids="-".join)
def left(request: pytest.FixtureRequest, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Left]:
    monkeypatch.setenv("XDG_STATE_HOME", str(store_path / "own"))
    commit, kind = request.param
    left = Left(commit, kind, store_path)
    yield left
    left.stores.close()


Scene = Callable[[Left], Coroutine[Any, Any, None]]


def in_loop(scene: Scene) -> Callable[[Left], None]:
    """A test that is async."""

    def test(left: Left) -> None:
        asyncio.run(scene(left))

    test.__name__, test.__doc__ = scene.__name__, scene.__doc__
    return test


def test_receipts_are_listed_shown_and_verified(left: Left) -> None:
    listed = json.loads(left.run("receipts", "list", "--limit", "1000", "--json").stdout)["receipts"]
    ids = {receipt["id"] for receipt in listed}
    assert ids >= {*left.receipts.values(), "r-1-1", "r-1-2", "r-1-3"}
    for receipt in (*left.receipts.values(), "r-1-1", "r-1-2", "r-1-3"):
        assert left.run("receipts", "show", receipt).exit_code == 0
    verified = left.run("receipts", "verify")
    assert verified.exit_code == 0, verified.output
    shown = json.loads(left.run("receipts", "show", left.receipts["flow"], "--json").stdout)
    assert shown["receipt"]["flow"]["tainted_by"] == [left.receipts["read"]]
    assert shown["receipt"]["reason"] == "FLOW_ORIGIN"
    shown = json.loads(left.run("receipts", "show", left.receipts["repeated"], "--json").stdout)
    assert shown["receipt"]["repeats"] == left.receipts["kept"]


def test_other_commands_read_the_state(left: Left) -> None:
    freezes = json.loads(left.run("freeze", "--list", "--json").stdout)
    assert [freeze["id"] for freeze in freezes["freezes"]] == [left.facts["freezes"]["in force"]]
    sessions = json.loads(left.run("session", "list", "--all", "--json").stdout)["sessions"]
    assert [one["session"] for one in sessions if one["ended"]] == ["over"]
    assert {one["agent"] for one in sessions if one["session"] == "main"} == {"desk", "desk>helper"}
    approvals = json.loads(left.run("approvals", "list", "--all", "--json").stdout)
    assert {one["id"] for one in approvals["requests"]} == set(left.requests.values()) | set(
        left.facts["standing"].values()
    )


def test_the_database_is_as_it_should_be(left: Left) -> None:
    if isinstance(left.stores, FileStores):
        pytest.skip("a directory has no `db status`")
    status = left.run("db", "status")
    assert status.exit_code == 0, status.output


@in_loop
async def test_the_rest_of_a_budget_can_be_spent_and_no_more(left: Left) -> None:
    """Of the tool in a session, of a session, and of a day."""
    day = READ.strftime("%Y-%m-%d")
    usage = await left.stores.budgets.usage("desk", "spent", day)
    assert (usage.calls, usage.calls_of_tool["pay"], usage.cost_usd) == (2, 2, Decimal("0.50"))
    crashed = await left.stores.budgets.usage("desk", "crashed", day)
    assert (crashed.calls, crashed.cost_usd) == (1, Decimal("0.25"))
    assert (await left.stores.call("spent", "pay", order="third")).ok
    refused = await left.stores.call("spent", "pay", order="fourth")
    assert (refused.reason, RAN) == ("BUDGET_EXCEEDED", ["pay third"])


@in_loop
async def test_requests_are_what_they_were(left: Left) -> None:
    assert await left.states() == {
        "expired": "expired",
        "flow": "waiting",
        "given": "approved",
        "refused": "denied",
        "session": "approved",
        "signed": "waiting",
        "used": "used",
        "waiting": "waiting",
    }


@in_loop
async def test_an_approval_serves_its_call_once(left: Left) -> None:
    assert (await left.stores.call("main", "note", name="given")).ok
    assert (await left.stores.call("main", "note", name="given")).reason == "APPROVAL_REQUIRED"
    assert (await left.stores.call("main", "note", name="used")).reason == "APPROVAL_REQUIRED"
    assert (await left.stores.call("main", "note", name="refused")).reason == "APPROVAL_DENIED"
    assert (await left.stores.call("main", "jot", name="third")).ok
    assert RAN == ["note given", "jot third"]


@in_loop
async def test_a_request_that_waited_can_be_answered(left: Left) -> None:
    approvals = left.stores.approvals
    await approvals.approve(await approvals.find(left.requests["waiting"]))
    assert (await left.stores.call("main", "note", name="waiting")).ok


@in_loop
async def test_the_second_signature_completes_a_quorum(left: Left) -> None:
    approvals = left.stores.approvals
    assert not (await left.stores.call("signed", "note", "signed.yaml", name="signed")).ok
    bob = left.key("bob", left.stores.directory.parent)  # type: ignore[attr-defined]
    await approvals.approve(await approvals.find(left.requests["signed"]), bob)
    assert (await left.stores.call("signed", "note", "signed.yaml", name="signed")).ok


@in_loop
async def test_a_standing_approval_counts_until_it_is_withdrawn(left: Left) -> None:
    standing, digest = left.stores.standing, left.facts["manifest"]
    terms = Approvals(delete="manifest")
    given = await asyncio.to_thread(standing.find, left.facts["standing"]["given"], digest, terms)
    assert [str(rule) for rule in given.deletes] == ["fs:delete:/srv/notes/out"]
    with pytest.raises(NotStanding, match="was withdrawn"):
        await asyncio.to_thread(standing.find, left.facts["standing"]["withdrawn"], digest, terms)


@in_loop
async def test_a_call_with_an_id_gets_its_first_result(left: Left) -> None:
    again = await left.stores.call("kept", "pay", id="order-1", order="kept")
    assert (again.value, RAN) == ("paid kept", [])
    assert (await left.stores.call("kept", "pay", id="order-1", order="other")).reason == "CALL_ID_REUSED"
    assert (await left.stores.call("kept", "pay", id="order-2", order="lost")).reason == "CALL_UNKNOWN"
    assert RAN == []


@in_loop
async def test_a_freeze_holds_until_an_operator_ends_it(left: Left) -> None:
    stores, now = left.stores, READ
    assert (await stores.call("counting", "count", step=1)).reason == "FROZEN"
    view = await stores.freezes.view()
    assert [freeze.id for freeze in view.freezes] == [left.facts["freezes"]["in force"]]
    with pytest.raises(ActRefused):
        thaw_act([], now, view, "command", None)
    operator = left.key("operator", stores.directory.parent)  # type: ignore[attr-defined]
    await keep_act(stores.freezes, stores.ledger, thaw_act([], now, view, "command", operator))
    assert (await stores.call("counting", "count", step=1)).value == 3


@in_loop
async def test_values_and_ended_sessions_are_known(left: Left) -> None:
    kv = left.stores.kv
    assert await kv.get("personality/desk", "colour") == {"name": "blue"}
    assert await kv.get("personality/desk", "gone") is None
    assert (await left.stores.call("over", "look", path="/srv/notes/a")).reason == "SESSION_ENDED"


@in_loop
async def test_a_session_is_as_tainted_as_it_was(left: Left) -> None:
    asked = await left.stores.call("mail", "send_mail", "mail.yaml", to="bob@else.test", body="The plan")
    assert asked.reason == "FLOW_ORIGIN"
    shown = await asyncio.to_thread(left.run, "receipts", "show", asked.receipt, "--json")
    assert json.loads(shown.stdout)["receipt"]["flow"]["tainted_by"] == [left.receipts["read"]]
    calm = await left.stores.call("calm", "send_mail", "mail.yaml", to="bob@else.test", body="The plan")
    assert calm.reason == "APPROVAL_REQUIRED"


@in_loop
async def test_calls_go_on_in_the_ledger(left: Left) -> None:
    assert (await left.stores.call("main", "look", path="/srv/notes/a")).ok
    await asyncio.to_thread(left.stores.close)
    verified = await asyncio.to_thread(left.run, "receipts", "verify")
    assert verified.exit_code == 0, verified.output


def test_the_policies_are_those_of_the_requests(left: Left) -> None:
    assert load_manifest(left.made / "policies" / "desk.yaml").digest == left.facts["manifest"]
