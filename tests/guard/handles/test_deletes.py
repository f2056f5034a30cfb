"""Deletes that need an approval, each or once a session: one is recorded as granted only if an approver agreed."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from guard.gates import call, checks, gate
from licet import Backends, Context, Gate, tool
from licet.backends.approvals.standing import MemoryStanding
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryClock
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import ApprovalAsked
from licet.core.policy.terms import StandingApproval
from licet.guard.held_paths import held_paths
from licet.guard.ports import Question, Unavailable
from licet.sandbox.native import InProcess


class Here(InProcess):
    """A sandbox without walls, for tools of every effect class."""

    def layers(self, level: str) -> tuple[str, ...]:
        return ()

    def run(self, level: str, call: Any, context: Any) -> Any:
        return super().run("native", call, context)


@tool(needs=["fs:read:${workdir}", "fs:delete:${workdir}"], effect="full", sandbox="restricted")
async def tidy(ctx: Context) -> str:
    """Delete a file, and go on without if that is not to be."""
    try:
        await ctx.fs.delete("old.txt")
    except Exception:
        return "kept"
    return "gone"


def desk(folder: Path, approver: Any, which: Any = tidy, *, given: bool = False, **more: Any) -> Gate:
    """A gate that pins its policy; with `given`, a standing approval covers the deletes."""
    clock = MemoryClock()
    standing = MemoryStanding(lambda: clock.now().timestamp())
    files = MemoryFiles({f"{folder}/old.txt": "x"})
    allowed: dict[str, Any] = {
        "max_side_effect_class": "full",
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]},
        "budget": {"max_calls_per_session": 9},
    }
    at = gate(
        folder,
        which,
        backends=Backends.memory(files=files, approver=approver, sandbox=Here(), standing=standing, clock=clock),
        native=[],
        **{**allowed, **more},
    )
    if given:
        manifest = at.manifest
        rules, terms = [f"fs:delete:{folder}"], manifest.approvals
        kept = asyncio.run(standing.give(manifest.digest, manifest.agent, str(folder), rules, terms, 30))
        at.standing_approval = kept.request.id
        at.reload(manifest)
    return at


ANSWERS: dict[str, tuple[Any, str]] = {
    "yes": ("approved", ""),
    "no": ("denied", "APPROVAL_DENIED"),
    "too late": ("expired", "APPROVAL_EXPIRED"),
    "nobody": ("absent", "APPROVAL_REQUIRED"),
    "an unknown word": ("Approved", "APPROVAL_REQUIRED"),
    "nothing": (None, "APPROVAL_REQUIRED"),
    "a truth": (True, "APPROVAL_REQUIRED"),
}


def answering(word: Any) -> Any:
    """An approver that always says the same."""

    async def approver(question: Question) -> Any:
        return word

    return approver


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_delete_is_recorded_as_it_was_answered(tmp_path: Path, answer: str) -> None:
    word, reason = ANSWERS[answer]
    result = call(desk(tmp_path, answering(word)), "tidy")
    assert result.value == ("kept" if reason else "gone")
    told = [(type(event).__name__, event.capability, event.reason) for event in checks(result.events)]
    kind = "CapabilityDenied" if reason else "CapabilityGranted"
    assert told == [
        ("CapabilityGranted", "tool:call:tidy", ""),
        (kind, f"fs:delete:{tmp_path}/old.txt", reason),
    ]


def test_a_broken_store_of_approvals_refuses_the_delete_but_not_the_call(tmp_path: Path) -> None:
    async def approver(question: Any) -> Any:
        raise Unavailable("no space left")

    result = call(desk(tmp_path, approver), "tidy")
    assert result.value == "kept"
    assert [(event.capability, event.reason) for event in checks(result.events)][1:] == [
        (f"fs:delete:{tmp_path}/old.txt", "BACKEND_MISSING")
    ]


@tool(needs=["fs:delete:${workdir}"], effect="full", sandbox="restricted", cost_usd="0.25")
async def sweep(ctx: Context) -> None:
    """Delete a file, for money."""
    await ctx.fs.delete("old.txt")


STOPPED = ("no", "too late", "nobody")
IT_RAN = "  it ran        until there and cost 0.25 USD; called again, it runs from the start and costs again"


@pytest.mark.parametrize("answer", STOPPED)
def test_explain_of_a_call_refused_at_a_delete_says_that_it_ran_and_its_cost(tmp_path: Path, answer: str) -> None:
    word, reason = ANSWERS[answer]
    result = call(desk(tmp_path, answering(word), sweep), "sweep")
    assert result.reason == reason
    told = result.explain().splitlines()
    assert told[-2] == IT_RAN
    if reason == "APPROVAL_REQUIRED":
        assert told[1] == f"  because       each delete asks at class full ({sweep.spec.origin})"


def test_explain_of_a_call_that_never_started_does_not_say_that_it_ran(tmp_path: Path) -> None:
    result = call(desk(tmp_path, answering("denied"), sweep, approvals={"write": "call"}), "sweep")
    assert result.reason == "APPROVAL_DENIED"
    assert "it ran" not in result.explain()


# approvals.delete -----------------------------------------------------------------------------------------------------


@tool(needs=["fs:write:${workdir}", "fs:delete:${workdir}", "network:*:a.example"], effect="full", sandbox="restricted")
async def sort(ctx: Context) -> None:
    """Delete and rename."""
    await ctx.fs.write("new.txt", "new")
    await ctx.fs.rename("new.txt", "newer.txt")
    await ctx.fs.delete("newer.txt")
    await ctx.fs.delete("old.txt")


class Asked:
    """An approver that agrees, and remembers what it was asked."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Any:
        self.questions.append(question)
        return "approved"


STANDING = {"write": "manifest", "delete": "manifest"}
# What `approvals` says, whether a standing approval was given -> the questions of the first call, and of two.
MODES: dict[str, tuple[dict[str, str], bool, list[tuple[bool, str]], int]] = {
    "each": ({"write": "manifest"}, False, [(False, "newer.txt"), (False, "new.txt"), (False, "old.txt")], 6),
    "once a session": ({"write": "manifest", "delete": "session"}, False, [(True, "")], 1),
    "once a session, with writes": ({"write": "session", "delete": "session"}, False, [(True, "")], 1),
    "with each call": ({"write": "call", "delete": "session"}, False, [(True, "")], 2),
    "by a standing approval": (STANDING, True, [], 0),
    "a pinned policy without one": (STANDING, False, [(True, "")], 1),
    "one that the policy does not ask for": ({"write": "manifest", "delete": "session"}, True, [(True, "")], 1),
}


@pytest.mark.parametrize("where", ["fs_reach", "grants"])
@pytest.mark.parametrize("mode", MODES)
def test_deletes_ask_as_approvals_delete_says(tmp_path: Path, mode: str, where: str) -> None:
    approvals, given, first, in_all = MODES[mode]
    asked = Asked()
    reach = {"fs_reach": {"write": ["${workdir}"]}, "grants": ["fs:write:${workdir}", "fs:delete:${workdir}"]}
    allowed: dict[str, Any] = {"fs_reach": {}} | {where: reach[where]} | {"destinations": {"allow": ["a.example"]}}
    at = desk(tmp_path, asked, sort, given=given, approvals=approvals, **allowed)
    result = call(at, "sort")
    assert result.ok, result.explain()
    found = [(question.approval.deletes, question.approval.use.rpartition("/")[2]) for question in asked.questions]
    assert sorted(found) == sorted(first)
    deletes = [f"fs:delete:{tmp_path}"]
    assert all([*question.deletes] == (deletes if question.approval.deletes else []) for question in asked.questions)
    granted = {event.capability for event in checks(result.events) if event.capability.startswith("fs:delete:")}
    assert granted == {f"fs:delete:{tmp_path}/{name}" for name in ("new.txt", "newer.txt", "old.txt")}
    assert at.ports.files is not None
    at.ports.files.write(f"{tmp_path}/old.txt", b"x", held_paths(CapabilitySet(("fs:*:*",))))
    assert call(at, "sort").ok
    assert len(asked.questions) == in_all
    cited = [True] if mode == "by a standing approval" else [deletes for deletes, _ in first]
    assert [agreed.approval.deletes for agreed in result.approvals] == cited
    assert [agreed.standing for agreed in result.approvals] == [mode == "by a standing approval" for _ in cited]


@pytest.mark.parametrize("answer", STOPPED)
def test_a_call_whose_deletes_nobody_approves_does_not_start(tmp_path: Path, answer: str) -> None:
    word, reason = ANSWERS[answer]
    result = call(desk(tmp_path, answering(word), sweep, approvals={"delete": "session"}), "sweep")
    assert result.reason == reason
    assert "it ran" not in result.explain()
    asked = [event.rule for event in result.events if isinstance(event, ApprovalAsked)]
    assert ["deletes of files ask once a session" in rule for rule in asked] == [True]


def test_a_receipt_says_how_deletes_were_approved(tmp_path: Path) -> None:
    at = desk(tmp_path, Asked(), tidy, approvals={"delete": "session"})
    result = call(at, "tidy")
    entry = receipts(at)[-1]
    assert [one.deletes for one in entry.approvals] == [True]
    assert any("its deletes of files are approved once a session" in rule for rule in entry.rules)
    (granted,) = [event for event in checks(result.events) if event.capability.endswith("old.txt")]
    assert "`approvals.delete: session`" in granted.rule


# A standing approval --------------------------------------------------------------------------------------------------


def receipts(at: Gate) -> list[Any]:
    ledger: Any = at.ports.ledger
    return [one for one in ledger.entries if one.kind == "receipt"]


def test_a_receipt_cites_the_standing_approval(tmp_path: Path) -> None:
    at = desk(tmp_path, None, given=True, approvals=STANDING)
    result = call(at, "tidy")
    assert result.value == "gone"
    entry, given = receipts(at)[-1], at.standing_approval
    assert [(one.request, one.by, one.deletes, one.standing) for one in entry.approvals] == [
        (given, ("terminal",), True, True)
    ]
    assert any(f"approved by the standing approval {given}, until 2026-01-31" in rule for rule in entry.rules)
    (granted,) = [event for event in checks(result.events) if event.capability.endswith("old.txt")]
    assert f"`approvals.delete: manifest`, standing approval {given}" in granted.rule


def withdrawn(at: Gate) -> None:
    store: Any = at.ports.standing
    asyncio.run(store.withdraw(store._kept[at.standing_approval]))


def ended(at: Gate) -> None:
    clock: Any = at.clock
    clock.advance(30 * 86_400)


def turned_back(at: Gate) -> None:
    clock: Any = at.clock
    clock._start -= timedelta(days=1)


ENDS = {
    "withdrawn": (withdrawn, "was withdrawn"),
    "after its time": (ended, "ended at 2026-01-31T00:00:00.000Z"),
    "before it was given": (turned_back, "begins in the future"),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_next_call_asks_once_a_standing_approval_does_not_count(tmp_path: Path, how: str) -> None:
    ends, why = ENDS[how]
    asked = Asked()
    at = desk(tmp_path, asked, given=True, approvals=STANDING)
    ends(at)
    result = call(at, "tidy")
    assert result.value == "gone"
    assert [question.approval.deletes for question in asked.questions] == [True]
    assert why in asked.questions[0].why
    assert not any(one.standing for one in result.approvals)
    assert call(at, "tidy").value == "kept"  # the file is gone; the session was asked once
    assert len(asked.questions) == 1


@pytest.mark.parametrize("how", ENDS)
def test_a_delete_asks_if_the_approval_ends_while_the_call_runs(tmp_path: Path, how: str) -> None:
    holder: list[Gate] = []

    @tool(needs=["fs:delete:${workdir}"], effect="full", sandbox="restricted")
    async def slowly(ctx: Context) -> None:
        """Delete one file before the approval ends, and one after."""
        await ctx.fs.delete("old.txt")
        await asyncio.to_thread(ENDS[how][0], holder[0])
        await ctx.fs.delete("new.txt")

    asked = Asked()
    at = desk(tmp_path, asked, slowly, given=True, approvals=STANDING)
    assert at.ports.files is not None
    at.ports.files.write(f"{tmp_path}/new.txt", b"x", held_paths(CapabilitySet(("fs:*:*",))))
    holder.append(at)
    result = call(at, "slowly")
    assert result.ok, result.explain()
    assert [question.approval.use for question in asked.questions] == [f"fs:delete:{tmp_path}/new.txt"]


def test_a_program_without_the_id_asks(tmp_path: Path) -> None:
    asked = Asked()
    at = desk(tmp_path, asked, given=True, approvals=STANDING)
    at.standing_approval = None
    at.reload(at.manifest)
    assert call(at, "tidy").value == "gone"
    assert [question.approval.deletes for question in asked.questions] == [True]


def test_an_id_that_nobody_knows_approves_nothing(tmp_path: Path) -> None:
    asked = Asked()
    at = desk(tmp_path, asked, given=True, approvals=STANDING)
    at.standing_approval = "a-000000000000"
    at.reload(at.manifest)
    assert call(at, "tidy").value == "gone"
    assert "there is no standing approval `a-000000000000` here" in asked.questions[0].why


def test_a_manifest_cannot_bring_its_own_standing_approval(tmp_path: Path) -> None:
    asked = Asked()
    at = desk(tmp_path, asked, approvals=STANDING)
    forged = StandingApproval("a-1", at.manifest.digest, ("terminal",), ("fs:delete:*",), 2**50)
    at.reload(replace(at.manifest, standing=forged))
    assert call(at, "tidy").value == "gone"
    assert len(asked.questions) == 1


def test_a_delegate_deletes_under_the_approval_of_its_parent(tmp_path: Path) -> None:
    at = desk(tmp_path, None, given=True, approvals=STANDING)

    async def delegated() -> Any:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=["fs:*:${workdir}".replace("${workdir}", str(tmp_path))])
            first = await child.call("tidy")
            await asyncio.to_thread(withdrawn, at)
            return first, await child.call("tidy")

    first, second = asyncio.run(delegated())
    assert (first.value, second.reason) == ("gone", "APPROVAL_REQUIRED")


# One question ---------------------------------------------------------------------------------------------------------


def deleting(fn: Any, effect: Any = "full") -> Any:
    """A tool that deletes what its arguments name."""
    return tool(needs=["fs:delete:${workdir}"], effect=effect, sandbox="restricted")(fn)


@deleting
async def remove(ctx: Context, path: str) -> None:
    """Delete a file."""
    await ctx.fs.delete(path)


@deleting
async def remove_typed(ctx: Context, which: Path) -> None:
    """Delete a file."""
    await ctx.fs.delete(which)


@deleting
async def remove_all(ctx: Context, paths: list[str]) -> None:
    """Delete files."""
    for path in paths:
        await ctx.fs.delete(path)


@deleting
async def remove_what(ctx: Context, what: str) -> None:
    """Delete a file."""
    await ctx.fs.delete(what)


# The tool, its arguments -> the deletes that the one question names.
FORESEEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "by the name of the argument": (remove, {"path": "old.txt"}),
    "by its type": (remove_typed, {"which": "old.txt"}),
    "of a list": (remove_all, {"paths": ["old.txt"]}),
    "of a destructive call": (deleting(remove.fn, "destructive"), {"path": "./old.txt"}),
}


@pytest.mark.parametrize("case", FORESEEN)
def test_one_question_names_and_covers_the_deletes_that_arguments_foresee(tmp_path: Path, case: str) -> None:
    which, arguments = FORESEEN[case]
    questions: list[Question] = []

    def approver(question: Question) -> str:  # a plain function gets one question, too
        questions.append(question)
        return "approved"

    at = desk(tmp_path, approver, which, max_side_effect_class="destructive", approvals={"write": "session"})
    result = call(at, which.name, arguments)
    assert result.ok, result.explain()
    assert [question.acts for question in questions] == [(f"fs:delete:{tmp_path}/old.txt",)]
    assert [agreed.approval.use for agreed in result.approvals] == ["", f"fs:delete:{tmp_path}/old.txt"]


def test_a_delete_that_no_argument_foresees_asks_when_it_happens(tmp_path: Path) -> None:
    asked = Asked()
    at = desk(tmp_path, asked, remove_what, approvals={"write": "session"})
    assert call(at, "remove_what", {"what": "old.txt"}).ok
    assert [(question.approval.use, question.acts) for question in asked.questions] == [
        ("", ()),
        (f"fs:delete:{tmp_path}/old.txt", ()),
    ]


def test_a_call_that_asks_nothing_asks_nothing_for_what_it_may_delete(tmp_path: Path) -> None:
    @tool(needs=["fs:read:${workdir}", "fs:delete:${workdir}"], effect="full", sandbox="restricted")
    async def look(ctx: Context, path: str) -> str:
        """Read a file, and delete nothing."""
        return await ctx.fs.read(path)

    asked = Asked()
    at = desk(tmp_path, asked, look, approvals={"write": "manifest"})
    assert call(at, "look", {"path": "old.txt"}).value == "x"
    assert asked.questions == []


def test_a_path_outside_of_the_grant_is_not_asked_about(tmp_path: Path) -> None:
    asked = Asked()
    call(desk(tmp_path, asked, remove, approvals={"write": "session"}), "remove", {"path": "/etc/passwd"})
    assert [question.acts for question in asked.questions] == [()]
