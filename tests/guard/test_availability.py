"""Availability checks that hang: a call times out, and `available` leaves the tool out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from licet import Backends, Gate, load_manifest, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.testing import MemoryLedger


async def forever(here: Any) -> bool:
    await asyncio.Event().wait()
    return True


@tool(needs=[], effect="read_only", sandbox="native", available=forever)
async def waiting() -> str:
    """Say that it ran."""
    return "ran"


@tool(needs=[], effect="read_only", sandbox="native")
async def ready() -> str:
    """Say that it ran."""
    return "ran"


def test_a_call_times_out_if_its_availability_check_hangs(tmp_path: Path) -> None:
    result = call(gate(tmp_path, waiting, limits={"wall_seconds": 1}), "waiting")
    assert (result.code, result.reason) == ("timed_out", "LIMIT_TIME")
    assert result.error == "LIMIT_TIME: the availability check of waiting took longer than 1 seconds"
    assert result.layers == ()  # it has not run


def test_a_tool_whose_availability_check_hangs_is_not_listed(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, ready, limits={"wall_seconds": 1})

    async def offered() -> list[str]:
        async with at.session("s") as session:
            return await asyncio.wait_for(session.available(), 60)

    assert asyncio.run(offered()) == ["ready"]


def test_listing_the_tools_can_be_cancelled(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, limits={"wall_seconds": 600})

    async def stopped() -> bool:
        async with at.session("s") as session:
            asking = asyncio.create_task(session.available())
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            return asking.cancelled()

    assert asyncio.run(stopped())


# Nobody is asked about a call that cannot run -------------------------------------------------------------------------


def not_here(here: Any) -> bool:
    return False


def with_key(here: Any) -> Any:
    return here.secret("KEY")


async def with_undeclared(here: Any) -> bool:
    return bool(await here.secret("OTHER"))


ASKS = {"write": "call"}
NEEDS: dict[str, Any] = {"needs": ["fs:write:${workdir}"], "effect": "write_limited", "sandbox": "native"}


@tool(**NEEDS, available=not_here)
async def broken() -> str:
    """Never runs."""
    return "ran"


@tool(**NEEDS)
async def writes() -> str:
    """Say that it ran."""
    return "ran"


# The tool, what its backends lack -> the reason.
CANNOT_RUN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "its availability check fails": (broken, {}, "TOOL_NOT_AVAILABLE"),
    "it has no files": (writes, {"files": None}, "BACKEND_MISSING"),
    "it has no sandbox": (writes, {"sandbox": None}, "SANDBOX_UNAVAILABLE"),
}


@pytest.mark.parametrize("case", CANNOT_RUN)
def test_nobody_is_asked_about_a_call_that_cannot_run(tmp_path: Path, case: str) -> None:
    which, parts, reason = CANNOT_RUN[case]
    approver, budgets = MemoryApprover(lambda _: "approved"), MemoryBudgets()
    backends = Backends.memory(**{"approver": approver, "budgets": budgets, **parts})
    more: dict[str, Any] = {"fs_reach": {"write": ["${workdir}"]}, "budget": {"max_calls_per_session": 1}}
    at = gate(tmp_path, which, backends=backends, **more, max_side_effect_class="write_limited", approvals=ASKS)
    result = call(at, which.name)
    assert (result.reason, approver.asked) == (reason, [])
    assert asyncio.run(budgets.usage("a", "s", "2026-01-01")).calls == 0


SECRET: dict[str, Any] = {"effect": "read_only", "sandbox": "native"}


@tool(needs=["secret:read:KEY"], **SECRET, available=with_key)
async def keyed() -> str:
    """Say that it ran."""
    return "ran"


@tool(needs=["secret:read:KEY"], **SECRET, available=with_undeclared)
async def curious() -> str:
    """Never runs: it asks about a secret that it does not declare."""
    return "ran"


SOURCES: dict[str, tuple[Any, Any, str]] = {
    "the secret exists": (keyed, {"KEY": "value"}, "ALLOWED"),
    "the secret is missing": (keyed, {}, "TOOL_NOT_AVAILABLE"),
    "a secret that is not declared": (curious, {"KEY": "value", "OTHER": "value"}, "TOOL_NOT_AVAILABLE"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_an_availability_check_asks_whether_a_secret_exists(tmp_path: Path, case: str) -> None:
    which, secrets, reason = SOURCES[case]
    at = gate(tmp_path, which, backends=Backends.memory(secrets=secrets), secrets=["KEY"])
    result = call(at, which.name)
    assert result.reason == reason
    assert "value" not in str(result.events)


def raises(here: Any) -> bool:
    raise RuntimeError("between us")


def says_a_path(here: Any) -> Any:
    return "/usr/bin/true"


def without_program(here: Any) -> bool:
    return here.program("nosuch") is not None


HERE = __file__
LINE, FIRST = raises.__code__.co_firstlineno, not_here.__code__.co_firstlineno
# What `available=` is, what the call and every list say of it, and where its author is sent.
WHYS: dict[str, tuple[Any, str, str]] = {
    "no": (
        not_here,
        "its availability check says that it cannot run here",
        f"{HERE}:{not_here.__code__.co_firstlineno}",
    ),
    "an error": (raises, "its availability check raised RuntimeError", f"{HERE}:{LINE + 1}"),
    "an undeclared program": (without_program, "its availability check raised Refused", f"{HERE}:"),
    "a text": (
        says_a_path,
        "its availability check says that it cannot run here: it returned `str`, and not True",
        f"{HERE}:",
    ),
    "never": (False, "it is declared with `available=False`", "declare it without `available=False`"),
}


@pytest.mark.parametrize("case", WHYS)
def test_who_wrote_a_check_is_told_what_it_came_to_and_where(tmp_path: Path, case: str) -> None:
    check, why, where = WHYS[case]

    @tool(needs=[], effect="read_only", sandbox="native", available=check)
    async def picky() -> str:
        """Never runs."""
        return "ran"

    at = gate(tmp_path, picky)

    async def listed() -> dict[str, str]:
        async with at.session("s") as session:
            return await session.unavailable()

    result = call(at, "picky")
    assert (result.reason, result.error) == ("TOOL_NOT_AVAILABLE", f"TOOL_NOT_AVAILABLE: picky cannot run here: {why}")
    assert asyncio.run(listed()) == {"picky": why}
    assert where in result.explain()
    assert "between us" not in result.explain()


def test_a_tool_that_is_declared_available_always_runs(tmp_path: Path) -> None:
    @tool(needs=[], effect="read_only", sandbox="native", available=True)
    async def steady() -> str:
        """Say that it ran."""
        return "ran"

    assert call(gate(tmp_path, steady), "steady").value == "ran"
    with pytest.raises(TypeError, match="`available` must be True, False, or a function"):
        tool(needs=[], available="yes")  # type: ignore[call-overload]


async def often(here: Any) -> bool:
    for _ in range(4200):
        here.env("OFTEN")
    return True


@tool(needs=["env:read:OFTEN"], effect="read_only", sandbox="native", available=often)
def after_many() -> int:
    """Run after more checks than a receipt lists."""
    return 1


def test_a_receipt_has_each_event_once_though_the_check_made_more_than_it_lists(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "agent: a\nversion: '1'\ncapabilities: {tools: [after_many], native: [after_many], env: [OFTEN]}\n"
    )
    ledger = MemoryLedger()
    backends = Backends.memory(environ={"OFTEN": "x"}, ledger=ledger)
    gate = Gate(load_manifest(tmp_path / "agent.yaml"), [after_many], backends)
    assert call(gate, "after_many").value == 1
    events = ledger.receipts[-1].events
    assert [one.kind for one in events].count("SandboxEntered") == 1
    assert sum("more checks were granted" in str(one.rule) for one in events) == 1
