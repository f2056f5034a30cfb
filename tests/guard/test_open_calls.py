"""Calls that stay open after their decision: run later, ended by somebody else, kept for another process."""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from guard.gates import gate
from guard.interrupting import interrupted
from licet import Backends, Context, Gate, Refused, Result, Tool, tool
from licet.backends.approvals.agent_prompt import AgentPrompt
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import MemoryLedger
from licet.core.algebra.rules import use_of_path
from licet.core.ledger.entry import AgentFact, Entry, LinkedEntry, read_entry
from licet.core.values import money_text
from licet.guard.bind import BoundContext, parts_of
from licet.guard.facts import Call
from licet.guard.open_call import CallNotOpen, close_reported, kept, never_ran, open_call, restored, run_open
from licet.guard.session import Session

RAN: list[str] = []


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a loop of its own."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


CLAUDE = AgentFact(name="claude", version="2.1.326", call="toolu_1", event="PreToolUse")


@tool(needs=["fs:write:${workdir}"], effect="write_limited", sandbox="native", cost_usd="0.25")
async def edit(ctx: Context, path: str, text: str = "x") -> str:
    """Write a file."""
    RAN.append(path)
    await ctx.fs.write(path, text)
    return path


class Place:
    """One policy over stores that several gates share, as several processes do."""

    def __init__(self, folder: Path, approver: Any = None, *tools: Tool, **capabilities: Any) -> None:
        self.ledger: MemoryLedger = MemoryLedger()
        self.budgets = MemoryBudgets()
        self.folder, self.approver, self.tools = folder, approver, tools or (edit,)
        self.capabilities = {
            "fs_reach": {"write": [str(folder)]},
            "budget": {"max_cost_usd": 10, "max_calls_per_session": 100},
            **capabilities,
        }

    def gate(self, **changes: Any) -> Gate:
        backends = Backends.memory(
            ledger=self.ledger,
            budgets=self.budgets,
            approver=self.approver,
            files={f"{self.folder}/keep": ""},
        )
        return gate(self.folder, *self.tools, backends=backends, **{**self.capabilities, **changes})

    @property
    def entries(self) -> list[LinkedEntry]:
        return [read_entry(row.body) for row in self.ledger.rows]

    @property
    def last(self) -> LinkedEntry:
        return self.entries[-1]

    async def spent(self) -> tuple[int, str]:
        day = self.entries[0].time[:10]
        usage = await self.budgets.usage("tester", "s", day)
        return usage.calls, money_text(usage.cost_usd)


async def opened(session: Session, path: str = "a", **more: Any) -> Call:
    found = await open_call(session, session.admission, "edit", {"path": path}, "why", **more)
    assert isinstance(found, Call), found
    return found


def facts(entry: LinkedEntry) -> dict[str, Any]:
    """What an entry says, without what differs between two calls of the same."""
    found: dict[str, Any] = msgspec.to_builtins(entry)
    return {
        name: value
        for name, value in found.items()
        if name not in ("id", "time", "recorded", "duration_ms", "previous", "sequence", "ledger", "budget")
    }


def again(place: Place, data: bytes, **changes: Any) -> Call:
    """The call in another process."""
    return restored(place.gate(**changes).session("s"), data)


@in_a_loop
async def test_a_call_that_is_opened_and_run_is_the_same_call(tmp_path: Path) -> None:
    place = Place(tmp_path)
    session = place.gate().session("s")
    whole = await session.call("edit", {"path": "a"}, purpose="why")
    parts = await run_open(await opened(session))
    at_once, in_parts = [[*map(facts, some)] for some in (place.entries[:2], place.entries[2:])]
    for entry in at_once:  # the first call of the session says so
        entry["events"] = tuple(event for event in entry["events"] if event["kind"] != "SessionOpened")
    assert in_parts == at_once
    assert (parts.value, parts.ok, parts.code) == (whole.value, True, "ok")
    assert await place.spent() == (2, "0.5")


@in_a_loop
async def test_a_call_is_open_after_its_decision_and_before_anything_runs(tmp_path: Path) -> None:
    RAN.clear()
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"))
    assert [(one.kind, one.id) for one in place.entries] == [("decision", call.receipt)]
    assert (RAN, call.running, await place.spent()) == ([], False, (1, "0.25"))
    await never_ran(call, "the person said no")


@in_a_loop
async def test_a_call_that_is_refused_is_not_opened(tmp_path: Path) -> None:
    place = Place(tmp_path)
    session = place.gate().session("s")
    result = await open_call(session, session.admission, "other", {}, agent=CLAUDE)
    assert isinstance(result, Result)
    assert (result.reason, place.last.kind, place.last.reason) == ("UNKNOWN_TOOL", "receipt", "UNKNOWN_TOOL")
    assert place.last.coding_agent == CLAUDE


REPORTS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "done": ({"result": "fine"}, (True, "ok", "ALLOWED", None, "reported")),
    "failed": (
        {"result": "no such file", "failed": True},
        (False, "execution_failed", "TOOL_FAILED", "TOOL_FAILED: the agent reports that it failed", "reported"),
    ),
    "unknown": (
        {"end": "unknown"},
        (False, "execution_failed", "TOOL_FAILED", "TOOL_FAILED: nobody has reported how it ended", "unknown"),
    ),
}


@pytest.mark.parametrize("case", REPORTS)
@in_a_loop
async def test_a_call_is_closed_with_the_end_that_somebody_reports(tmp_path: Path, case: str) -> None:
    RAN.clear()
    given, (ok, code, reason, error, end) = REPORTS[case]
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"), agent=CLAUDE)
    result = await close_reported(call, **given)
    receipt = place.last
    assert (result.ok, receipt.code, receipt.reason, receipt.error, receipt.verdict) == (
        ok,
        code,
        reason,
        error,
        "allow",
    )
    assert receipt.coding_agent == AgentFact(
        name="claude", version="2.1.326", call="toolu_1", event="PreToolUse", end=end
    )
    assert place.entries[0].coding_agent == CLAUDE  # nobody knew its end then
    assert (RAN, receipt.sandbox.layers, result.layers, receipt.cost_usd) == ([], (), (), "0.25")
    assert result.value == given.get("result")
    assert await place.spent() == (1, "0.25")
    assert [event.kind for event in receipt.events] == [
        "SessionOpened",
        "BudgetReserved",
        "CapabilityGranted",
        "BudgetSettled",
    ]


@in_a_loop
async def test_a_call_that_never_ran_costs_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"), agent=CLAUDE)
    result = await never_ran(call, "another hook refused it")
    assert (result.code, result.error) == ("denied", "INTERRUPTED: another hook refused it")
    assert (place.last.verdict, place.last.cost_usd, place.last.coding_agent) == ("deny", "0", CLAUDE)
    assert await place.spent() == (0, "0")
    assert [event.kind for event in place.last.events][-3:] == [
        "CapabilityGranted",
        "CapabilityDenied",
        "BudgetRefunded",
    ]


Ending = Callable[[Call], Awaitable[Result]]
ENDS: dict[str, Ending] = {
    "run": run_open,
    "reported": close_reported,
    "refused": lambda call: never_ran(call, "no"),
}


@pytest.mark.parametrize("end", ENDS)
@in_a_loop
async def test_a_call_is_closed_once(tmp_path: Path, end: str) -> None:
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"))
    await ENDS[end](call)
    written, spent = len(place.entries), await place.spent()
    for other in ENDS.values():
        with pytest.raises(CallNotOpen):
            await other(call)
    with pytest.raises(CallNotOpen):
        kept(call)
    assert (len(place.entries), await place.spent()) == (written, spent)


@in_a_loop
async def test_two_tasks_that_close_a_call_at_once_write_one_receipt(tmp_path: Path) -> None:
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"))
    found = await asyncio.gather(close_reported(call), close_reported(call), return_exceptions=True)
    assert sorted(type(one).__name__ for one in found) == ["CallNotOpen", "Result"]
    assert [one.kind for one in place.entries] == ["decision", "receipt"]


class WaitingLedger(MemoryLedger):
    """A ledger that lets other tasks run before and after it keeps an entry."""

    async def record(self, entry: Entry) -> None:
        await asyncio.sleep(0)
        await super().record(entry)
        await asyncio.sleep(0)


MOMENTS = {"once": (False, False), "late": (False, True), "at each wait": (True, False), "late at each": (True, True)}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("end", ENDS)
def test_a_call_that_is_cancelled_at_any_wait_of_its_parts_has_a_receipt(tmp_path: Path, end: str, moment: str) -> None:
    again, late = MOMENTS[moment]
    place = Place(tmp_path)
    place.ledger = WaitingLedger()
    at = place.gate()

    async def parts(session: Session) -> Result:
        return await ENDS[end](await opened(session))

    async def everywhere() -> int:
        for first in itertools.count(1):
            work = interrupted(parts(at.session(f"s{first}")), first, again=again, late=late)
            calling = asyncio.ensure_future(awaited(work))
            await asyncio.wait([calling])
            if not calling.cancelled():
                assert calling.result().receipt
                return first
        raise AssertionError

    assert asyncio.run(everywhere()) > 3
    found: dict[str, list[str]] = {}
    for entry in place.entries:
        found.setdefault(entry.session, []).append(entry.kind)
    assert {tuple(kinds) for kinds in found.values()} <= {("receipt",), ("decision", "receipt")}
    assert not place.budgets._held


async def awaited(work: Awaitable[Result]) -> Result:
    return await work


# Another process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
@in_a_loop
async def test_a_kept_call_ends_in_another_process_as_in_its_own(tmp_path: Path, end: str) -> None:
    RAN.clear()
    place, other = Place(tmp_path), Place(tmp_path)
    await ENDS[end](await opened(place.gate().session("s"), agent=CLAUDE))
    data = kept(await opened(other.gate().session("s"), agent=CLAUDE))
    call = again(other, data)
    assert call.receipt == other.last.id
    await ENDS[end](call)
    assert [facts(one) for one in other.entries] == [facts(one) for one in place.entries]
    assert [one.budget for one in other.entries] == [one.budget for one in place.entries]
    assert [one.id for one in other.entries] == [call.receipt] * 2
    assert await other.spent() == await place.spent()
    assert len(RAN) == 2 * (end == "run")


@in_a_loop
async def test_a_kept_call_is_canonical_and_survives_being_kept_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    data = kept(await opened(place.gate().session("s"), agent=CLAUDE))
    assert kept(again(place, data)) == data
    assert msgspec.json.encode(msgspec.json.decode(data), order="sorted") == data


@in_a_loop
async def test_a_restored_call_holds_no_handle_and_has_its_times(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = await opened(place.gate().session("s"))
    call = again(place, kept(first))
    assert call.redactor is None
    assert call.charged is None
    assert call.grant is not None
    assert not call.grant.over
    assert call.time == first.time
    assert call.request == first.request
    assert call.arguments == first.arguments
    assert abs(call.started - first.started) < 60
    result = await run_open(call)
    assert result.ok
    assert [event.receipt for event in result.events] == [first.receipt] * len(result.events)
    assert [event.duration_ms for event in result.events] == sorted(event.duration_ms for event in result.events)


@in_a_loop
async def test_observers_see_each_event_once_over_both_processes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    seen: list[str] = []
    for at, finish in ((place.gate(), None), (place.gate(), run_open)):
        at.observers = (lambda event: seen.append(type(event).__name__),)
        if finish is None:
            data = kept(await opened(at.session("s")))
        else:
            await finish(restored(at.session("s"), data))
    assert seen == [event.kind for event in place.last.events]


@in_a_loop
async def test_a_use_that_is_checked_while_the_call_is_open_is_in_its_receipt(tmp_path: Path) -> None:
    place = Place(tmp_path)
    call = await opened(place.gate().session("s"))
    assert call.grant is not None
    await call.grant.permit(use_of_path("write", "a", str(tmp_path)))
    call = again(place, kept(call))
    assert call.grant is not None
    await call.grant.permit(use_of_path("write", "b", str(tmp_path)))
    await close_reported(call)
    named = [event.capability for event in place.last.events if event.kind == "CapabilityGranted"]
    assert named[1:] == [f"fs:write:{tmp_path}/a", f"fs:write:{tmp_path}/b"]


@in_a_loop
async def test_an_approval_of_an_open_call_is_kept(tmp_path: Path) -> None:
    approver = MemoryApprover(lambda question: "approved")
    place = Place(tmp_path, approver, approvals={"write": "call"})
    call = again(place, kept(await opened(place.gate().session("s"))))
    await close_reported(call)
    assert [one.by for one in place.last.approvals] == [("callback",)]
    assert len(approver.asked) == 1


OTHERS: dict[str, tuple[str, Callable[[Place, bytes], Call]]] = {
    "session": ("another session", lambda place, data: restored(place.gate().session("t"), data)),
    "delegate": (
        "another session",
        lambda place, data: restored(place.gate().session("s").delegate(agent="sub", allow=["fs:*:*"]), data),
    ),
    "policy": ("policy has changed", lambda place, data: again(place, data, limits={"wall_seconds": 7})),
    "arguments": ("the arguments", lambda place, data: again(place, data.replace(b'\\"a\\"', b'\\"b\\"'))),
    "no text": ("cannot be read", lambda place, data: again(place, data[:-1])),
    "another kind": ("cannot be read", lambda place, data: again(place, b"{}")),
    "an event": ("cannot be read", lambda place, data: again(place, data.replace(b"BudgetReserved", b"BudgetWasted"))),
}


@pytest.mark.parametrize("case", OTHERS)
@in_a_loop
async def test_a_call_of_something_else_is_not_restored(tmp_path: Path, case: str) -> None:
    text, attempt = OTHERS[case]
    place = Place(tmp_path)
    data = kept(await opened(place.gate().session("s")))
    with pytest.raises(CallNotOpen, match=text):
        attempt(place, data)
    assert [one.kind for one in place.entries] == ["decision"]


@pytest.mark.parametrize("what", ["end", "freeze", "reload"])
@in_a_loop
async def test_an_open_call_does_not_run_after_the_end_of_what_allowed_it(tmp_path: Path, what: str) -> None:
    RAN.clear()
    place = Place(tmp_path)
    at = place.gate()
    session = at.session("s")
    call = await opened(session)
    match what:
        case "end":
            await session.end()
        case "freeze":
            at.freeze()
        case "reload":
            at.reload(place.gate(limits={"wall_seconds": 7}).manifest)
    result = await run_open(call)
    reasons = {"end": "SESSION_ENDED", "freeze": "FROZEN", "reload": "MANIFEST_CHANGED"}
    assert (result.reason, RAN, await place.spent()) == (reasons[what], [], (0, "0"))
    assert place.last.reason == reasons[what]


@in_a_loop
async def test_a_call_whose_session_has_ended_is_still_closed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    session = place.gate().session("s")
    call = await opened(session, agent=CLAUDE)
    await session.end()
    await close_reported(call, result="done")
    assert (place.last.code, await place.spent()) == ("ok", (1, "0.25"))


@in_a_loop
async def test_arguments_that_json_cannot_carry_are_not_kept(tmp_path: Path) -> None:
    @tool(needs=[], effect="read_only", sandbox="native")
    async def pair(two: tuple[int, int]) -> int:
        """Take more than JSON."""
        return sum(two)

    place = Place(tmp_path, None, pair)
    session = place.gate().session("s")
    call = await open_call(session, session.admission, "pair", {"two": [1, 2]})
    assert isinstance(call, Call)
    with pytest.raises(TypeError, match="cannot be kept"):
        kept(call)
    assert (await run_open(call)).value == 3


# The agent's own prompt ---------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_question_in_the_agents_prompt_is_recorded_as_such(tmp_path: Path) -> None:
    place = Place(tmp_path, approvals={"write": "session"})
    session = place.gate().session("s")
    for number in (1, 2):  # it is about one call, so the next one is asked about again
        prompt = AgentPrompt()
        call = again(place, kept(await opened(session, approver=prompt, agent=CLAUDE)))
        assert len(prompt.asked) == 1, number
        await close_reported(call)
        assert [one.by for one in place.last.approvals] == [("asked in the agent",)]
        assert isinstance(place.last.coding_agent, AgentFact)
        assert place.last.coding_agent.asked


@pytest.mark.parametrize("approvals", [{"quorum": 2}, {"keys": []}])
@pytest.mark.parametrize("first", [None, "store"])
@in_a_loop
async def test_the_agents_prompt_is_no_signature(tmp_path: Path, approvals: dict[str, Any], first: str | None) -> None:
    class Store:
        verifies = True

        async def ask(self, question: Any) -> Any:
            return "absent"

    place = Place(tmp_path, approvals={"write": "call", **approvals})
    session = place.gate().session("s")
    prompt = AgentPrompt(Store() if first else None)
    result = await open_call(session, session.admission, "edit", {"path": "a"}, approver=prompt, agent=CLAUDE)
    assert isinstance(result, Result)
    assert (result.reason, prompt.asked, place.last.approvals) == ("APPROVAL_REQUIRED", [], ())


@pytest.mark.parametrize("answer", ["approved", "denied"])
@in_a_loop
async def test_an_answer_that_there_is_already_is_not_asked_for_in_the_agent(tmp_path: Path, answer: Any) -> None:
    place = Place(tmp_path, MemoryApprover(lambda question: answer), approvals={"write": "call"})
    session = place.gate().session("s")
    prompt = AgentPrompt(place.approver)
    found = await open_call(session, session.admission, "edit", {"path": "a"}, approver=prompt)
    assert (prompt.asked, isinstance(found, Call)) == ([], answer == "approved")


@tool(needs=["fs:write:${workdir}"], effect="write_limited", sandbox="native", cost_usd="0.25")
async def settled(ctx: Context) -> None:
    """Be refused, and have that on disk at once."""
    with suppress(Refused):
        await ctx.fs.write("/elsewhere", "x")
    await parts_of(cast("BoundContext", ctx)).grant.settle()


@in_a_loop
async def test_what_a_restored_call_settles_follows_its_decision(tmp_path: Path) -> None:
    place = Place(tmp_path, None, settled)
    session = place.gate().session("s")
    call = await open_call(session, session.admission, "settled", {}, "why")
    assert isinstance(call, Call)
    assert call.grant is not None
    call.grant.check(use_of_path("write", f"{tmp_path}/a"))  # as a hook does, after the decision
    assert (await run_open(again(place, kept(call)))).ok
    decision, progress, receipt = place.entries
    assert [entry.kind for entry in place.entries] == ["decision", "progress", "receipt"]
    assert [event.kind for event in progress.events] == ["CapabilityGranted", "SandboxEntered", "CapabilityDenied"]
    assert receipt.events[: len(decision.events) + 3] == (*decision.events, *progress.events)
