"""`licet session`, `--new-session`, and what the end of a session takes and leaves."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_walls
from gates import add
from licet import Backends, Gate
from licet.backends.ledger.reader import LedgerReader
from licet.guard.session_end import SESSION_END
from licet.policy_files.data import manifest_from_data

SOURCE = """
from licet import Context, tool


@tool(capabilities={"storage": {"scope": "session"}}, effect="read_only", sandbox="native")
async def count(ctx: Context) -> int:
    number = (await ctx.kv.get("n") or 0) + 1
    await ctx.kv.set("n", number)
    return number
"""


def policy(**budget: int) -> dict[str, Any]:
    capabilities = {"tools": ["count"], "native": ["count"], **({"budget": budget} if budget else {})}
    return {"agent": "counter", "tools": {"count": {"from": "counting:count"}}, "capabilities": capabilities}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "counting.py").write_text(SOURCE)
    (tmp_path / "agent.yaml").write_text(json.dumps(policy()))
    return tmp_path


def licet(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(warm.PROGRAM, words, cwd=desk, env={**os.environ, "XDG_STATE_HOME": str(desk / "state")})


def count(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return licet(desk, "call", "agent.yaml", "count", *words)


def listed(desk: Path, *words: str) -> dict[str, bool]:
    said = licet(desk, "session", "list", "--json", *words)
    return {one["session"]: one["ended"] for one in json.loads(said.stdout)["sessions"]}


def test_an_ended_session_is_recorded_refuses_calls_and_has_no_storage(desk: Path) -> None:
    assert [count(desk).stdout, count(desk).stdout, count(desk, "--session", "b").stdout] == ["1\n", "2\n", "1\n"]
    assert listed(desk) == {"main": False, "b": False}
    ended = licet(desk, "session", "end", "main", "--purpose", "done")
    assert (ended.returncode, ended.stdout.startswith("ended session main of counter; receipt r-")) == (0, True)
    assert listed(desk) == {"b": False}
    assert listed(desk, "--all") == {"main": True, "b": False}
    (ledger,) = (desk / "state").glob("licet/*/ledger.sqlite")
    with LedgerReader(ledger) as reader:
        last = [json.loads(row.body) for row in reader.entries()][-1]
    assert (last["tool"], last["session"], last["agent"], last["purpose"]) == (SESSION_END, "main", "counter", "done")
    assert [event["kind"] for event in last["events"]] == ["SessionEnded"]
    refused = count(desk, "--session", "main")
    assert refused.returncode == 1
    assert "this session has ended" in refused.stderr
    assert "start another session with `--new-session`" in refused.stderr
    assert count(desk, "--session", "b").stdout == "2\n"
    assert licet(desk, "receipts", "verify").returncode == 0
    assert licet(desk, "receipts", "show", last["id"]).returncode == 0
    again = licet(desk, "session", "end", "main")
    assert (again.returncode, again.stdout.startswith("session main of counter had ended already\n")) == (0, True)


def test_after_the_end_of_the_default_session_calls_that_name_none_share_the_next(desk: Path) -> None:
    (desk / "agent.yaml").write_text(json.dumps(policy(max_calls_per_session=2, max_calls_per_day=5)))
    assert count(desk).returncode == 0
    said = licet(desk, "session", "end", "main").stdout
    assert said.endswith("calls with `--session main` are refused; those without `--session` are in main-2\n")
    assert [count(desk).stdout, count(desk).stdout] == ["1\n", "2\n"]
    assert "would exceed max_calls_per_session 2" in count(desk).stderr
    assert listed(desk, "--all") == {"main": True, "main-2": False}
    assert "in main-3\n" in licet(desk, "session", "end", "main-2").stdout
    assert count(desk, "--session", "main-2").returncode == 1
    (desk / "second.yaml").write_text(json.dumps({**policy(), "agent": "second"}))
    assert licet(desk, "call", "second.yaml", "count").returncode == 0  # the session `main` of another agent is open
    assert [count(desk).returncode, count(desk).returncode] == [0, 0]
    # The end of a session gives back nothing of the day.
    assert licet(desk, "session", "end", "main-3").returncode == 0
    assert "would exceed max_calls_per_day 5" in count(desk).stderr


@needs_walls
def test_a_run_that_names_no_session_begins_the_next(desk: Path) -> None:
    run = ("run", "--allow-read", "/", "--", "true")
    assert licet(desk, *run).returncode == 0
    assert licet(desk, "session", "end", "main").returncode == 0
    assert licet(desk, *run).returncode == 0
    assert licet(desk, run[0], "--session", "main", *run[1:]).returncode == 125
    assert listed(desk, "--all") == {"main": True, "main-2": False}


def test_a_new_session_has_a_budget_of_its_own_and_the_advice_says_so(desk: Path) -> None:
    (desk / "agent.yaml").write_text(json.dumps(policy(max_calls_per_session=1, max_calls_per_day=3)))
    assert count(desk).returncode == 0
    spent = count(desk)
    assert "would exceed max_calls_per_session 1" in spent.stderr
    assert "start another session with `--new-session`, or with `--session ID`" in spent.stderr
    fresh = count(desk, "--new-session")
    assert (fresh.returncode, fresh.stdout) == (0, "1\n")
    assert fresh.stderr.startswith("licet: a new session; to continue it: --session s-")
    # The end of a session gives back nothing of the day.
    assert licet(desk, "session", "end", "main").returncode == 0
    assert count(desk, "--new-session").returncode == 0
    late = count(desk, "--new-session")
    assert "would exceed max_calls_per_day 3" in late.stderr
    assert "`--new-session`" not in late.stderr
    both = count(desk, "--new-session", "--session", "x")
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


@needs_walls
def test_nothing_behind_walls_ends_a_session(desk: Path) -> None:
    assert count(desk).returncode == 0
    (desk / "shell.yaml").write_text(
        json.dumps({
            "agent": "shell",
            "capabilities": {
                "fs_reach": {"read": ["/"]},
                "env": ["XDG_STATE_HOME", "HOME", "PATH"],
                "process": {"allowed_binaries": [sys.executable]},
                "sandbox": {"allow_degraded": True},
            },
        })
    )  # fmt: skip
    words = [
        "session",
        "end",
        "main",
        "--agent",
        "counter",
        "--state",
        str(next((desk / "state" / "licet").glob("*/ledger.sqlite")).parent),
    ]
    for line in (words, words[:5]):
        command = [sys.executable, "-c", warm.PROGRAM, *line]
        ended = licet(desk, "run", "shell.yaml", "--", *command)
        assert ended.returncode == 1, ended.stderr
    assert listed(desk)["main"] is False
    assert licet(desk, *words).returncode == 0  # outside of the walls the same words do


WRONG = {
    "no such session": (("end", "other"), 1, "there is no session other in "),
    "no such agent": (("end", "main", "--agent", "b"), 1, "there is no session main of b in "),
    "two agents": (("end", "main"), 1, "several agents have a session main: add --agent, one of counter, second"),
    "no id": (("end",), 2, "Missing argument 'ID'"),
}


def test_a_session_that_cannot_be_ended_is_named(desk: Path) -> None:
    (desk / "second.yaml").write_text(json.dumps({**policy(), "agent": "second"}))
    assert licet(desk, "session", "list").returncode == 1  # no ledger yet
    assert count(desk).returncode == 0
    assert licet(desk, "call", "second.yaml", "count").returncode == 0
    for words, code, said in WRONG.values():
        found = licet(desk, "session", *words)
        assert (found.returncode, found.stdout, said in found.stderr) == (code, "", True), found.stderr
    assert licet(desk, "session", "end", "main", "--agent", "second").returncode == 0
    assert count(desk).returncode == 0


def test_a_process_that_has_the_session_open_notices_its_end(desk: Path) -> None:
    manifest = manifest_from_data({"agent": "counter", "capabilities": {"tools": ["add"], "native": ["add"]}})
    gate = Gate(manifest, [add], Backends.local(desk / "state"), workdir=desk)

    async def calls() -> list[str]:
        async with gate.session("main") as session:
            child = session.delegate(agent="helper", allow=[])
            before = [(await one.call("add", {"a": 1})).reason for one in (session, child)]
            words = ["session", "end", "main", "--agent", "counter", "--state", str(desk / "state")]
            done = await asyncio.to_thread(licet, desk, *words)
            assert done.returncode == 0, done.stderr
            return [*before, *[(await one.call("add", {"a": 1})).reason for one in (session, child)]]

    assert asyncio.run(calls()) == ["ALLOWED", "ALLOWED", "SESSION_ENDED", "SESSION_ENDED"]
