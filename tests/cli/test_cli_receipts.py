"""`licet receipts` and `licet explain RECEIPT` on ledgers that no call of the command line leaves."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from cli.verbs import without_receipts
from command_line import enter_project
from command_line import run as licet
from kept_calls import make, run
from licet import Backends, CapabilitySet, Context, Gate, Refused, Tool, check_and_run, load_manifest, tool
from licet import run as run_tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.state import FORMAT, write_last
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import ledger_key
from licet.backends.sqlite import SqliteFile
from licet.core.ledger.entry import AgentFact, Checkpoint, Entry, EventFact, checkpoint_body
from licet.core.ledger.merkle import Frontier
from licet.guard.ports import Answered, LedgerUnavailable, Question


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_project(tmp_path, monkeypatch)


@pytest.fixture
def ledger(here: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(here / "state" / "ledger.sqlite")
    yield opened
    opened.close()


def entry_of(kind: Literal["decision", "receipt"], session: str, time: str) -> Entry:
    """An entry of a call with an id that all of them have."""
    return Entry(kind=kind, id="r-1-1", agent="desk", session=session, tool="look", time=time, manifest="sha256:0")


ENTRY = entry_of("decision", "s", "2026-03-01T12:00:00.000000Z")


def test_a_ledger_that_was_removed_is_not_begun_again_and_an_empty_one_is_never_fine(here: Path) -> None:
    state = make(here / "made")
    key = (state / "ledger.pub").read_text().strip()
    for name in ("ledger.sqlite", "ledger.head"):
        (state / name).unlink()
    with pytest.raises(LedgerUnavailable, match="has signed a ledger, and both"):
        asyncio.run(SqliteLedger(state / "ledger.sqlite").record(ENTRY))
    assert not (state / "ledger.sqlite").exists()
    asyncio.run(SqliteFile(state / "ledger.sqlite", FORMAT).write(lambda db: None))  # as an older licet left it
    for options in ([], ["--key", key]):
        for head in (None, _first_checkpoint(state)):
            if head is not None:
                (state / "ledger.head").write_bytes(head)
            result = run(state, "receipts", "verify", *options)
            assert (result.exit_code, result.stdout.splitlines()[0].partition(": there")[0]) == (1, "wrong: entry 1")
            assert "all entries were removed" in result.stdout
            (state / "ledger.head").unlink(missing_ok=True)


def _first_checkpoint(state: Path) -> bytes:
    """The checkpoint that is written before the first entry, signed with the same key."""
    key = ledger_key(str(state / "ledger.key"))
    body = checkpoint_body("0" * 32, 0, Frontier().root, "2026-03-01T12:00:00.000000Z", key.public)
    write_last(str(state / "first"), Checkpoint(0, body, key.sign(body)), Frontier())
    return (state / "first").read_bytes()


def test_calls_with_the_same_id_are_reported_and_all_are_shown(here: Path, ledger: SqliteLedger) -> None:
    state, later = here / "state", "2026-03-01T12:00:01.000000Z"
    for entry in (ENTRY, entry_of("decision", "t", later), entry_of("receipt", "t", later)):
        asyncio.run(ledger.record(entry))
    ledger.close()
    result = run(state, "receipts", "verify")
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: entry 3 (r-1-1): its id is also that of another call, see entry 1")
    assert re.search(r"^  unknown +r-1-1 began, and has no receipt", result.stdout, re.MULTILINE)
    told = json.loads(run(state, "receipts", "verify", "--json").stdout)
    assert (told["finding"]["kind"], told["unknown"]) == ("twice", ["r-1-1"])
    shown = run(state, "receipts", "show", "r-1-1")
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if line.startswith("r-1-1: ")] == [
        "r-1-1: allowed, and no receipt (yet): it still runs, or its process ended before the call did",
        "r-1-1: allowed",
    ]
    assert re.findall(r"session (\w)$", shown.stdout, re.MULTILINE) == ["s", "t"]
    first = json.loads(run(state, "receipts", "show", "r-1-1", "--json").stdout)
    assert (first["decision"]["session"], first["receipt"]) == ("s", None)
    assert [(one["decision"]["session"], one["receipt"]["session"]) for one in first["others"]] == [("t", "t")]
    assert run(state, "explain", "r-1-1").stdout.count("may be called") == 2
    listed = json.loads(run(state, "receipts", "list", "--json").stdout)["receipts"]
    assert [(one["session"], one["kind"]) for one in listed] == [("t", "receipt"), ("s", "decision")]


def test_verify_lists_calls_that_began_and_have_no_receipt(here: Path, ledger: SqliteLedger) -> None:
    for number in range(25):
        asyncio.run(ledger.record(replace(ENTRY, id=f"r-1-{number}")))
    ledger.close()
    result = run(here / "state", "receipts", "verify")
    assert (result.exit_code, result.stdout.count("  unknown   r-1-")) == (0, 20)
    assert "  unknown   and 5 more calls: see `licet receipts list`\n" in result.stdout
    assert len(json.loads(run(here / "state", "receipts", "verify", "--json").stdout)["unknown"]) == 25


def test_a_list_reports_how_many_entries_were_not_searched(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.backends.ledger.reader.SEARCHED_UNENDED", 1)
    without_receipts(state := make(here / "made"))
    late = run(state, "receipts", "list", "--session", "late")
    assert [line.split()[3] for line in late.stdout.splitlines()[1:]] == ["look"]
    assert "not looked for in the 11 entries before that; `--since` and `--until` name a shorter time" in late.stderr
    assert json.loads(run(state, "receipts", "list", "--json").stdout)["unsearched"] == 11


@pytest.mark.parametrize("moment", ["first", "third", "last", "later"])
def test_the_first_entry_of_a_time_is_found(here: Path, moment: str) -> None:
    with LedgerReader(make(here / "made") / "ledger.sqlite") as reader:
        recorded = [json.loads(row.body)["recorded"] for row in reader.entries()]
        asked = {"first": recorded[0], "third": recorded[2], "last": recorded[-1], "later": "2999"}[moment]
        assert reader._first_since(asked) == 1 + sum(one < asked for one in recorded)


# What a receipt is explained as ---------------------------------------------------------------------------------------

MANIFEST = """agent: desk
capabilities:
  tools: {peek: {sandbox: native}}
  native: [peek]
  fs_reach: {read: ["/srv/notes"]}
  limits: {wall_seconds: 1}
"""
ASKS = """agent: desk
capabilities:
  tools: {keep: {sandbox: native}}
  native: [keep]
  max_side_effect_class: write_limited
  fs_reach: {write: ["/srv/notes"]}
  approvals: {write: call}
"""


@tool(needs=["fs:write:/srv/notes"], effect="write_limited")
async def keep() -> None:
    """Write, once a person agrees."""


@tool(needs=["fs:read:*"], effect="read_only")
async def peek(ctx: Context, paths: list[str], wait: bool = False) -> int:
    """Count the files that can be read."""
    seen = 0
    for path in paths:
        with suppress(Refused):
            await ctx.fs.read(path)
            seen += 1
    if wait:
        await asyncio.sleep(600)
    return seen


@tool(needs=["fs:write:/srv/notes"], effect="write_limited", sandbox="native")
async def save(path: str) -> None:
    """Write a file."""


@tool(needs=["fs:write:/srv/notes"], effect="read_only", sandbox="native")
async def sneak(ctx: Context, path: str) -> None:
    """Write a file, though it is declared as reading."""
    await ctx.fs.write(path, b"")


def explained(ledger: SqliteLedger, receipt: str, code: int = 1) -> str:
    ledger.close()
    return licet("explain", receipt, "--state", "state", code=code).stdout


@pytest.mark.parametrize("wait", [False, True], ids=["ended", "cut off"])
def test_a_refused_use_is_never_explained_as_allowed(here: Path, ledger: SqliteLedger, wait: bool) -> None:
    (here / "desk.yaml").write_text(MANIFEST)
    gate = Gate(load_manifest("desk.yaml"), [peek], Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=ledger))
    result = run_tool(gate, "peek", {"paths": ["/srv/notes/a", "/etc/shadow"], "wait": wait})
    assert result.ok is not wait
    first, *rest = (told := explained(ledger, result.receipt, int(wait))).splitlines()
    assert first == ("denied: `peek` was called, and ended: LIMIT_TIME" if wait else "allowed: `peek` may be called")
    labels = [re.fullmatch(r"  (held|refused) +(\w+) (\S+).*", line) for line in rest]
    assert [found.groups() for found in labels if found] == [
        ("held", "granted", "fs:read:/srv/notes/a"),
        ("refused", "denied", "fs:read:/etc/shadow"),
    ]
    assert ("  because       peek ran for longer than 1 seconds (" in told) is wait
    assert "to allow it" not in told  # the tool may be called, so advice about that would not help


ONE_COMMAND: dict[str, tuple[Tool, str, str, tuple[str, ...]]] = {  # tool, class, rule, and what is to be done
    "a tool over the class of its agent": (save, "read_only", "", ("set `max_side_effect_class: write_limited`",)),
    "a use over the class of its tool": (sneak, "write_limited", "", ("set `effect: write_limited` on the tool",)),
    "a use over both": (
        sneak, "read_only", "", ("set `effect: write_limited` on the tool and `max_side_effect_class: write_limited`",),
    ),
    "an argument outside of what the tool needs": (
        save, "write_limited", ", args: {path: {scope: fs:write}}",
        ("add `fs:write:/etc/x` to the tool's `needs`", "add `fs:write:/etc/x` under `capabilities.grants`"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("used", "most", "rule", "expected"), ONE_COMMAND.values(), ids=ONE_COMMAND)
def test_one_command_from_a_receipt_has_the_whole_way_out(
    here: Path, ledger: SqliteLedger, used: Tool, most: str, rule: str, expected: tuple[str, ...]
) -> None:
    declared = f"{{needs: [fs:write:/srv/notes], effect: {used.spec.effect}, sandbox: native}}"
    (here / "desk.yaml").write_text(
        f"agent: desk\ntools: {{{used.name}: {declared}}}\ncapabilities:\n"
        f"  tools: {{{used.name}: {{sandbox: native{rule}}}}}\n  native: [{used.name}]\n"
        f"  max_side_effect_class: {most}\n  fs_reach: {{write: [/srv/notes]}}\n"
    )
    gate = Gate(load_manifest("desk.yaml"), [used], Backends.memory(ledger=ledger), on_misfit="deny")
    result = run_tool(gate, used.name, {"path": "/etc/x" if rule else "/srv/notes/x"})
    assert not result.ok
    told = explained(ledger, result.receipt)
    for line in expected:
        assert line in told


def test_wrong_arguments_are_not_for_a_manifest_to_allow(here: Path, ledger: SqliteLedger) -> None:
    (here / "desk.yaml").write_text(MANIFEST)
    result = run_tool(Gate(load_manifest("desk.yaml"), [peek], Backends.memory(ledger=ledger)), "peek", {"paths": 5})
    assert result.reason == "INPUT_INVALID"
    told = explained(ledger, result.receipt)
    assert "licet explain MANIFEST" not in told
    assert "to correct it make the call again, with arguments that fit the parameters of the tool" in told


def test_a_call_under_a_set_is_not_for_a_manifest_to_allow(ledger: SqliteLedger) -> None:
    @tool(needs=["env:read:LANG"], effect="read_only", sandbox="restricted")
    async def speak(ctx: Context) -> str | None:
        """Tell the language."""
        return ctx.env.get("LANG")

    result = asyncio.run(check_and_run(speak, {}, allow=CapabilitySet([]), backends=Backends.memory(ledger=ledger)))
    assert result.reason == "ENV_NOT_ALLOWED"
    told = explained(ledger, result.receipt)
    assert "licet explain MANIFEST" not in told
    assert "its `allow` decides" in told


def test_a_call_that_was_interrupted_while_a_person_was_asked_says_so(here: Path, ledger: SqliteLedger) -> None:
    begun = asyncio.Event()
    (here / "desk.yaml").write_text(ASKS)

    async def wait(question: Question) -> Answered:
        begun.set()
        await asyncio.sleep(600)
        return Answered("absent")

    gate = Gate(load_manifest("desk.yaml"), [keep], Backends.memory(ledger=ledger, approver=wait))

    async def call() -> None:
        task = asyncio.ensure_future(gate.session("main").call("keep", {}))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(call())
    ledger.close()
    (found,) = json.loads(run(here / "state", "receipts", "list", "--json").stdout)["receipts"]
    assert found["reason"] == "INTERRUPTED"
    told = explained(ledger, found["id"])
    assert "because       the call was interrupted before it ended" in told
    assert "licet explain MANIFEST" not in told


@pytest.mark.parametrize(("verdict", "reason"), [("ask", "APPROVAL_REQUIRED"), ("deny", "APPROVAL_EXPIRED")])
@pytest.mark.parametrize("began", [True, False])
def test_explain_says_whether_a_tool_ran_before_its_approval_was_missing(
    ledger: SqliteLedger, verdict: Literal["ask", "deny"], reason: str, began: bool
) -> None:
    granted = EventFact(kind="CapabilityGranted", capability="tool:call:t")
    asked = EventFact(kind="CapabilityDenied", capability="fs:delete:/a", reason=reason)
    receipt = replace(
        entry_of("receipt", "s", ENTRY.time), verdict=verdict, reason=reason, code="execution_failed",
        events=(granted, asked) if began else (asked,),
    )  # fmt: skip
    asyncio.run(ledger.record(receipt))
    told = explained(ledger, "r-1-1").splitlines()
    assert ("  it ran        until there; called again, it runs from the start" in told) is began


def test_a_receipt_of_another_directory_is_found_by_its_manifest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "desk.yaml").write_text("agent: desk\ncapabilities: {tools: [read_file], fs_reach: {read: []}}\n")
    manifest = str(here / "desk.yaml")
    receipt = json.loads(licet("call", manifest, "read_file", "path=/srv/a", "--json", code=1).stdout)["receipt"]
    monkeypatch.chdir(here.parent)
    assert "name it with --manifest" in licet("explain", receipt, code=1).stderr
    assert "denied: `read_file`" in licet("explain", receipt, "--manifest", manifest, code=None).stdout
    licet("explain", "read_file", "--manifest", manifest, code=2)


def test_a_call_of_a_coding_agent_is_shown_with_what_the_agent_says(here: Path, ledger: SqliteLedger) -> None:
    fact = AgentFact(name="claude", version="2.1.326", call="toolu_1", event="PreToolUse")
    decision = replace(ENTRY, coding_agent=fact)
    asked = replace(fact, subagent="explore", rewritten=True, asked=True, in_order=True, end="reported")
    asyncio.run(ledger.record(decision))
    asyncio.run(ledger.record(replace(decision, kind="receipt", code="ok", coding_agent=asked)))
    asyncio.run(ledger.record(replace(ENTRY, id="r-1-2", kind="receipt", coding_agent=replace(fact, end="seen"))))
    asyncio.run(ledger.record(replace(ENTRY, id="r-1-3", coding_agent=AgentFact(name="gemini\u202e"))))
    ledger.close()
    state = here / "state"
    rows = run(state, "receipts", "list").stdout.splitlines()
    assert sorted(row.split("  ")[1] for row in rows[1:]) == [
        "desk (by claude)",
        "desk (by claude)",
        "desk (by gemini\\u202e)",
    ]
    shown = run(state, "receipts", "show", "r-1-1").stdout
    assert (
        "  made          by claude 2.1.326, call toolu_1, in subagent explore; rewritten; asked in the agent; end "
        "reported by the agent; equal calls were under way, so their ends were taken in order\n"
    ) in shown
    shown = run(state, "receipts", "show", "r-1-2").stdout
    assert "  made          by claude 2.1.326, call toolu_1; end seen by licet\n" in shown
    assert (
        "  made          by claude 2.1.326, call toolu_1; end seen by licet\n" in run(state, "explain", "r-1-2").stdout
    )
    assert "  made          by gemini\\u202e\n" in run(state, "receipts", "show", "r-1-3").stdout
    found = json.loads(run(state, "receipts", "show", "r-1-1", "--json").stdout)["receipt"]["coding_agent"]
    assert (found["name"], found["end"], found["asked"]) == ("claude", "reported", True)
    listed = json.loads(run(state, "receipts", "list", "--json").stdout)["receipts"]
    assert {one["coding_agent"]["name"] for one in listed} == {"claude", "gemini\u202e"}
    assert run(state, "receipts", "verify").exit_code == 0
