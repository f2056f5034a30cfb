"""The contract of ledgers that can be verified, in memory, SQLite and PostgreSQL: the entries that calls leave."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from backends.postgres.ledger_nodes import Team
from guard.gates import call, gate
from licet import Backends, Context, Gate, Refused, tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.secrets import check_signature
from licet.core.decision.decision import KeyPlaced
from licet.core.ledger.entry import Entry, Row, entry_fields
from licet.core.ledger.verify import Outcome, verify
from licet.core.values import data_digest
from licet.guard.bind import BoundContext, parts_of
from licet.guard.ports import Answered

SECRET = "hunter2-and-some-more"


class Kept:
    """A ledger and its entries."""

    def __init__(self, ledger: SqliteLedger | MemoryLedger | PostgresLedger, team: Team | None = None) -> None:
        self.ledger, self.team = ledger, team

    def verified(self) -> Outcome:
        ledger = self.ledger
        if isinstance(ledger, PostgresLedger):
            assert self.team is not None
            outcome = asyncio.run(self.team.verified())  # the node has enrolled itself in the first entry
            return replace(outcome, entries=outcome.entries - 1, signed=outcome.signed - 1)
        if isinstance(ledger, MemoryLedger):
            return verify(ledger.rows, ledger.checkpoints(), key=ledger.key, check=check_signature)
        ledger.close()
        with LedgerReader(ledger.path) as reader:
            return verify(reader.entries(), reader.checkpoints(), key=reader.key, check=check_signature)

    def rows(self) -> list[Row]:
        ledger = self.ledger
        if isinstance(ledger, PostgresLedger):
            assert self.team is not None
            asyncio.run(self.team.nodes[0].sequencer.place_now())
            return [row for row in asyncio.run(self.team.rows()) if row.kind != "enrolment"]
        if isinstance(ledger, MemoryLedger):
            return list(ledger.rows)
        with LedgerReader(ledger.path) as reader:
            return list(reader.entries())

    def entries(self, kind: str = "") -> list[dict[str, Any]]:
        return [entry for entry in map(entry_fields, (row.body for row in self.rows())) if kind in ("", entry["kind"])]

    def receipt(self) -> dict[str, Any]:
        (receipt,) = self.entries("receipt")
        return receipt


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    if request.param == "memory":
        yield Kept(MemoryLedger())
        return
    if request.param == "postgres":
        nodes = Team(request.getfixturevalue("postgres"), tmp_path / "nodes")
        yield Kept(nodes.stranger(), nodes)
        nodes.close()
        return
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    yield Kept(ledger)
    ledger.close()


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(needs=[], effect="read_only", sandbox="native")
async def fail(word: str) -> None:
    """Fail."""
    raise ValueError(f"no {word}")


@tool(needs=["env:read:A"], effect="read_only", sandbox="native")
async def look(ctx: Context, names: list[str]) -> list[str | None]:
    """Read variables, also those that are not held."""
    found = []
    for name in names:
        try:
            found.append(ctx.env.get(name))
        except Exception:
            found.append(None)
    return found


@tool(needs=["secret:read:KEY"], effect="read_only", sandbox="native")
async def tell(ctx: Context, said: str) -> str:
    """Return a secret."""
    return f"{await ctx.secrets.get('KEY')} and {said}"


@tool(needs=["fs:write:/w"], effect="write_limited", sandbox="native", cost_usd="0.25")
async def store(ctx: Context, text: str) -> None:
    """Write a file."""
    await ctx.fs.write("/w/f", text)


@tool(needs=["env:read:A"], effect="read_only", sandbox="native")
async def last(ctx: Context) -> None:
    """Be refused, and go on once that is on disk."""
    grant = parts_of(cast("BoundContext", ctx)).grant
    with suppress(Refused):
        ctx.env.get("B")
    await grant.settle()
    await grant.note_durably(KeyPlaced, "secret:read:github/token", rule="api.github.com")


def at(folder: Path, kept: Kept, *tools: Any, parts: dict[str, Any] | None = None, **capabilities: Any) -> Gate:
    backends = Backends.memory(ledger=kept.ledger, **(parts or {}))
    return gate(folder, *tools, backends=backends, **capabilities)


def test_a_call_leaves_its_decision_and_its_receipt(tmp_path: Path, kept: Kept) -> None:
    here = at(tmp_path, kept, add)
    result = call(here, "add", {"a": 2})
    decision, receipt = kept.entries()
    assert (decision["kind"], receipt["kind"], result.value) == ("decision", "receipt", 3)
    same = ("agent", "session", "tool", "tool_digest", "manifest", "arguments", "time", "id", "ledger", "rules")
    assert {key: decision[key] for key in same} == {key: receipt[key] for key in same}
    assert receipt["id"] == result.receipt
    assert receipt["arguments"] == data_digest({"a": 2, "b": 1})
    assert (decision["result"], receipt["result"]) == (None, data_digest(3))
    assert receipt["tool_digest"] == add.spec.digest
    assert receipt["manifest"] == here.manifest.digest
    assert (receipt["agent"], receipt["session"], receipt["tool"], receipt["parent"]) == ("tester", "s", "add", None)
    assert (receipt["verdict"], receipt["code"], receipt["reason"], receipt["error"]) == (
        "allow",
        "ok",
        "ALLOWED",
        None,
    )
    assert (receipt["cost_usd"], receipt["truncated"], receipt["budget"]) == ("0", False, None)
    assert receipt["sandbox"] == {
        "access": None,
        "layers": list(result.layers),
        "level": "native",
        "programs": None,
    }
    assert float(receipt["duration_ms"]) >= 0
    assert (decision["code"], decision["duration_ms"], decision["verdict"]) == (None, None, "allow")
    assert receipt["rules"][0].startswith("`add` is admitted (")
    granted = {"capability": "tool:call:add", "kind": "CapabilityGranted", "reason": "", "rule": ""}
    assert decision["events"] == [{"kind": "SessionOpened"}, granted]
    assert receipt["events"] == [{"kind": "SessionOpened"}, granted, {"kind": "SandboxEntered"}]
    assert (decision["sequence"], receipt["sequence"], decision["previous"]) == (1, 2, None)
    assert "bodies" not in receipt
    assert kept.verified().ok


def test_every_check_is_an_event_in_order(tmp_path: Path, kept: Kept) -> None:
    call(
        at(tmp_path, kept, look, parts={"environ": {"A": "1", "B": "2"}}, env=["A"]), "look", {"names": ["A", "B", "A"]}
    )
    checks = [event for event in kept.receipt()["events"] if event["kind"].startswith("Capability")]
    assert [(event["kind"], event["capability"], event["reason"]) for event in checks] == [
        ("CapabilityGranted", "tool:call:look", ""),
        ("CapabilityGranted", "env:read:A", ""),
        ("CapabilityDenied", "env:read:B", "ENV_NOT_ALLOWED"),
        ("CapabilityGranted", "env:read:A", ""),
    ]
    assert "agent.yaml" in checks[1]["rule"]
    assert kept.receipt()["verdict"] == "allow"


REFUSED: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("nowhere", {}, {}, "not_available", "UNKNOWN_TOOL"),
    ("\ud800" * 3, {}, {}, "not_available", "UNKNOWN_TOOL"),
    ("x" * 100_000, {}, {}, "not_available", "UNKNOWN_TOOL"),
    ("add", {"a": "x"}, {}, "input_invalid", "INPUT_INVALID"),
    ("add", {"a": 1}, {"budget": {"max_calls_per_session": 0}}, "denied", "BUDGET_EXCEEDED"),
]


@pytest.mark.parametrize(
    ("name", "given", "rules", "code", "reason"), REFUSED, ids=[f"{r[4]}{i}" for i, r in enumerate(REFUSED)]
)
def test_a_refusal_leaves_a_receipt_with_its_rules(
    tmp_path: Path, kept: Kept, name: str, given: Any, rules: dict[str, Any], code: str, reason: str
) -> None:
    result = call(at(tmp_path, kept, add, **rules), name, given)
    receipt = kept.receipt()
    assert (
        (receipt["verdict"], receipt["code"], receipt["reason"])
        == ("deny", code, reason)
        == ("deny", result.code, result.reason)
    )
    assert receipt["result"] is None
    assert receipt["rules"]
    assert receipt["sandbox"]["layers"] == []
    assert receipt["events"][-1]["reason"] == reason
    assert len(receipt["tool"]) < 300
    assert kept.verified().ok


def test_the_error_of_a_tool_is_stored_as_a_digest(tmp_path: Path, kept: Kept) -> None:
    result = call(at(tmp_path, kept, fail), "fail", {"word": "private"})
    receipt = kept.receipt()
    assert (receipt["verdict"], receipt["code"], receipt["reason"]) == ("allow", "execution_failed", "TOOL_FAILED")
    assert receipt["result"] == data_digest(result.error)
    assert all(b"private" not in row.body for row in kept.rows())


def test_with_record_full_errors_are_stored_without_secrets(tmp_path: Path, kept: Kept) -> None:
    parts = {"secrets": {"KEY": SECRET}}
    here = at(tmp_path, kept, tell, fail, parts=parts, secrets=["KEY"], record="full")
    call(here, "tell", {"said": f"1.5 {SECRET}"})
    call(here, "fail", {"word": "luck"})
    told, failed = kept.entries("receipt")
    arguments, result = (json.loads(told["bodies"][name]) for name in ("arguments", "result"))
    assert arguments["said"].startswith("1.5 ")
    assert data_digest(result) == told["result"]
    assert told["arguments"] == data_digest({"said": f"1.5 {SECRET}"})
    assert json.loads(failed["bodies"]["arguments"]) == {"word": "luck"}
    assert failed["bodies"]["result"] is None
    assert "no luck" in failed["error"]
    assert all(SECRET.encode() not in row.body for row in kept.rows())
    assert all("bodies" not in entry for entry in kept.entries("decision"))
    assert kept.verified().ok


@tool(needs=[], effect="read_only", sandbox="native")
async def take(b: Any, a: Any = 7) -> None:
    """Take any arguments, in an order that is not alphabetical."""


@tool(needs=[], effect="read_only", sandbox="native")
async def tome(é: Any, a: Any = 7) -> None:  # noqa: PLC2401
    """Take anything, under another name."""


GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("take", {"b": "x", "a": 1}),
    ("take", {"b": True, "a": None}),
    ("take", {"b": '\x00\x1f\x7f "\\ \b\f\n\r\t / \u2028 é \U0001f600'}),
    ("take", {"b": 2**60, "a": -(10**30)}),
    ("take", {"b": [1.5, {"z": 1, "y": "é"}]}),
    ("tome", {"é": "x"}),
]


@pytest.mark.parametrize(("name", "given"), GIVEN, ids=ascii)
def test_arguments_have_the_digest_of_their_one_spelling(
    tmp_path: Path, kept: Kept, name: str, given: dict[str, Any]
) -> None:
    call(at(tmp_path, kept, take, tome), name, given)
    assert kept.receipt()["arguments"] == data_digest({"a": 7, **given})


def test_receipts_have_the_money_spent_before_and_after(tmp_path: Path, kept: Kept) -> None:
    rules: dict[str, Any] = {"fs_reach": {"write": ["/w"]}, "budget": {"max_cost_usd": 1, "max_calls_per_session": 9}}
    here = at(tmp_path, kept, store, **rules)
    for _ in range(2):
        assert call(here, "store", {"text": "x"}).cost_usd == Decimal("0.25")
    *_, decision, receipt = kept.entries()
    before, after = (
        {
            **dict.fromkeys(("calls", "calls_of_tool", "calls_today"), calls),
            **dict.fromkeys(("cost_usd", "cost_usd_of_tool", "cost_usd_today"), cost),
        }
        for calls, cost in ((1, "0.25"), (2, "0.5"))
    )
    assert decision["budget"] == receipt["budget"] == {"before": before, "after": after}
    assert (decision["cost_usd"], receipt["cost_usd"]) == ("0.25", "0.25")


def test_receipts_name_the_approvers(tmp_path: Path, kept: Kept) -> None:
    async def agree(question: Any) -> Answered:
        return Answered("approved", ("ada",))

    rules: dict[str, Any] = {"fs_reach": {"write": ["/w"]}, "approvals": {"write": "call"}}
    call(at(tmp_path, kept, store, parts={"approver": agree}, **rules), "store", {"text": "x"})
    decision, receipt = kept.entries()
    agreed = {"arguments": data_digest({"text": "x"}), "by": ["ada"], "request": None, "use": None}
    assert decision["approvals"] == receipt["approvals"] == [agreed]


def test_a_call_that_waits_for_a_person_says_so(tmp_path: Path, kept: Kept) -> None:
    rules: dict[str, Any] = {"fs_reach": {"write": ["/w"]}, "approvals": {"write": "call"}}
    call(at(tmp_path, kept, store, **rules), "store", {"text": "x"})
    assert (kept.receipt()["verdict"], kept.receipt()["reason"]) == ("ask", "APPROVAL_REQUIRED")


def test_a_delegate_names_who_has_delegated(tmp_path: Path, kept: Kept) -> None:
    async def run() -> None:
        async with at(tmp_path, kept, add).session("s") as session:
            await session.call("add", {"a": 1})
            async with session.delegate(agent="helper", allow=[]) as below:
                await below.call("add", {"a": 1})

    asyncio.run(run())
    first, *_, last = kept.entries()
    assert (first["agent"], first["parent"]) == ("tester", None)
    assert (last["agent"], last["parent"]) == ("tester>helper", {"agent": "tester", "session": "s"})
    assert [entry["sequence"] for entry in kept.entries()] == [1, 2, 1, 2]  # each has a chain of its own
    assert kept.verified().ok


def test_calls_side_by_side_are_one_chain_for_each_session(tmp_path: Path, kept: Kept) -> None:
    async def run() -> None:
        here = at(tmp_path, kept, add)
        async with here.session("one") as one, here.session("two") as two:
            many = [("add", {"a": number}) for number in range(40)]
            first, second = await asyncio.gather(one.call_many(many), two.call_many(many))
            assert [result.value for result in (*first, *second)] == [*range(1, 41)] * 2

    asyncio.run(run())
    sequences: dict[str, list[int]] = {"one": [], "two": []}
    for entry in kept.entries():
        sequences[entry["session"]].append(entry["sequence"])
    assert sequences == {"one": [*range(1, 81)], "two": [*range(1, 81)]}
    outcome = kept.verified()
    assert (outcome.ok, outcome.entries, outcome.signed) == (True, 160, 160)


def test_a_session_that_is_opened_again_continues_its_chain(tmp_path: Path, kept: Kept) -> None:
    for _ in range(3):
        call(at(tmp_path, kept, add), "add", {"a": 1})
    assert [entry["sequence"] for entry in kept.entries()] == [1, 2, 3, 4, 5, 6]
    assert kept.verified().ok


def test_arguments_are_those_that_were_given_whatever_a_tool_does_to_them(tmp_path: Path, kept: Kept) -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    async def spoil(items: list[int]) -> int:
        """Change its own arguments."""
        items.clear()
        return 1

    call(at(tmp_path, kept, spoil), "spoil", {"items": [1, 2]})
    assert [entry["arguments"] for entry in kept.entries()] == [data_digest({"items": [1, 2]})] * 2


def test_a_full_memory_refuses_before_the_tool_runs(tmp_path: Path) -> None:
    result = call(at(tmp_path, Kept(MemoryLedger(quota=0)), add), "add", {"a": 1})
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert "the ledger is full" in result.explain()


# Why a call was made -------------------------------------------------------------------------------------------------

PURPOSES: list[tuple[str | None, str | None]] = [
    (None, None),
    ("", ""),
    ("the user asks for the sum", "the user asks for the sum"),
    ("é" * 500, "é" * 500),
    ("é" * 501, "é" * 499 + "…"),
    ("😀" * 100_000, "😀" * 499 + "…"),
    ("a\x1b[2J\ud800", "a\\u001b[2J\\ud800"),
]


@pytest.mark.parametrize(("purpose", "text"), PURPOSES, ids=range(len(PURPOSES)))
@pytest.mark.sampled(8)
def test_a_receipt_says_why_the_call_was_made(
    tmp_path: Path, kept: Kept, purpose: str | None, text: str | None
) -> None:
    async def run() -> None:
        async with at(tmp_path, kept, add).session("s") as session:
            assert (await session.call("add", {"a": 1}, purpose=purpose)).ok

    asyncio.run(run())
    decision, receipt = kept.entries()
    assert (decision["purpose"], receipt["purpose"]) == (None, text)
    assert (decision["caller"], receipt["caller"]) == (None, None)
    assert kept.verified().ok


def test_the_purpose_of_a_call_holds_no_secret_that_it_has_seen(tmp_path: Path, kept: Kept) -> None:
    async def run() -> None:
        here = at(tmp_path, kept, tell, parts={"secrets": {"KEY": SECRET}}, secrets=["KEY"])
        async with here.session("s") as session:
            await session.call("tell", {"said": "x"}, purpose=f"{'x' * 490}{SECRET}")

    asyncio.run(run())
    assert kept.receipt()["purpose"].startswith("x" * 490)
    assert all(SECRET[:8].encode() not in row.body for row in kept.rows())


@pytest.mark.parametrize("half", ["\ud800", "\udc80" * 3], ids=ascii)
def test_half_a_surrogate_pair_does_not_hide_a_secret_in_a_purpose(tmp_path: Path, kept: Kept, half: str) -> None:
    # A half that was dropped after the secrets were searched would join the parts of one.
    async def run() -> None:
        here = at(tmp_path, kept, tell, parts={"secrets": {"KEY": SECRET}}, secrets=["KEY"])
        async with here.session("s") as session:
            await session.call("tell", {"said": "x"}, purpose=f"a {half.join((SECRET[:5], SECRET[5:]))} b")

    asyncio.run(run())
    shown = "".join(f"\\u{ord(one):04x}" for one in half)
    assert kept.receipt()["purpose"] == f"a {SECRET[:5]}{shown}{SECRET[5:]} b"
    assert all(SECRET.encode() not in row.body for row in kept.rows())


def test_a_purpose_that_is_no_text_is_an_error_of_the_program(tmp_path: Path, kept: Kept) -> None:
    session = at(tmp_path, kept, add).session("s")
    with pytest.raises(TypeError, match="expected `purpose` to be text"):
        asyncio.run(session.call("add", {"a": 1}, purpose=7))  # type: ignore[arg-type]


def test_what_a_running_call_has_recorded_is_an_entry_of_its_own(tmp_path: Path, kept: Kept) -> None:
    assert call(at(tmp_path, kept, last, env=["A"]), "last").ok
    decision, refused, placed, receipt = kept.entries()
    assert [entry["kind"] for entry in kept.entries()] == ["decision", "progress", "progress", "receipt"]
    assert [entry["sequence"] for entry in kept.entries()] == [1, 2, 3, 4]
    assert [event["kind"] for event in refused["events"]] == ["SandboxEntered", "CapabilityDenied"]
    assert placed["events"] == [
        {"kind": "KeyPlaced", "capability": "secret:read:github/token", "rule": "api.github.com"}
    ]
    assert receipt["events"] == [*decision["events"], *refused["events"], *placed["events"]]
    assert (refused["budget"], refused["approvals"], refused["code"]) == (None, [], None)
    outcome = kept.verified()
    assert (outcome.ok, outcome.entries) == (True, 4)


# What a session has read in other processes ---------------------------------------------------------------------------


def test_a_reader_learns_what_was_written_since_it_has_looked(kept: Kept) -> None:
    async def play() -> None:
        ledger = kept.ledger
        assert await ledger.lengths_of("a", "s") == {}
        assert await ledger.entries_of("a", "s") == []
        others = [("b", "s"), ("a", "t"), ("ab", "s"), ("a?", "s"), ("a-b>c", "s")]  # of none of them
        for number in range(3):
            for agent, session in [("a", "s"), ("a>b", "s"), ("a>b>c", "s"), ("a>d", "t"), *others]:
                await ledger.record(_entry(f"{agent}-{session}-{number}", agent, session))
        known = {"a": 3, "a>b": 3, "a>b>c": 3}
        assert await ledger.lengths_of("a", "s") == known
        assert await ledger.lengths_of("a>b", "s") == {"a>b": 3, "a>b>c": 3}
        assert len(await ledger.entries_of("a", "s")) == 9
        assert await ledger.entries_of("a", "s", known) == []
        found = await ledger.entries_of("a", "s", {"a": 2, "a>b": 3})
        assert sorted(one.id for one in found) == ["a-s-2", "a>b>c-s-0", "a>b>c-s-1", "a>b>c-s-2"]

    asyncio.run(play())


def _entry(name: str, agent: str, session: str) -> Entry:
    time = "2026-01-01T00:00:00.000000Z"
    return Entry(kind="receipt", id=name, agent=agent, session=session, tool="t", time=time, manifest="")
