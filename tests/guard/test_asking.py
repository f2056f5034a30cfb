"""Approvals, budgets and delegates on the path of a call."""

import asyncio
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from guard.gates import gate
from licet import Backends, CapabilitySet, Context, Gate, Result, load_manifest, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryClock
from licet.guard.ports import Answer, Question


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def note(ctx: Context, text: str) -> None:
    """Write a note."""
    await ctx.fs.write("note.txt", text)


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
async def paid(amount: str | None = None, fail: bool = False) -> str:
    """Cost something."""
    if fail:
        raise ValueError("no")
    return "done"


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
async def metered(ctx: Context, amounts: list[str]) -> None:
    """Report what it costs."""
    for amount in amounts:
        ctx.charge(amount)


def writing(folder: Path, write: str, answer: Any = None, **more: Any) -> tuple[Gate, MemoryApprover]:
    """A gate whose writes need an approval, and its approver."""
    approver = MemoryApprover(answer)
    backends = Backends.memory(approver=approver, files=MemoryFiles({f"{folder}/keep": ""}), **more)
    reach = {"write": [str(folder)]}
    return gate(folder, note, backends=backends, fs_reach=reach, approvals={"write": write}), approver


def calls(at: Gate, *arguments: dict[str, Any], tool: str = "note", session: str = "s") -> list[Result]:
    """Several calls in one session, one after the other."""

    async def run() -> list[Result]:
        async with at.session(session) as opened:
            return [await opened.call(tool, given) for given in arguments]

    return asyncio.run(run())


ANSWERS: dict[Answer, tuple[bool, str]] = {
    "approved": (True, "ALLOWED"),
    "denied": (False, "APPROVAL_DENIED"),
    "expired": (False, "APPROVAL_EXPIRED"),
    "absent": (False, "APPROVAL_REQUIRED"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_has_its_own_reason(tmp_path: Path, answer: Answer) -> None:
    at, approver = writing(tmp_path, "call", lambda question: answer)
    result = calls(at, {"text": "x"})[0]
    assert (result.ok, result.reason) == ANSWERS[answer]
    assert result.code == ("ok" if result.ok else "denied")
    assert len(approver.asked) == 1


class Plainly:
    """An approver whose `ask` is an ordinary function, which may wait for a person."""

    def ask(self, question: Question) -> Answer:
        time.sleep(0.01)
        return "approved"


def _yes(question: Question) -> Answer:
    return "approved"


@pytest.mark.parametrize("approver", [Plainly(), _yes], ids=["an object", "a function"])
def test_an_approver_need_not_be_async(tmp_path: Path, approver: Any) -> None:
    backends = Backends.memory(approver=approver, files=MemoryFiles({f"{tmp_path}/keep": ""}))
    at = gate(tmp_path, note, backends=backends, fs_reach={"write": [str(tmp_path)]}, approvals={"write": "call"})
    assert calls(at, {"text": "x"})[0].ok


@pytest.mark.parametrize("answer", ["Approved", "", None, True, 1, ["approved"], {"answer": "approved"}])
def test_an_unknown_answer_is_no_approval(tmp_path: Path, answer: Any) -> None:
    at, approver = writing(tmp_path, "call", lambda question: answer)
    result = calls(at, {"text": "x"})[0]
    assert not result.ok
    assert len(approver.asked) == 1


def test_without_an_answer_the_call_is_refused_with_a_fix(tmp_path: Path) -> None:
    at, _ = writing(tmp_path, "session")
    nobody = Gate(at.manifest, [note], Backends.memory(approver=None), workdir=tmp_path)
    for one in (at, nobody):
        result = calls(one, {"text": "x"})[0]
        assert result.reason == "APPROVAL_REQUIRED"
        assert "write: manifest" in result.explain()


def test_an_approval_of_one_call_holds_for_no_other(tmp_path: Path) -> None:
    at, approver = writing(tmp_path, "call", lambda question: "approved")
    assert all(result.ok for result in calls(at, {"text": "a"}, {"text": "b"}, {"text": "a"}))
    asked = [question.approval for question in approver.asked]
    assert len(asked) == 3
    assert asked[0] != asked[1]
    assert asked[0].arguments.startswith("sha256:")
    assert [question.arguments for question in approver.asked] == [{"text": "a"}, {"text": "b"}, {"text": "a"}]


def test_an_approval_of_a_session_holds_for_that_session(tmp_path: Path) -> None:
    at, approver = writing(tmp_path, "session", lambda question: "approved")
    assert all(result.ok for result in calls(at, {"text": "a"}, {"text": "b"}, session="one"))
    assert len(approver.asked) == 1
    assert calls(at, {"text": "a"}, session="two")[0].ok
    assert [question.approval.session for question in approver.asked] == ["one", "two"]


def test_reopening_a_session_continues_what_was_agreed_to_in_it_until_it_expires(tmp_path: Path) -> None:
    clock = MemoryClock()
    at, approver = writing(tmp_path, "session", lambda question: "approved", clock=clock)
    asked = []
    for seconds in (0, 299, 1):
        clock.advance(seconds)
        assert calls(at, {"text": "a"}, session="one")[0].ok
        asked.append(len(approver.asked))
    assert asked == [1, 1, 2]


def test_what_was_agreed_to_in_a_session_that_ended_or_expired_is_not_kept(tmp_path: Path) -> None:
    clock = MemoryClock()
    at, _ = writing(tmp_path, "session", lambda question: "approved", clock=clock)

    async def run() -> list[int]:
        kept = []
        for name in ("one", "two"):
            async with at.session(name) as session:
                assert (await session.call("note", {"text": "a"})).ok
                kept.append(len(at.agreed))
        await session.end()
        kept.append(len(at.agreed))
        clock.advance(300)
        assert (await at.session("three").call("note", {"text": "a"})).ok
        return [*kept, len(at.agreed)]

    assert asyncio.run(run()) == [1, 2, 1, 1]


def test_reloading_another_manifest_voids_approvals(tmp_path: Path) -> None:
    at, approver = writing(tmp_path, "session", lambda question: "approved")

    async def run() -> int:
        async with at.session("s") as session:
            assert (await session.call("note", {"text": "a"})).ok
            other, _ = writing(tmp_path, "session")
            at.reload(other.manifest)
            assert (await session.call("note", {"text": "a"})).ok
            same = len(approver.asked)
            (tmp_path / "agent.yaml").write_text((tmp_path / "agent.yaml").read_text().replace('"1.0"', '"1.1"'))
            at.reload(load_manifest(tmp_path / "agent.yaml"))
            assert (await session.call("note", {"text": "a"})).ok
            return same

    assert asyncio.run(run()) == 2
    assert len(approver.asked) == 3


def test_the_deadline_is_paused_while_an_approver_is_asked(tmp_path: Path) -> None:
    class Slow:
        async def ask(self, question: Question) -> Answer:
            await asyncio.sleep(1.3)
            return "approved"

    files = MemoryFiles({f"{tmp_path}/keep": ""})
    backends = Backends.memory(approver=Slow(), files=files)
    at = gate(
        tmp_path,
        note,
        backends=backends,
        fs_reach={"write": [str(tmp_path)]},
        approvals={"write": "call"},
        limits={"wall_seconds": 1},
    )
    started = time.monotonic()
    assert calls(at, {"text": "x"})[0].ok
    assert time.monotonic() - started > 1


def test_a_budget_is_never_passed(tmp_path: Path) -> None:
    at = gate(tmp_path, paid, budget={"max_cost_usd": 1.0})
    results = calls(at, {}, {}, {}, tool="paid")
    assert [result.reason for result in results] == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]
    assert [result.cost_usd for result in results] == [Decimal("0.40"), Decimal("0.40"), Decimal(0)]
    assert "max_cost_usd" in results[2].explain()


def test_a_budget_holds_under_concurrency_and_a_refused_call_costs_nothing(tmp_path: Path) -> None:
    at = gate(tmp_path, paid, budget={"max_calls_per_session": 10})

    async def run() -> list[Result]:
        async with at.session("s") as session:
            return await session.call_many([("paid", {"fail": n % 2 == 0}) for n in range(40)])

    reasons = [result.reason for result in asyncio.run(run())]
    assert reasons.count("BUDGET_EXCEEDED") == 30
    invalid = calls(gate(tmp_path, paid, budget={"max_calls_per_session": 1}), {"fail": 5}, {}, tool="paid")
    assert [result.reason for result in invalid] == ["INPUT_INVALID", "ALLOWED"]


def test_reopening_a_session_continues_its_budget_and_another_day_is_another_budget(tmp_path: Path) -> None:
    clock = MemoryClock()
    backends = Backends.memory(clock=clock)
    at = gate(tmp_path, paid, backends=backends, budget={"max_cost_usd_per_day": 0.8})
    assert [result.ok for result in calls(at, {}, {}, tool="paid", session="one")] == [True, True]
    assert calls(at, {}, tool="paid", session="two")[0].reason == "BUDGET_EXCEEDED"
    clock.advance(86_400)
    assert calls(at, {}, tool="paid", session="two")[0].ok


def test_a_budget_without_a_backend_refuses(tmp_path: Path) -> None:
    at = gate(tmp_path, paid, backends=Backends.memory(budgets=None), budget={"max_calls_per_session": 1})
    assert calls(at, {}, tool="paid")[0].reason == "BACKEND_MISSING"


CHARGES = {
    "nothing": ([], "0.40", "ALLOWED"),
    "less": (["0.10", "0.05"], "0.15", "ALLOWED"),
    "all": (["0.40"], "0.40", "ALLOWED"),
    "more": (["0.30", "0.11"], "0.30", "BUDGET_EXCEEDED"),
    "negative": (["-1"], "0.40", "TOOL_FAILED"),
    "no number": (["NaN"], "0.40", "TOOL_FAILED"),
}


@pytest.mark.parametrize("case", CHARGES)
def test_a_tool_reports_what_it_cost_and_never_more_than_it_declares(tmp_path: Path, case: str) -> None:
    amounts, cost, reason = CHARGES[case]
    result = calls(gate(tmp_path, metered), {"amounts": amounts}, tool="metered")[0]
    assert (result.cost_usd, result.reason) == (Decimal(cost), reason)


@tool(needs=["env:read:*"], effect="read_only", sandbox="native")
async def look(ctx: Context, name: str) -> str | None:
    """Read a variable."""
    return ctx.env.get(name)


@tool(needs=["storage:*:session"], effect="read_only", sandbox="native")
async def remember(ctx: Context, value: str | None = None) -> list[Any]:
    """Keep a value in the session; who keeps it, and what is kept."""
    if value is not None:
        await ctx.kv.set("value", value)
    return [ctx.agent, await ctx.kv.get("value")]


def delegated(at: Gate, tool: str, arguments: dict[str, Any], *allow: str, deny: tuple[str, ...] = ()) -> Result:
    """One call by a delegate."""

    async def run() -> Result:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=CapabilitySet(allow, deny) if deny else allow)
            return await child.call(tool, arguments)

    return asyncio.run(run())


def test_a_delegate_holds_what_both_allow_and_never_more(tmp_path: Path) -> None:
    at = gate(tmp_path, look, paid, backends=Backends.memory(environ={"A": "1", "B": "2", "C": "3"}), env=["A", "B"])
    assert delegated(at, "look", {"name": "A"}, "env:read:A").value == "1"
    assert delegated(at, "look", {"name": "B"}, "env:read:A").reason == "ENV_NOT_ALLOWED"
    assert delegated(at, "look", {"name": "C"}, "env:read:*").reason == "ENV_NOT_ALLOWED"
    assert delegated(at, "look", {"name": "A"}).reason == "ENV_NOT_ALLOWED"
    assert delegated(at, "paid", {}, "env:read:A").ok
    assert delegated(at, "paid", {}, "env:read:A", "tool:call:look").reason != "ALLOWED"


DENIED: dict[str, tuple[str, dict[str, Any], tuple[str, ...], str]] = {
    "beside the deny": ("look", {"name": "A"}, ("env:read:B",), "ALLOWED"),
    "what is denied": ("look", {"name": "B"}, ("env:read:B",), "ENV_NOT_ALLOWED"),
    "the whole domain": ("look", {"name": "A"}, ("env:read:*",), "ENV_NOT_ALLOWED"),
    "a tool": ("look", {"name": "A"}, ("tool:call:look",), "TOOL_NOT_IN_BUNDLE"),
    "beside the tool": ("paid", {}, ("tool:call:look",), "ALLOWED"),
    "storage that every ceiling has": ("remember", {}, ("storage:*:session",), "STORAGE_NOT_DECLARED"),
    "beside the storage": ("remember", {}, ("storage:*:tool-private",), "ALLOWED"),
}


@pytest.mark.parametrize("case", DENIED)
def test_the_denies_of_a_delegation_apply(tmp_path: Path, case: str) -> None:
    name, given, deny, reason = DENIED[case]
    at = gate(tmp_path, look, paid, remember, backends=Backends.memory(environ={"A": "1", "B": "2"}), env=["A", "B"])
    result = delegated(at, name, given, "env:read:*", "tool:call:*", deny=deny)
    assert result.reason == reason
    assert result.ok or "delegate" in result.explain() or reason == "TOOL_NOT_IN_BUNDLE"


def test_a_delegation_with_only_denies_of_tools_allows_no_tool(tmp_path: Path) -> None:
    at = gate(tmp_path, look, paid)
    assert delegated(at, "paid", {}, deny=("tool:call:look",)).reason == "TOOL_NOT_IN_BUNDLE"


LEFT_OUT: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "not named": (("tool:call:look",), (), "add `tool:call:paid` to `allow` where the parent delegates"),
    "denied": (("tool:call:*",), ("tool:call:paid",), "remove `tool:call:paid` from `deny` where the parent delegates"),
    "both": (
        ("tool:call:look",),
        ("tool:call:paid",),
        (
            "remove `tool:call:paid` from `deny` where the parent delegates; "
            "add `tool:call:paid` to `allow` where the parent delegates"
        ),
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_the_refusal_of_a_tool_outside_a_delegation_names_the_delegation(tmp_path: Path, case: str) -> None:
    allow, deny, fix = LEFT_OUT[case]
    result = delegated(gate(tmp_path, look, paid), "paid", {}, *allow, deny=deny)
    assert result.reason == "TOOL_NOT_IN_BUNDLE"
    told = result.explain().splitlines()
    assert [line for line in told if line.startswith("  because")] == [
        "  because       the delegation to `tester>helper` leaves `paid` out (delegate(agent='tester>helper'))"
    ]
    assert [line for line in told if line.startswith("  to allow it")] == [f"  to allow it   {fix}"]


def test_a_delegation_that_names_no_tool_leaves_none_out(tmp_path: Path) -> None:
    """The refusal names the delegation below, which lists tools, and not this one."""

    async def run() -> Result:
        async with gate(tmp_path, look, paid).session("s") as session:
            second = session.delegate(agent="one", allow=["env:read:A"]).delegate(agent="two", allow=["tool:call:look"])
            return await second.call("paid")

    told = asyncio.run(run()).explain()
    assert "the delegation to `tester>one>two` leaves `paid` out" in told
    assert "the delegation to `tester>one` " not in told


def test_a_denied_use_of_a_delegate_names_the_place_of_the_deny(tmp_path: Path) -> None:
    at = gate(tmp_path, look, backends=Backends.memory(environ={"B": "2"}), env=["A", "B"])
    told = delegated(at, "look", {"name": "B"}, "env:read:*", deny=("env:read:B",)).explain()
    assert "remove `env:read:B` from `deny` where the parent delegates" in told


def test_allow_must_be_a_list_and_not_a_text(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list"):
        gate(tmp_path, paid).session("s").delegate(agent="helper", allow="fs:read:/srv")


def test_a_delegate_spends_the_money_of_its_first_session(tmp_path: Path) -> None:
    at = gate(tmp_path, paid, budget={"max_calls_per_session": 2})

    async def run() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=[])
            grandchild = child.delegate(agent="third", allow=[])
            who = (session, child, grandchild)
            return [(await one.call("paid")).reason for one in who]

    assert asyncio.run(run()) == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]


def test_a_delegate_ends_and_freezes_with_its_parent(tmp_path: Path) -> None:
    at = gate(tmp_path, paid)

    async def run() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=[])
            at.freeze()
            frozen = (await child.call("paid")).reason
            at.thaw()
            fine = (await child.call("paid")).reason
        return [frozen, fine, (await child.call("paid")).reason]

    assert asyncio.run(run()) == ["FROZEN", "ALLOWED", "SESSION_ENDED"]


@pytest.mark.parametrize("agent", ["", "a b", "x" * 129])
def test_a_delegate_needs_a_name(tmp_path: Path, agent: str) -> None:
    async def run() -> None:
        async with gate(tmp_path, paid).session("s") as session:
            session.delegate(agent=agent, allow=[])

    with pytest.raises(ValueError, match="agent"):
        asyncio.run(run())


def test_a_plain_function_is_an_approver(tmp_path: Path) -> None:
    async def yes(question: Question) -> Answer:
        return "approved" if question.arguments == {"text": "x"} else "denied"

    backends = Backends.memory(approver=yes, files=MemoryFiles({f"{tmp_path}/keep": ""}))
    reach = {"write": [str(tmp_path)]}
    at = gate(tmp_path, note, backends=backends, fs_reach=reach, approvals={"write": "call"})
    assert [result.reason for result in calls(at, {"text": "x"}, {"text": "y"})] == ["ALLOWED", "APPROVAL_DENIED"]


def test_a_refusal_of_a_delegate_cites_the_delegation(tmp_path: Path) -> None:
    at = gate(tmp_path, look, backends=Backends.memory(environ={"A": "1", "B": "2"}), env=["A", "B"])
    told = delegated(at, "look", {"name": "B"}, "env:read:A").explain()
    assert "delegate(agent='tester>helper')" in told
    assert "add `env:read:B` to `allow` where the parent delegates" in told
    assert "capabilities.grants" not in told


class Thinking:
    """An approver that does something before it agrees."""

    def __init__(self, meanwhile: Any) -> None:
        self.meanwhile = meanwhile

    async def ask(self, question: Question) -> Answer:
        await self.meanwhile()
        return "approved"


@pytest.mark.parametrize("what", ["freeze", "end", "reload"])
def test_a_freeze_end_or_reload_while_an_approver_is_asked_refuses_the_call(tmp_path: Path, what: str) -> None:
    files = MemoryFiles({f"{tmp_path}/keep": ""})

    async def run() -> str:
        async def meanwhile() -> None:
            match what:
                case "freeze":
                    at.freeze()
                case "end":
                    await session.end()
                case "reload":
                    at.reload(at.manifest)

        backends = Backends.memory(approver=Thinking(meanwhile), files=files)
        reach = {"write": [str(tmp_path)]}
        at = gate(tmp_path, note, backends=backends, fs_reach=reach, approvals={"write": "call"})
        async with at.session("s") as session:
            return (await session.call("note", {"text": "x"})).reason

    assert asyncio.run(run()) == {"freeze": "FROZEN", "end": "SESSION_ENDED", "reload": "MANIFEST_CHANGED"}[what]


def test_an_approval_of_a_session_expires(tmp_path: Path) -> None:
    clock = MemoryClock()
    approver = MemoryApprover(lambda question: "approved")
    backends = Backends.memory(approver=approver, clock=clock, files=MemoryFiles({f"{tmp_path}/keep": ""}))
    approvals = {"write": "session", "expires_seconds": 60}
    at = gate(tmp_path, note, backends=backends, fs_reach={"write": [str(tmp_path)]}, approvals=approvals)

    async def run() -> None:
        async with at.session("s") as session:
            for seconds in (0, 59, 1):
                clock.advance(seconds)
                assert (await session.call("note", {"text": "x"})).ok

    asyncio.run(run())
    assert len(approver.asked) == 2


def test_a_quorum_is_not_met_by_an_approver_that_verifies_no_signatures(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    backends = Backends.memory(approver=approver, files=MemoryFiles({f"{tmp_path}/keep": ""}))
    approvals = {"write": "call", "quorum": 2}
    at = gate(tmp_path, note, backends=backends, fs_reach={"write": [str(tmp_path)]}, approvals=approvals)
    assert calls(at, {"text": "x"})[0].reason == "APPROVAL_REQUIRED"
    assert approver.asked == []


def test_a_reload_of_the_parent_reloads_its_delegate(tmp_path: Path) -> None:
    backends = Backends.memory(environ={"A": "1"})
    at = gate(tmp_path, look, backends=backends, env=["A"])

    async def run() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=["env:read:*"])
            before = (await child.call("look", {"name": "A"})).reason
            at.reload(gate(tmp_path, look, backends=backends, env=["B"]).manifest)
            return [before, (await child.call("look", {"name": "A"})).reason]

    assert asyncio.run(run()) == ["ALLOWED", "ENV_NOT_ALLOWED"]


def test_a_delegate_cannot_take_the_name_of_another_agent(tmp_path: Path) -> None:
    at = gate(tmp_path, paid)

    async def run() -> str:
        async with at.session("s") as session:
            return session.delegate(agent="billing", allow=[]).agent

    assert asyncio.run(run()) == "tester>billing"


def named(folder: Path, agent: str, backends: Backends) -> Gate:
    """A gate for an agent of this name."""
    manifest = {"agent": agent, "capabilities": {"tools": ["remember"], "native": ["remember"]}}
    (folder / "named.yaml").write_text(json.dumps(manifest))
    return Gate(load_manifest(folder / "named.yaml"), [remember], backends, workdir=folder)


def test_a_delegate_neither_reads_nor_ends_the_session_of_an_agent_with_a_slash_in_its_name(tmp_path: Path) -> None:
    backends = Backends.memory()
    desk, other = named(tmp_path, "desk", backends), named(tmp_path, "desk/helper", backends)

    async def run() -> list[Any]:
        async with desk.session("s") as session, other.session("s") as apart:
            await apart.call("remember", {"value": "private"})
            child = session.delegate(agent="helper", allow=[])
            seen = (await child.call("remember")).value
            await child.end()
            return [seen, (await apart.call("remember")).value]

    assert asyncio.run(run()) == [["desk>helper", None], ["desk/helper", "private"]]


def test_a_delegate_of_a_delegate_is_nobody_else(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with gate(tmp_path, remember).session("s") as session:
            below = session.delegate(agent="x", allow=[]).delegate(agent="y", allow=[])
            await below.call("remember", {"value": "x, then y"})
            return [(await one.call("remember")).value for one in (below, session.delegate(agent="x/y", allow=[]))]

    assert asyncio.run(run()) == [["tester>x>y", "x, then y"], ["tester>x/y", None]]


LARGE = (2**53 - 1, 2**53, 2**53 + 1, -(2**64), 10**400)


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def counted(number: int) -> str:
    """Take a number of any size."""
    return str(number)


@pytest.mark.parametrize("number", LARGE, ids=lambda number: f"{number:.4g}" if abs(number) < 10**99 else "huge")
def test_a_call_that_needs_approval_accepts_integers_of_any_size(tmp_path: Path, number: int) -> None:
    at = gate(tmp_path, counted, budget={"max_calls_per_session": 1})
    assert calls(at, {"number": number}, tool="counted")[0].value == str(number)


def test_an_approval_of_a_large_integer_covers_no_other(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    at = gate(
        tmp_path,
        counted,
        backends=Backends.memory(approver=approver),
        approvals={"write": "call"},
        fs_reach={"write": [str(tmp_path)]},
    )
    assert all(result.ok for result in calls(at, *({"number": number} for number in LARGE), tool="counted"))
    assert len({question.approval.arguments for question in approver.asked}) == len(LARGE)


def test_a_stored_request_shows_large_numbers_as_they_are(tmp_path: Path) -> None:
    from licet.backends.approvals.store import request_of

    approver = MemoryApprover(lambda question: "approved")
    backends = Backends.memory(approver=approver)
    reach = {"write": [str(tmp_path)]}
    at = gate(tmp_path, counted, backends=backends, approvals={"write": "call"}, fs_reach=reach)
    assert calls(at, {"number": 2**80}, tool="counted")[0].ok
    assert request_of(approver.asked[0], 0).arguments == approver.asked[0].approval.arguments
