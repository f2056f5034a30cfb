"""`licet call --wait`: a call waits while a person answers in another process, and its tool runs once."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import warm
from cli.messages import message
from licet.cli.app import licet
from sandbox.levels import needs_walls

APPROVE = re.compile(r"to approve\s+run `licet (approvals approve (a-[0-9a-f]{12}).*?)`")

TOOLS = '''
from licet import Context, tool


@tool(needs=["fs:*:${workdir}/box"], effect="destructive", sandbox="restricted")
async def remove(ctx: Context, path: str) -> str:
    """Remove a file, after having noted that this has run."""
    with await ctx.fs.open("box/runs", "a") as runs:
        runs.write("ran\\n")
    await ctx.fs.delete(path)
    return "removed"
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs_walls()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "a").write_text("a")
    (tmp_path / "desk_tools.py").write_text(TOOLS)
    policy()
    return tmp_path


def policy(args: Any = None, **approvals: Any) -> None:
    capabilities = {
        "tools": {"remove": {"args": args} if args else {}},
        "max_side_effect_class": "destructive",
        "grants": ["fs:*:${workdir}/box"],
        "approvals": approvals,
        "budget": {"max_calls_per_session": 10},
        "limits": {"wall_seconds": 20},
    }
    content = {"agent": "desk", "tools": {"remove": {"from": "desk_tools:remove"}}, "capabilities": capabilities}
    Path("m.yaml").write_text(json.dumps(content))


def run(*words: str) -> Any:
    """One command in this process, and what it prints as JSON."""
    done = CliRunner().invoke(licet, [*words, "--json"], prog_name="licet")
    return json.loads(done.stdout)


@contextmanager
def waiting(*more: str) -> Iterator["subprocess.Popen[str]"]:
    """A call that waits for approval."""
    command = [*warm.licet(), "call", "m.yaml", "remove", "path=box/a", "--wait", "--json", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: "subprocess.Popen[str]") -> tuple[str, list[str]]:
    """The request that a call waits for, and the command that approves it."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := APPROVE.search(line):
            return found[2], found[1].split()
    raise AssertionError("".join(said))


def result(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate(timeout=120)
    assert out, err
    return json.loads(out)


def test_a_delete_that_the_arguments_foresee_is_asked_about_once(here: Path) -> None:
    with waiting() as process:
        first, words = asked(process)
        assert not (here / "box" / "runs").exists()  # nothing has run yet
        assert run("approvals", "show", first)["acts"] == [f"fs:delete:{here}/box/a"]
        assert run(*words, "--yes")["state"] == "approved"
        done = result(process)
    assert (done["value"], process.returncode) == ("removed", 0)
    assert {one["request"] for one in done["approvals"]} == {first}
    assert (here / "box" / "runs").read_text() == "ran\n"
    assert not (here / "box" / "a").exists()


KNOWN = {"path": {"scope": "fs:delete"}}  # the argument is what the tool deletes


@pytest.mark.parametrize("write", ["call", "session", "manifest"])
@pytest.mark.sampled(1)
def test_known_deletes_are_asked_about_together_with_the_call(here: Path, write: str) -> None:
    policy(KNOWN, write=write)
    with waiting() as process:
        request, words = asked(process)
        shown = run("approvals", "show", request)
        assert shown["acts"] == [f"fs:delete:{here}/box/a"]
        assert shown["why"].startswith(message("wait.class_destructive_asks_before_each"))
        assert ("writes ask" in shown["why"]) == (write != "manifest")
        assert message("wait.each_delete_asks_class_destructive") in shown["why"]
        run(*words, "--yes")
        done = result(process)
    assert (done["value"], process.returncode) == ("removed", 0)
    assert [(one["request"], one["use"]) for one in done["approvals"]] == [
        (request, None),
        (request, f"fs:delete:{here}/box/a"),
    ]
    assert (here / "box" / "runs").read_text() == "ran\n"


def test_without_waiting_one_approval_and_one_run_are_enough_too(here: Path) -> None:
    policy(KNOWN)
    assert run("call", "m.yaml", "remove", "path=box/a")["reason"] == "APPROVAL_REQUIRED"
    [request] = run("approvals", "list")["requests"]
    run("approvals", "approve", request["id"], "--yes")
    assert run("call", "m.yaml", "remove", "path=box/a")["value"] == "removed"
    assert (here / "box" / "runs").read_text() == "ran\n"
    (here / "box" / "a").write_text("again")
    assert run("call", "m.yaml", "remove", "path=box/a")["reason"] == "APPROVAL_REQUIRED"  # that was for once


def test_a_delete_of_something_else_asks_by_itself(here: Path) -> None:
    (here / "desk_tools.py").write_text(TOOLS.replace("delete(path)", 'delete("box/runs")'))
    policy(KNOWN)
    with waiting() as process:
        _, words = asked(process)
        run(*words, "--yes")
        request, _ = asked(process)
        assert run("approvals", "show", request)["use"] == f"fs:delete:{here}/box/runs"
        run("approvals", "deny", request)
        assert result(process)["reason"] == "APPROVAL_DENIED"


def test_an_act_that_was_agreed_to_is_agreed_to_once(here: Path) -> None:
    again = 'delete(path)\n    await ctx.fs.write(path, "new")\n    await ctx.fs.delete(path)'
    (here / "desk_tools.py").write_text(TOOLS.replace("delete(path)", again))
    policy(KNOWN)
    with waiting() as process:
        first, words = asked(process)
        run(*words, "--yes")
        second, _ = asked(process)
        assert second != first
        run("approvals", "deny", second)
        assert result(process)["reason"] == "APPROVAL_DENIED"
    assert (here / "box" / "a").read_text() == "new"


def test_a_no_ends_the_call_that_waits(here: Path) -> None:
    with waiting() as process:
        request, _ = asked(process)
        run("approvals", "deny", request)
        done = result(process)
    assert (done["reason"], process.returncode) == ("APPROVAL_DENIED", 1)
    assert not (here / "box" / "runs").exists()


def test_waiting_ends_when_the_request_expires(here: Path) -> None:
    policy(expires_seconds=1)
    with waiting() as process:
        done = result(process)
    assert (done["reason"], process.returncode) == ("APPROVAL_EXPIRED", 1)


def test_an_interrupted_wait_leaves_a_receipt_and_the_request(here: Path) -> None:
    with waiting() as process:
        request, words = asked(process)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    [receipt] = run("receipts", "list")["receipts"]
    assert receipt["tool"] == "remove"
    assert [one["id"] for one in run("approvals", "list")["requests"]] == [request]
    assert not (here / "box" / "runs").exists()
    assert run(*words, "--yes")["state"] == "approved"  # for the same call, when it is made again


@pytest.mark.parametrize("is_first", [True, False])
def test_the_end_of_a_session_ends_its_waiting_call_and_the_request(here: Path, is_first: bool) -> None:
    if not is_first:  # the session is then in the ledger
        CliRunner().invoke(licet, ["call", "m.yaml", "nothing"])
    with waiting() as process:
        request, words = asked(process)
        assert run("session", "end", "main", "--manifest", "m.yaml")["ended"]
        refused = CliRunner().invoke(licet, [*words, "--yes"])
        done = result(process)
    assert run("approvals", "list", "--manifest", "m.yaml")["requests"] == []
    assert (refused.exit_code, f"{request} cannot be answered any more: its session has ended" in refused.output) == (
        1,
        True,
    )
    assert (done["reason"], process.returncode) == ("SESSION_ENDED", 1)
    assert (here / "box" / "a").exists()
    assert not (here / "box" / "runs").exists()
