"""Deletes that need an approval: one is recorded as granted only if an approver agreed."""

from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, checks, gate
from licet import Backends, Context, Gate, tool
from licet.backends.files.memory import MemoryFiles
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
