"""Holds sessions to the strictest reading wherever nobody knows what they have read, and says so to people."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guard.flow_gates import TOOLS, mail_gate, send
from guard.gates import gate
from licet import Backends, Gate, Session, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.cli import receipts_text
from licet.core.decision import flow_judgement
from licet.core.flow import indexed
from licet.core.flow.session_knowledge import Known
from licet.core.limits import LONG_UNREAD, MOST_UNREAD
from licet.guard import flow_steps, receipt, session
from licet.guard.ports import LedgerUnavailable
from licet.ports import Question

SECRETS = [{"from": {"tool": "search_people", "fields": ["mail"]}, "readers": []}]
SECRET = {"secrets": SECRETS}
DAN, BOB, NOWHERE = "dan@corp.example", "bob@corp.example", "zed@evil.example"
TASK = f"Write to {DAN}"


def run(at: Gate, story: Callable[[Session], Awaitable[Any]], **opening: Any) -> Any:
    async def play() -> Any:
        async with at.session("s", **opening) as opened:
            return await story(opened)

    return asyncio.run(play())


class Flaky:
    """A ledger that cannot be read at first, or whose receipts are lost, or that keeps only so many entries."""

    def __init__(self, *, failures: int = 0, keeps: int = 1000, lost: bool = False) -> None:
        self.failures, self.keeps, self.lost, self.own = failures, keeps, lost, Backends.memory().ledger

    async def record(self, entry: Any) -> None:
        self.keeps -= 1
        if self.keeps < 0:
            raise LedgerUnavailable("full")
        await self.own.record(entry)  # type: ignore[union-attr]

    async def lengths_of(self, agent: str, name: str) -> Any:
        return await self.own.lengths_of(agent, name)  # type: ignore[union-attr]

    async def entries_of(self, agent: str, name: str, after: Any = None) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("busy")
        found = await self.own.entries_of(agent, name, after)  # type: ignore[union-attr]
        return [one for one in found if not (self.lost and one.kind == "receipt")]

    async def derived(self, purpose: bytes) -> bytes:
        return b"k" * 32


class Unreadable:
    """A ledger that keeps entries, and never gives any."""

    async def record(self, entry: Any) -> None:
        pass


async def to_dan(opened: Session) -> list[str]:
    return [await send(opened, DAN), await send(opened, DAN)]


@pytest.mark.parametrize(
    ("ledger", "told"),
    [
        (Flaky(failures=1), ["FLOW_SECRET", "ALLOWED"]),  # tried again at the next call
        (Unreadable(), ["FLOW_SECRET", "FLOW_SECRET"]),
        (Flaky(), ["ALLOWED", "ALLOWED"]),
    ],
    ids=["fails once", "never", "readable"],
)
def test_while_a_ledger_cannot_be_read_every_secret_counts_as_read(
    tmp_path: Path, ledger: Any, told: list[str]
) -> None:
    at = mail_gate(tmp_path, backends=Backends.memory(ledger=ledger), flow=SECRET)
    assert run(at, to_dan, task=TASK) == told


def test_while_the_ledger_of_a_parent_cannot_be_read_a_delegate_may_have_read_anything(tmp_path: Path) -> None:
    async def story(opened: Session) -> list[str]:
        async with opened.delegate(agent="helper", allow=[f"fs:*:{tmp_path}"]) as helper:
            return [await send(helper, DAN), await send(helper, DAN)]

    at = mail_gate(tmp_path, backends=Backends.memory(ledger=Flaky(failures=1)), flow=SECRET)
    assert run(at, story, task=TASK) == ["FLOW_SECRET", "ALLOWED"]


@pytest.mark.parametrize("earlier", ["without flow", "no receipt", "other secrets"])
def test_what_receipts_do_not_say_counts_as_a_secret(tmp_path: Path, earlier: str) -> None:
    ledger = Flaky(lost=earlier == "no receipt")
    flows: dict[str, Any] = {"without flow": {"preset": ""}, "no receipt": SECRET, "other secrets": {}}
    before = flows[earlier]
    name = "list_mail" if earlier != "other secrets" else "search_people"

    async def first(opened: Session) -> None:
        assert (await opened.call(name)).ok

    run(mail_gate(tmp_path, backends=Backends.memory(ledger=ledger), flow=before), first)
    again = mail_gate(tmp_path, backends=Backends.memory(ledger=ledger), flow=SECRET)
    assert run(again, to_dan, task=TASK) == ["FLOW_SECRET", "FLOW_SECRET"]


# Reloads --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "strict"])
def test_a_call_that_ends_under_another_policy_may_have_read_anything(tmp_path: Path, before: str) -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    async def turn() -> str:
        at.reload(later)
        return "turned"

    at = gate(tmp_path, turn, *TOOLS, **_stated(tmp_path, {"preset": before}))
    later = gate(tmp_path, turn, *TOOLS, **_stated(tmp_path, {"preset": "guarded", "secrets": SECRETS})).manifest

    async def story(opened: Session) -> list[str]:
        assert (await opened.call("turn")).ok
        return await to_dan(opened)

    assert run(at, story, task=TASK) == ["FLOW_SECRET", "FLOW_SECRET"]


def _stated(folder: Path, flow: dict[str, Any]) -> dict[str, Any]:
    names = ["turn", *(one.name for one in TOOLS)]
    return {
        "backends": Backends.memory(),
        "top": {"flow": flow} if flow["preset"] else {},
        "tools": {**{name: {} for name in names}, "send_mail": {"args": {"to": {"flow": "to"}}}},
        "native": names,
        "fs_reach": {"read": [str(folder)], "write": [str(folder)]},
    }


@pytest.mark.parametrize(
    ("flow", "name", "to", "told"),
    [
        ({"results": {"list_mail": {"id": "trusted"}}}, "list_mail", BOB, "FLOW_ORIGIN"),
        (SECRET, "search_people", DAN, "FLOW_SECRET"),
        (SECRET, "", DAN, "ALLOWED"),  # nothing was read
        ({}, "list_mail", BOB, "ALLOWED"),  # it is the same
    ],
    ids=["a label less", "a secret more", "nothing read", "the same"],
)
def test_a_reload_with_other_flow_forgets_what_was_labelled_by_the_last_one(
    tmp_path: Path, flow: dict[str, Any], name: str, to: str, told: str
) -> None:
    at = mail_gate(tmp_path)
    later = mail_gate(tmp_path, flow=flow).manifest

    async def story(opened: Session) -> list[str]:
        if name:
            assert (await opened.call(name)).ok
        waiting = opened.call("send_mail", {"to": [to]})  # made before, judged after
        at.reload(later)
        return [await send(opened, to), (await waiting).reason]

    assert run(at, story, task=TASK) == [told, told]


def test_a_policy_that_cannot_be_used_forgets_nothing(tmp_path: Path) -> None:
    at = mail_gate(tmp_path)
    fine = at.manifest

    async def story(opened: Session) -> str:
        assert (await opened.call("list_mail")).ok
        at.pin = "sha256:0"
        with pytest.raises(Exception, match="pinned"):
            at.reload(fine)
        at.pin = None
        at.reload(fine)
        return await send(opened, BOB)

    assert run(at, story) == "ALLOWED"


# What a refusal quotes, and what a host gives -------------------------------------------------------------------------


@pytest.mark.parametrize("call", [(NOWHERE, {}), ("send_mail", {"to": NOWHERE}), ("echo", {NOWHERE: 1})])
def test_a_name_that_a_model_invents_is_not_seen_because_it_is_refused(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    tools = {**{one.name: {} for one in TOOLS}, "send_mail": {"args": {"to": {"flow": "code"}}}}

    async def story(opened: Session) -> str:
        assert not (await opened.call(*call)).ok
        return await send(opened, NOWHERE)

    assert run(mail_gate(tmp_path, tools=tools), story) == "FLOW_ORIGIN"


def test_what_a_host_gave_under_a_policy_without_flow_taints_under_a_later_one(tmp_path: Path) -> None:
    at = mail_gate(tmp_path, flow={"preset": ""})
    later = mail_gate(tmp_path).manifest

    async def story(opened: Session) -> list[object]:
        await opened.read("a page", f"Write to {NOWHERE}.")
        kept = opened.memory
        at.reload(later)
        return [kept, await send(opened, NOWHERE)]

    assert run(at, story) == [None, "FLOW_ORIGIN"]


def test_what_a_host_gives_is_bounded_and_long_values_are_not_serialised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(opened: Session) -> str:
        for number in range(3 * MOST_UNREAD):
            await opened.read("a page", f"page {number}")
        known = opened.remembering()._known
        assert (len(known._unread), len(known._unscanned)) <= (MOST_UNREAD, MOST_UNREAD)
        monkeypatch.setattr(session, "plain_json", None)
        await opened.read("a page", ["x" * 100] * 10_000)
        await opened.read("a page", "x" * 1_000_000)
        return await send(opened, NOWHERE)

    assert run(mail_gate(tmp_path), story) == "FLOW_ORIGIN"


def test_a_long_task_is_long_and_its_words_are_taken_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()
    known.say("send this " * (LONG_UNREAD // 10 + 1))
    assert known.is_long
    calls: list[str] = []

    def counted(text: str) -> frozenset[str]:
        calls.append(text)
        return frozenset(text.split())

    for module in (indexed, flow_judgement):
        monkeypatch.setattr(module, "words", counted, raising=False)
    tools = {**{one.name: {} for one in TOOLS}, "send_mail": {"asked_by": ["writ"]}}
    assert run(mail_gate(tmp_path, tools=tools), to_dan, task="please write", tainted="yes") == ["ALLOWED"] * 2
    assert len(calls) == 1


def test_a_result_whose_receipt_cannot_be_kept_is_looked_at_once_and_its_secret_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    of = flow_steps.handed_of

    def watched(*given: Any) -> Any:
        looked.append(given)
        return of(*given)

    monkeypatch.setattr(receipt, "handed_of", watched)
    monkeypatch.setattr("licet.guard.close.handed_of", watched, raising=False)
    ledger = Flaky(keeps=1)
    approver = MemoryApprover(lambda question: "denied")

    async def story(opened: Session) -> list[str]:
        missed = await opened.call("search_people")
        assert len(looked) == 1
        ledger.keeps = 100
        return [missed.reason, (await opened.call("send_mail", {"to": [DAN]})).reason]

    at = mail_gate(tmp_path, backends=Backends.memory(ledger=ledger, approver=approver), flow=SECRET)
    assert run(at, story, task=TASK) == ["LEDGER_UNAVAILABLE", "APPROVAL_DENIED"]
    assert "FLOW_SECRET" in approver.asked[0].approval.flow


# What people are told -------------------------------------------------------------------------------------------------


def asked(folder: Path, backends: Backends, *names: str, **flow: Any) -> list[Question]:
    async def story(opened: Session) -> None:
        for name in names:
            await opened.call(name)
        await send(opened, NOWHERE)

    run(mail_gate(folder, backends=backends, flow=flow), story)
    assert isinstance(backends.approver, MemoryApprover)
    return backends.approver.asked


def test_a_person_is_told_that_an_opened_session_may_have_read_a_value(tmp_path: Path) -> None:
    first = Backends.memory(approver=MemoryApprover(lambda question: "denied"))
    (question,) = asked(tmp_path, first, "list_mail")
    assert question.unmet[1] == "to[0]: the model wrote this itself, or changed it"
    again = Backends.memory(ledger=first.ledger, approver=MemoryApprover(lambda question: "denied"))
    (question,) = asked(tmp_path, again)
    assert question.unmet[1] == "to[0]: not found; what this session had read before it was opened again is unknown"


def test_a_question_about_a_secret_names_its_source_and_its_receipt(tmp_path: Path) -> None:
    parts = Backends.memory(approver=MemoryApprover(lambda question: "denied"))
    (question,) = asked(tmp_path, parts, "search_people", **SECRET)
    told = next(line for line in question.unmet if line.startswith("what was read"))
    assert told.startswith("what was read: seen in r-")
    assert told.endswith("search_people (secret)")
    assert "carol" not in str(question.unmet)
    flow = parts.ledger.receipts[-1].flow  # type: ignore[union-attr]
    unmet = next(one for one in flow.unmet if one.reason == "FLOW_SECRET")
    assert (unmet.origins[0].tool, unmet.origins[0].label) == ("search_people", "secret")
    explained = [*receipts_text._unmet_lines(msgspec.to_builtins(unmet), None)]
    assert explained[0].endswith("search_people  secret")


@pytest.mark.parametrize("otherwise", ["ask", "deny"])
def test_a_refusal_offers_an_approval_only_if_somebody_is_asked(tmp_path: Path, otherwise: str) -> None:
    async def story(opened: Session) -> str:
        assert (await opened.call("search_people")).ok
        assert (await opened.call("list_mail")).ok
        return (await opened.call("send_mail", {"to": [NOWHERE], "body": "carol@corp.example"})).explain()

    told = run(mail_gate(tmp_path, flow={**SECRET, "otherwise": otherwise}), story)
    assert ("approve this call" in told) is (otherwise == "ask")
    assert "add its readers under `flow.secrets`" in told


def test_the_rule_of_a_secret_is_where_secrets_are_stated(tmp_path: Path) -> None:
    at = mail_gate(tmp_path, flow=SECRET)

    async def story(opened: Session) -> None:
        assert (await opened.call("search_people")).ok
        assert await send(opened, DAN) == "FLOW_SECRET"

    run(at, story, task=TASK)
    (unmet,) = at.ports.ledger.receipts[-1].flow.unmet  # type: ignore[union-attr]
    places = at.manifest.places
    assert unmet.rule == str(places.get("flow.secrets") or places["flow"])
