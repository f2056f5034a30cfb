"""Deletes that need an approval, each or once a session: one is recorded as granted only if an approver agreed."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from guard.gates import call, checks, gate
from licet import Backends, Context, Gate, tool
from licet.backends.files.memory import MemoryFiles
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import ApprovalAsked
from licet.guard.held_paths import held_paths
from licet.guard.people import Question
from licet.guard.ports import Unavailable
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


def desk(folder: Path, approver: Any, which: Any = tidy, **more: Any) -> Gate:
    files = MemoryFiles({f"{folder}/old.txt": "x"})
    return gate(
        folder,
        which,
        backends=Backends.memory(files=files, approver=approver, sandbox=Here()),
        native=[],
        max_side_effect_class="full",
        fs_reach={"read": ["${workdir}"], "write": ["${workdir}"]},
        budget={"max_calls_per_session": 9},
        **more,
    )


ANSWERS: dict[str, tuple[Any, str]] = {
    "yes": ("approved", ""),
    "no": ("denied", "APPROVAL_DENIED"),
    "too late": ("expired", "APPROVAL_EXPIRED"),
    "nobody": ("absent", "APPROVAL_REQUIRED"),
    "an unknown word": ("Approved", "APPROVAL_REQUIRED"),
    "nothing": (None, "APPROVAL_REQUIRED"),
    "a truth": (True, "APPROVAL_REQUIRED"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_delete_is_recorded_as_it_was_answered(tmp_path: Path, answer: str) -> None:
    word, reason = ANSWERS[answer]

    async def approver(question: Any) -> Any:
        return word

    result = call(desk(tmp_path, approver), "tidy")
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


STOPPED: dict[str, tuple[Any, str]] = {
    "no": ("denied", "APPROVAL_DENIED"),
    "too late": ("expired", "APPROVAL_EXPIRED"),
    "nobody": ("absent", "APPROVAL_REQUIRED"),
}
IT_RAN = "  it ran        until there and cost 0.25 USD; called again, it runs from the start and costs again"


@pytest.mark.parametrize("answer", STOPPED)
def test_explain_of_a_call_refused_at_a_delete_says_that_it_ran_and_its_cost(tmp_path: Path, answer: str) -> None:
    word, reason = STOPPED[answer]

    async def approver(question: Any) -> Any:
        return word

    result = call(desk(tmp_path, approver, sweep), "sweep")
    assert result.reason == reason
    told = result.explain().splitlines()
    assert told[-2] == IT_RAN
    if reason == "APPROVAL_REQUIRED":
        assert told[1] == f"  because       each delete asks at class full ({sweep.spec.origin})"


def test_explain_of_a_call_that_never_started_does_not_say_that_it_ran(tmp_path: Path) -> None:
    async def approver(question: Any) -> Any:
        return "denied"

    result = call(desk(tmp_path, approver, sweep, approvals={"write": "call"}), "sweep")
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


PINNED = {"write": "manifest", "delete": "manifest"}
# What `approvals` says, whether the policy is pinned -> the questions of the first call, and of the second.
MODES: dict[str, tuple[dict[str, str], bool, list[tuple[bool, str]], int]] = {
    "each": ({"write": "manifest"}, True, [(False, "newer.txt"), (False, "new.txt"), (False, "old.txt")], 6),
    "once a session": ({"write": "manifest", "delete": "session"}, True, [(True, "")], 1),
    "once a session, with writes": ({"write": "session", "delete": "session"}, True, [(True, "")], 1),
    "with each call": ({"write": "call", "delete": "session"}, True, [(True, "")], 2),
    "in the pinned policy": (PINNED, True, [], 0),
    "in a policy that is not pinned": (PINNED, False, [(True, "")], 1),
}


@pytest.mark.parametrize("mode", MODES)
def test_deletes_ask_as_approvals_delete_says(tmp_path: Path, mode: str) -> None:
    approvals, pinned, first, in_all = MODES[mode]
    asked = Asked()
    at = desk(tmp_path, asked, sort, approvals=approvals, destinations={"allow": ["a.example"]})
    if not pinned:
        at.reload(replace(at.manifest, pinned=""))
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
    assert [agreed.approval.deletes for agreed in result.approvals] == [deletes for deletes, _ in first]


@pytest.mark.parametrize("answer", STOPPED)
def test_a_call_whose_deletes_nobody_approves_does_not_start(tmp_path: Path, answer: str) -> None:
    word, reason = STOPPED[answer]

    async def approver(question: Any) -> Any:
        return word

    result = call(desk(tmp_path, approver, sweep, approvals={"delete": "session"}), "sweep")
    assert result.reason == reason
    assert "it ran" not in result.explain()
    asked = [event.rule for event in result.events if isinstance(event, ApprovalAsked)]
    assert ["deletes inside `fs_reach.write` ask once a session" in rule for rule in asked] == [True]


def test_a_delete_that_grants_allow_asks_although_deletes_were_approved(tmp_path: Path) -> None:
    asked = Asked()
    at = gate(
        tmp_path,
        tidy,
        backends=Backends.memory(files=MemoryFiles({f"{tmp_path}/old.txt": "x"}), approver=asked, sandbox=Here()),
        native=[],
        max_side_effect_class="full",
        fs_reach={"read": ["${workdir}"], "write": ["${workdir}/other"]},
        grants=["fs:delete:${workdir}"],
        approvals={"delete": "session"},
        budget={"max_calls_per_session": 9},
    )
    assert call(at, "tidy").value == "gone"
    assert [(one.approval.deletes, one.approval.use) for one in asked.questions] == [
        (True, ""),
        (False, f"fs:delete:{tmp_path}/old.txt"),
    ]


def test_a_receipt_says_how_deletes_were_approved(tmp_path: Path) -> None:
    at = desk(tmp_path, Asked(), tidy, approvals={"delete": "session"})
    result = call(at, "tidy")
    ledger: Any = at.ports.ledger
    entry = [one for one in ledger.entries if one.kind == "receipt"][-1]
    assert [one.deletes for one in entry.approvals] == [True]
    assert any("its deletes inside `fs_reach.write` are approved once a session" in rule for rule in entry.rules)
    (granted,) = [event for event in checks(result.events) if event.capability.endswith("old.txt")]
    assert "`approvals.delete: session`" in granted.rule
