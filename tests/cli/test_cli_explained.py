"""`licet explain RECEIPT` for calls that continued after a refusal, and for calls whose process ended early."""

import asyncio
import json
import re
import shlex
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from kept_calls import START, Ticking, look, make, pay, run
from licet import Backends, CapabilitySet, Context, Gate, Refused, Result, Tool, check_and_run, load_manifest, tool
from licet import run as run_tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.cli.app import licet
from licet.core.ledger.entry import Entry
from licet.guard.ports import Answered, Question

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
        try:
            await ctx.fs.read(path)
            seen += 1
        except Refused:
            pass
    if wait:
        await asyncio.sleep(600)
    return seen


def _made(folder: Path, *, wait: bool) -> tuple[Path, str]:
    """Make one call that is refused a use and continues; returns its state directory and receipt."""
    (folder / "desk.yaml").write_text(MANIFEST)
    ledger = SqliteLedger(folder / "state" / "ledger.sqlite")
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=ledger)
    gate = Gate(load_manifest(folder / "desk.yaml"), [peek], backends)

    async def call() -> str:
        async with gate.session("main") as opened:
            result = await opened.call("peek", {"paths": ["/srv/notes/a", "/etc/shadow"], "wait": wait})
            assert result.ok is not wait
            return result.receipt

    receipt = asyncio.run(call())
    ledger.close()
    return folder / "state", receipt


@pytest.mark.parametrize("wait", [False, True], ids=["ended", "cut off"])
def test_a_refused_use_is_never_explained_as_allowed(tmp_path: Path, wait: bool) -> None:
    state, receipt = _made(tmp_path, wait=wait)
    told = run(state, "explain", receipt)
    assert told.exit_code == int(wait)
    first, *rest = told.stdout.splitlines()
    assert first == ("denied: `peek` was called, and ended: LIMIT_TIME" if wait else "allowed: `peek` may be called")
    labels = [re.fullmatch(r"  (held|refused) +(\w+) (\S+).*", line) for line in rest]
    assert [found.groups() for found in labels if found] == [
        ("held", "granted", "fs:read:/srv/notes/a"),
        ("refused", "denied", "fs:read:/etc/shadow"),
    ]
    assert ("  because       peek ran for longer than 1 seconds (" in told.stdout) is wait
    assert "to allow it" not in told.stdout  # the tool may be called, so advice about that would not help


def _explained(folder: Path, ledger: SqliteLedger, receipt: str) -> str:
    ledger.close()
    told = run(folder / "state", "explain", receipt)
    assert told.exit_code == 1
    return told.stdout


@tool(needs=["fs:write:/srv/notes"], effect="write_limited", sandbox="native")
async def save(path: str) -> None:
    """Write a file."""


@tool(needs=["fs:write:/srv/notes"], effect="read_only", sandbox="native")
async def sneak(ctx: Context, path: str) -> None:
    """Write a file, though it is declared as reading."""
    await ctx.fs.write(path, b"")


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: Tool, most: str, rule: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    declared = f"{{needs: [fs:write:/srv/notes], effect: {used.spec.effect}, sandbox: native}}"
    (tmp_path / "desk.yaml").write_text(
        f"agent: desk\ntools: {{{used.name}: {declared}}}\ncapabilities:\n"
        f"  tools: {{{used.name}: {{sandbox: native{rule}}}}}\n  native: [{used.name}]\n"
        f"  max_side_effect_class: {most}\n  fs_reach: {{write: [/srv/notes]}}\n"
    )
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    backends = Backends.memory(ledger=ledger)
    gate = Gate(load_manifest(tmp_path / "desk.yaml"), [used], backends, on_misfit="deny")
    result = run_tool(gate, used.name, {"path": "/etc/x" if rule else "/srv/notes/x"})
    assert not result.ok
    (command,) = re.findall(r"to allow it +see `licet (.*)`", _explained(tmp_path, ledger, result.receipt))
    words = [word.replace("MANIFEST", "desk.yaml") for word in shlex.split(command)]
    told = CliRunner().invoke(licet, words)
    assert told.exit_code == 1
    for line in expected:
        assert line in told.stdout


def test_wrong_arguments_are_not_for_a_manifest_to_allow(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    (tmp_path / "desk.yaml").write_text(MANIFEST)
    gate = Gate(load_manifest(tmp_path / "desk.yaml"), [peek], Backends.memory(ledger=ledger))
    result = run_tool(gate, "peek", {"paths": 5})
    assert result.reason == "INPUT_INVALID"
    told = _explained(tmp_path, ledger, result.receipt)
    assert "licet explain MANIFEST" not in told
    assert "to correct it make the call again, with arguments that fit the parameters of the tool" in told


def test_a_call_under_a_set_is_not_for_a_manifest_to_allow(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")

    @tool(needs=["env:read:LANG"], effect="read_only", sandbox="restricted")
    async def speak(ctx: Context) -> str | None:
        """Tell the language."""
        return ctx.env.get("LANG")

    async def call() -> Result:
        return await check_and_run(speak, {}, allow=CapabilitySet([]), backends=Backends.memory(ledger=ledger))

    result = asyncio.run(call())
    assert result.reason == "ENV_NOT_ALLOWED"
    told = _explained(tmp_path, ledger, result.receipt)
    assert "licet explain MANIFEST" not in told
    assert "its `allow` decides" in told


def test_a_call_that_was_interrupted_while_a_person_was_asked_says_so(tmp_path: Path) -> None:
    begun = asyncio.Event()
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    (tmp_path / "desk.yaml").write_text(ASKS)

    async def wait(question: Question) -> Answered:
        begun.set()
        await asyncio.sleep(600)
        return Answered("absent")

    gate = Gate(load_manifest(tmp_path / "desk.yaml"), [keep], Backends.memory(ledger=ledger, approver=wait))

    async def call() -> None:
        task = asyncio.ensure_future(gate.session("main").call("keep", {}))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(call())
    ledger.close()
    (found,) = json.loads(run(tmp_path / "state", "receipts", "list", "--json").stdout)["receipts"]
    assert found["reason"] == "INTERRUPTED"
    told = _explained(tmp_path, ledger, found["id"])
    assert "because       the call was interrupted before it ended" in told
    assert "licet explain MANIFEST" not in told


def test_a_receipt_of_another_directory_is_found_by_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    (tmp_path / "project").mkdir()
    manifest = tmp_path / "project" / "desk.yaml"
    manifest.write_text("agent: desk\ncapabilities: {tools: [read_file], fs_reach: {read: []}}\n")
    called = CliRunner().invoke(licet, ["call", str(manifest), "read_file", "path=/srv/a", "--json"])
    receipt = json.loads(called.stdout)["receipt"]
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(licet, ["explain", receipt]).stderr
    assert "name it with --manifest" in said
    found = CliRunner().invoke(licet, ["explain", receipt, "--manifest", str(manifest)])
    assert "denied: `read_file`" in found.stdout
    wrong = CliRunner().invoke(licet, ["explain", "read_file", "--manifest", str(manifest)])
    assert wrong.exit_code == 2


# Calls without a receipt ---------------------------------------------------------------------------------------------


class _Dying:
    """A ledger that loses the receipt, as if the process had died before it."""

    keeps_facts = True

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger

    async def record(self, entry: Entry) -> None:
        if entry.kind == "decision":
            await self._ledger.record(entry)


class _Set(Ticking):
    """A clock that stays where it was set."""

    minutes = 0

    def now(self) -> datetime:
        return START + timedelta(minutes=self.minutes)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six calls with receipts, and two without: one dated between the fourth and the fifth, and the last of all."""
    folder = tmp_path_factory.mktemp("unended")
    state, clock = make(folder / "made"), _Set()
    ledger = SqliteLedger(state / "ledger.sqlite")
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=_Dying(ledger), clock=clock)
    gate = Gate(load_manifest(state.parent / "desk.yaml"), [look, pay], backends)

    async def calls() -> None:
        for clock.minutes, name, arguments in ((270, "pay", {}), (540, "look", {"path": "/srv/notes/a"})):
            async with gate.session("late") as opened:
                assert (await opened.call(name, arguments)).ok

    asyncio.run(calls())
    ledger.close()
    return state


NOPE = "nope\\u001b[2J not_available"
ALL = ["look -", "look ok", NOPE, "pay -", "pay denied", "pay ok", "look execution_failed", "look ok"]


@pytest.mark.parametrize(
    ("filters", "found", "more"),
    [
        ([], ALL, False),
        (["--limit", "8"], ALL, False),
        (["--limit", "7"], ALL[:7], True),
        (["--limit", "4"], ALL[:4], True),
        (["--limit", "3"], ALL[:3], True),
        (["--limit", "1"], ALL[:1], True),
        (["--verdict", "allow"], ["look -", "look ok", "pay -", "pay ok", "look ok"], False),
        (["--verdict", "allow", "--limit", "2"], ["look -", "look ok"], True),
        (["--verdict", "deny"], [NOPE, "pay denied", "look execution_failed"], False),
        (["--tool", "pay"], ["pay -", "pay denied", "pay ok"], False),
        (["--session", "late"], ["look -", "pay -"], False),
        (["--agent", "other"], [], False),
        (["--since", "2026-03-01T16:00", "--until", "2026-03-01T17:00"], ["pay -", "pay denied"], False),
        (["--since", "2026-03-01T21:00"], ["look -"], False),
        (["--until", "2026-03-01T21:00"], ALL[1:], False),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_calls_without_a_receipt_are_listed_where_their_time_is(
    state: Path, filters: list[str], found: list[str], more: bool
) -> None:
    told = json.loads(run(state, "receipts", "list", "--json", *filters).stdout)
    assert [f"{one['tool']} {one['code'] or '-'}" for one in told["receipts"]] == found
    assert (told["more"], told["unsearched"]) == (more, 0)
    for one in told["receipts"]:
        assert (one["kind"] == "decision") is (one["code"] is None) is (one["reason"] == "no receipt (yet)")


def test_a_call_without_a_receipt_can_be_looked_up(state: Path) -> None:
    line = run(state, "receipts", "list").stdout.splitlines()[1]
    assert re.fullmatch(r"2026-03-01 21:00:00Z  desk +look +allow +no receipt \(yet\) +r-[0-9a-f]+-\d+", line)
    call = line.split()[-1]
    told = run(state, "explain", call)
    assert told.exit_code == 0
    why = "no receipt (yet): it still runs, or its process ended before the call did"
    assert told.stdout.startswith("allowed: `look` may be called\n")
    assert f"  but           {why}\n" in told.stdout
    assert told.stdout.endswith(f"  call          {call}\n")
    assert run(state, "receipts", "show", call).stdout.startswith(f"{call}: allowed, and {why}\n")


def test_a_list_reports_how_many_entries_were_not_searched(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.backends.ledger.reader._MOST_LOOKED_AT", 1)
    assert [
        line.split()[3] for line in run(state, "receipts", "list", "--session", "late").stdout.splitlines()[1:]
    ] == ["look"]
    result = run(state, "receipts", "list", "--session", "late")
    assert "not looked for in the 11 entries before that; `--since` and `--until` name a shorter time" in result.stderr
    assert json.loads(run(state, "receipts", "list", "--json").stdout)["unsearched"] == 11


@pytest.mark.parametrize("moment", ["first", "third", "last", "later"])
def test_the_first_entry_of_a_time_is_found(state: Path, moment: str) -> None:
    with LedgerReader(state / "ledger.sqlite") as reader:
        recorded = [json.loads(row.body)["recorded"] for row in reader.entries()]
        asked = {"first": recorded[0], "third": recorded[2], "last": recorded[-1], "later": "2999"}[moment]
        assert reader._first_since(asked) == 1 + sum(one < asked for one in recorded)
