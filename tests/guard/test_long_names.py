"""Names, paths and URLs of any length: records and messages about them are limited."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate, policy
from licet import Backends, Context, Gate, Result, tool
from licet.backends.memory import MemoryLedger

LONG = 300_000
MOST = 20_000  # characters of one explanation, or of one event
SECRET = "s3cr3t-v4lue-9000"

ASKED: dict[str, Callable[[Context, str], Awaitable[Any] | Any]] = {
    "no URL": lambda ctx, text: ctx.fetch(f"https://h.example/\n{text}"),
    "host": lambda ctx, text: ctx.fetch(f"https://{text}"),
    "header": lambda ctx, text: ctx.fetch("https://h.example/", headers={text: "a\nb"}),
    "path": lambda ctx, text: ctx.fs.read(f"notes/{text}"),
    "deep path": lambda ctx, text: ctx.fs.read("/x" * (len(text) // 2)),
    "invisible path": lambda ctx, text: ctx.fs.read("\u202e" * len(text)),
    "variable": lambda ctx, text: ctx.env.get(text),
    "secret": lambda ctx, text: ctx.secrets.get(text),
    "storage key": lambda ctx, text: ctx.kv.get(text),
    "program": lambda ctx, text: ctx.process.spawn(text),
    "path of a program": lambda ctx, text: ctx.process.spawn(f"/{text}"),
    "variable of a program": lambda ctx, text: ctx.process.spawn("ls", env={text: "1"}),
    "directory of a program": lambda ctx, text: ctx.process.spawn("ls", cwd=text),
}


@tool(
    needs=[
        *("env:read:*", "fs:*:${workdir}/notes", "network:*:*", "secret:read:*", "storage:*:session"),
        "process:exec:ls",
    ],
    effect="write_limited",
    sandbox="native",
)
async def ask(ctx: Context, what: str) -> None:
    """Ask for something with a very long name."""
    asked = ASKED[what](ctx, "x" * LONG)
    if hasattr(asked, "__await__"):
        await asked


def sizes(result: Result) -> dict[str, int]:
    told = {f"event {number}": len(str(event)) for number, event in enumerate(result.events)}
    return {"error": len(result.error), "explain": len(result.explain()), "tool": len(result.tool), **told}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.sampled(4)
def test_messages_about_a_long_name_are_short(tmp_path: Path, what: str) -> None:
    grants = ["env:read:A", "fs:read:${workdir}/notes", "network:*:h.example", "secret:read:A", "process:exec:ls"]
    manifest = policy(tmp_path, ask, grants=grants)
    at = Gate(manifest, [ask], Backends.memory(), workdir=tmp_path, on_misfit="narrow")
    result = call(at, "ask", {"what": what})
    assert not result.ok
    assert len(result.events) > 1 or result.reason == "TOOL_FAILED"
    assert max(sizes(result).values()) < MOST, sizes(result)


@pytest.mark.parametrize("name", ["x" * LONG, "\u202e" * LONG, "x" * 129])
def test_a_name_that_is_too_long_for_a_tool_is_not_recorded(tmp_path: Path, name: str) -> None:
    ledger = MemoryLedger()
    at = Gate(policy(tmp_path, ask), [ask], Backends.memory(ledger=ledger), workdir=tmp_path, on_misfit="narrow")
    result = call(at, name)
    assert (result.code, result.reason) == ("not_available", "UNKNOWN_TOOL")
    assert max(sizes(result).values()) < MOST, sizes(result)
    assert [entry.tool for entry in ledger.entries] == [""]


def test_a_long_value_of_an_argument_with_a_rule_is_not_repeated_whole(tmp_path: Path) -> None:
    @tool(needs=["network:*:*"], effect="read_only", sandbox="native")
    async def visit(url: str) -> None:
        """Visit a page."""

    held: dict[str, Any] = {"tools": {"visit": {"args": {"url": {"scope": "network"}}}}, "native": ["visit"]}
    result = call(gate(tmp_path, visit, grants=["network:*:*"], **held), "visit", {"url": "x" * LONG})
    assert result.reason == "ARGUMENT_NOT_ALLOWED"
    assert max(sizes(result).values()) < MOST, sizes(result)


def test_a_cut_text_shows_no_half_of_a_secret(tmp_path: Path) -> None:
    @tool(needs=["env:read:*", "secret:read:KEY"], effect="read_only", sandbox="native")
    async def spell(ctx: Context, before: int) -> None:
        key = await ctx.secrets.get("KEY")
        ctx.env.get(f"\n{'x' * before}{key}")

    at = gate(tmp_path, spell, backends=Backends.memory(secrets={"KEY": SECRET}), env=["*"], secrets=["KEY"])
    for before in range(970, 1010, 3):
        result = call(at, "spell", {"before": before})
        told = result.error + result.explain() + str(result.events)
        assert result.reason == "ENV_NOT_ALLOWED"
        assert SECRET[:6] not in told, before
        assert SECRET[-6:] not in told, before
