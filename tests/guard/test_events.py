"""The events of a call, in order: for observers, in the result, and in the ledger."""

import asyncio
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from guard.gates import call, gate, policy
from licet import Backends, Context, Gate, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import MemorySecrets
from licet.core.ledger.entry import entry_fields
from licet.guard.execution import Stopped
from licet.guard.ports import Reservation, Unavailable
from licet.sandbox.native import InProcess

SECRET = "hunter2-and-some-more"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Here(InProcess):
    """A sandbox that runs every level in this process, or stops the tool with a limit."""

    def layers(self, level: str) -> tuple[str, ...]:
        return ("glass",)

    def run(self, level: str, call: Any, context: Any) -> Any:
        if call.tool.name == "endless":
            raise Stopped("LIMIT_CPU", "endless used too much")
        return super().run("native", call, context)


@tool(needs=["env:read:A"], effect="read_only", sandbox="native", cost_usd="0.40")
async def look(ctx: Context, name: str = "A") -> str | None:
    """Look at a variable, and report what that costs."""
    ctx.charge("0.10")
    return ctx.env.get(name)


@tool(needs=["env:read:A"], effect="read_only", sandbox="native", available=lambda ctx: False)
async def absent() -> None:
    """Never there."""


@tool(needs=[], effect="read_only", sandbox="native")
async def endless() -> None:
    """Run into a limit."""


@tool(needs=["fs:read:${workdir}", "fs:delete:${workdir}", "secret:read:KEY"], effect="full", sandbox="restricted")
async def tidy(ctx: Context) -> None:
    """Delete a file that is called as a secret is."""
    await ctx.fs.delete(await ctx.secrets.get("KEY"))


@tool(needs=["fs:write:${workdir}"], effect="write_limited", sandbox="native")
async def write(ctx: Context) -> None:
    """Write a file."""
    await ctx.fs.write("new.txt", "x")


class Forgetful(MemoryBudgets):
    """A store of budgets that cannot settle."""

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        raise Unavailable("the disk is full")


class Case(NamedTuple):
    """A call and its expected events: their kinds, with other fields."""

    tool: Any
    expected: list[tuple[str, ...]]
    arguments: Mapping[str, Any] = NOTHING
    parts: Mapping[str, Any] = NOTHING
    capabilities: Mapping[str, Any] = NOTHING
    answer: str = "absent"
    ended: bool = False
    twice: bool = False


BUDGET = {"budget": {"max_cost_usd": 9}}
WRITES: dict[str, Any] = {
    "max_side_effect_class": "full",
    "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]},
    "secrets": ["KEY"],
    "budget": {"max_calls_per_session": 9},
}
ASKING: dict[str, Any] = {"fs_reach": {"write": ["${workdir}"]}, "approvals": {"write": "session"}}
OPENED, ENTERED = ("SessionOpened",), ("SandboxEntered", "native: glass")
CASES: dict[str, Case] = {
    "a call that runs": Case(
        look, [OPENED, ("CapabilityGranted", "tool:call:look"), ENTERED, ("CapabilityGranted", "env:read:A")]
    ),
    "money is set aside and settled at what was charged": Case(
        look,
        [
            OPENED,
            ("BudgetReserved", "0.4 USD"),
            ("CapabilityGranted", "tool:call:look"),
            ENTERED,
            ("CapabilityGranted", "env:read:A"),
            ("BudgetSettled", "0.1 USD"),
        ],
        capabilities=BUDGET,
    ),
    "what a refusal ends is settled too": Case(
        look,
        [
            OPENED,
            ("BudgetReserved", "0.4 USD"),
            ("CapabilityGranted", "tool:call:look"),
            ENTERED,
            ("CapabilityDenied", "env:read:B", "ENV_NOT_ALLOWED"),
            ("BudgetSettled", "0.1 USD"),
        ],
        {"name": "B"},
        capabilities=BUDGET,
    ),
    "a call that cannot run reserves nothing": Case(
        absent,
        [OPENED, ("CapabilityDenied", "tool:call:absent", "TOOL_NOT_AVAILABLE")],
        capabilities=BUDGET,
    ),
    "a store that cannot settle": Case(
        endless,
        [
            OPENED,
            ("BudgetReserved",),
            ("CapabilityGranted", "tool:call:endless"),
            ENTERED,
            ("SandboxStopped", "LIMIT_CPU"),
            ("CapabilityDenied", "tool:call:endless", "LIMIT_CPU"),
            ("BudgetUnsettled", "Unavailable"),
        ],
        parts={"budgets": Forgetful()},
        capabilities=BUDGET,
    ),
    "nothing is left to spend": Case(
        look,
        [OPENED, ("CapabilityDenied", "tool:call:look", "BUDGET_EXCEEDED")],
        capabilities={"budget": {"max_cost_usd": 0.1}},
    ),
    "a person agrees, and is not asked again": Case(
        write,
        [
            ("ApprovalRemembered",),
            ("CapabilityGranted", "tool:call:write"),
            ENTERED,
            ("CapabilityGranted", "fs:write:{workdir}/new.txt"),
        ],
        capabilities=ASKING,
        answer="approved",
        twice=True,
    ),
    "a person agrees": Case(
        write,
        [
            OPENED,
            ("ApprovalAsked", "class write_limited asks once a session ({manifest}:1)"),
            ("ApprovalAnswered", "approved"),
            ("CapabilityGranted", "tool:call:write"),
            ENTERED,
            ("CapabilityGranted", "fs:write:{workdir}/new.txt"),
        ],
        capabilities=ASKING,
        answer="approved",
    ),
    "a person says no": Case(
        write,
        [
            OPENED,
            ("ApprovalAsked", "class write_limited asks once a session ({manifest}:1)"),
            ("ApprovalAnswered", "denied"),
            ("CapabilityDenied", "tool:call:write", "APPROVAL_DENIED"),
        ],
        capabilities=ASKING,
        answer="denied",
    ),
    "a delete asks, and its path is made of a secret": Case(
        tidy,
        [
            OPENED,
            ("BudgetReserved",),
            ("CapabilityGranted", "tool:call:tidy"),
            ("SandboxEntered", "restricted: glass"),
            ("CapabilityGranted", "secret:read:KEY"),
            (
                "ApprovalAsked",
                "fs:delete:{workdir}/[redacted KEY]",
                f"each delete asks at class full ({tidy.spec.origin})",
            ),
            ("ApprovalAnswered", "fs:delete:{workdir}/[redacted KEY]", "approved"),
            ("CapabilityGranted", "fs:delete:{workdir}/[redacted KEY]"),
            ("BudgetSettled",),
        ],
        capabilities=WRITES,
        answer="approved",
    ),
    "a session that has ended": Case(
        look, [("SessionEnded",), ("CapabilityDenied", "tool:call:look", "SESSION_ENDED")], ended=True
    ),
}


def short_form(event: Any) -> tuple[str, ...]:
    """An event in short form: without the rules of a check, and without the tool that all events have."""
    kind, check = type(event).__name__, type(event).__name__.startswith("Capability")
    about = event.capability if check or not event.capability.startswith("tool:call:") else ""
    return tuple(filter(None, (kind, about, event.reason, "" if check else event.rule)))


@pytest.mark.parametrize("name", CASES)
def test_events_are_in_order(tmp_path: Path, name: str) -> None:
    case, seen = CASES[name], list[Any]()
    ledger, approver = MemoryLedger(), MemoryApprover(lambda _: case.answer)  # type: ignore[arg-type,return-value]
    files, secrets = MemoryFiles({f"{tmp_path}/{SECRET}": "x"}), MemorySecrets({"KEY": SECRET})
    given = {"ledger": ledger, "approver": approver, "files": files, "secrets": secrets, "environ": {"A": "1"}}
    backends = Backends.memory(**{**given, "sandbox": Here(), **case.parts})
    native = [case.tool.name] if case.tool.spec.sandbox == "native" else []
    allowed = policy(tmp_path, case.tool, **{"env": ["A"], "native": native, **case.capabilities})
    at = Gate(allowed, [case.tool], backends, workdir=tmp_path, observers=[seen.append])

    async def calls() -> Any:
        session = at.session("s")
        if case.ended:
            await session.end()
        if case.twice:
            await session.call(case.tool.name, case.arguments)
            seen.clear()
        return await session.call(case.tool.name, case.arguments)

    result = asyncio.run(calls())
    places = {"workdir": tmp_path, "manifest": allowed.origin.file}
    expected = [tuple(word.format(**places) for word in event) for event in case.expected]
    assert [short_form(event) for event in result.events] == expected
    receipt = entry_fields(ledger.rows[-1].body)
    assert [event["kind"] for event in receipt["events"]] == [kind for kind, *_ in expected]
    kept = str([row.body for row in ledger.rows])
    assert SECRET not in kept + repr(result.events) + repr(result.approvals)
    assert [short_form(event)[0] for event in seen] == [kind for kind, *_ in expected]


def test_events_in_an_entry_do_not_repeat_its_other_fields(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    backends = Backends.memory(ledger=ledger, environ={"A": "1"})
    call(gate(tmp_path, look, backends=backends, env=["A"], budget={"max_cost_usd": 9}), "look")
    decision, receipt = (entry_fields(row.body) for row in ledger.rows)
    assert decision["events"] == receipt["events"][:3]
    opened, reserved, _, entered, _, settled = receipt["events"]
    assert (opened, entered, settled) == (
        {"kind": "SessionOpened"},
        {"kind": "SandboxEntered"},
        {"kind": "BudgetSettled"},
    )
    assert reserved == {"kind": "BudgetReserved", "rule": "0.4 USD"}
    assert (receipt["cost_usd"], receipt["sandbox"]["layers"]) == ("0.1", ["handles", "declared, not enforced"])


def test_only_the_first_call_of_a_session_opens_it(tmp_path: Path) -> None:
    at = gate(tmp_path, endless)

    async def calls() -> list[str]:
        results = [await session.call("endless") for session in (at.session("s"), at.session("t")) for _ in range(2)]
        return [type(result.events[0]).__name__ for result in results]

    assert asyncio.run(calls()) == ["SessionOpened", "CapabilityGranted"] * 2


FAILING: dict[str, Callable[[Any], bool]] = {
    kind: lambda event, kind=kind: type(event).__name__ == kind  # type: ignore[misc]
    for kind in ("SessionOpened", "BudgetReserved", "SandboxEntered", "BudgetSettled")
}


@pytest.mark.parametrize("kind", FAILING)
def test_an_observer_that_fails_at_any_event_refuses(tmp_path: Path, kind: str) -> None:
    budgets = MemoryBudgets()

    def watch(event: Any) -> None:
        if FAILING[kind](event):
            raise RuntimeError("watching failed")

    backends = Backends.memory(environ={"A": "1"}, budgets=budgets)
    allowed = policy(tmp_path, look, env=["A"], budget={"max_cost_usd": 9})
    result = call(Gate(allowed, [look], backends, workdir=tmp_path, observers=[watch]), "look")
    assert (result.ok, result.reason) == (False, "DECISION_FAILED")
    assert (result.cost_usd != 0) == (kind == "BudgetSettled")  # what did not run costs nothing
    assert not budgets._held
