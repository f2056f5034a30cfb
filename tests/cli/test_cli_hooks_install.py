"""`licet hooks install` at a terminal: walls are offered first for an agent that lets calls run when a hook fails."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import Struct

from hooks.residents import ended, living_below

PATIENCE = 120  # seconds: something that hangs, not something that is slow
QUESTION = "which?"


class Case(Struct, frozen=True):
    """What a person types, whether hooks are written then, and what is said."""

    typed: str
    hooks: bool
    says: str


ANSWERS: Mapping[str, Case] = {
    "walls are the default": Case("\n", False, "licet run -- gemini"),
    "walls": Case("walls\n", False, "gets no hooks"),
    "hooks": Case("hooks\ny\ny\ny\ny\n", True, "not chosen: walls around the whole agent"),
    "both": Case("both\ny\ny\ny\ny\n", True, "these so: licet run -- gemini"),
    "something else is asked again": Case("y\nhooks\ny\ny\ny\ny\n", True, "start your agents anew, as always"),
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    for name in ("project", "home/.gemini", "home/.claude"):
        (tmp_path / name).mkdir(parents=True)
    yield tmp_path / "home"
    ended(living_below(tmp_path))  # what is written is tried, and that starts one


def command(agent: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-m", "licet", "hooks", "install", "--agent", agent, "--scope", "user", *words]


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "COLUMNS": "200"}


def at_terminal(words: list[str], home: Path, typed: str) -> tuple[int, str]:
    """The exit code of a command at a terminal at which this was typed, and what it says."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        ended = subprocess.run(
            words, cwd=home.parent / "project", env=environment(home), stdin=theirs, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, start_new_session=True, check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("name", ANSWERS)
def test_walls_are_offered_before_hooks_that_may_fail(home: Path, name: str) -> None:
    case = ANSWERS[name]
    code, said = at_terminal(command("gemini"), home, case.typed)
    assert (code, (home / ".gemini" / "settings.json").exists()) == (0, case.hooks), said
    assert QUESTION in said
    assert case.says in said
    assert said.index(QUESTION) < (said.index("settings.json") if case.hooks else len(said))


def test_an_agent_whose_hooks_refuse_when_they_fail_is_not_asked_about(home: Path) -> None:
    code, said = at_terminal(command("claude"), home, "y\ny\ny\ny\n")
    assert code == 0, said
    assert QUESTION not in said


def of_call(home: Path, directory: Path, session: str, tool: str, given: Mapping[str, str]) -> str:
    """What Claude Code's hook says of a call in a session that was started in a directory; empty if nothing."""
    event = {"hook_event_name": "PreToolUse", "session_id": session, "cwd": str(directory), "tool_use_id": "t"}
    event |= {"prompt_id": "p", "permission_mode": "default", "transcript_path": "/t", "tool_name": tool}
    said = subprocess.run(
        [sys.executable, "-I", "-m", "licet", "hook", "claude", "PreToolUse"], cwd=directory, env=environment(home),
        input=json.dumps(event | {"tool_input": given}), capture_output=True, text=True, check=True, timeout=PATIENCE,
    ).stdout  # fmt: skip
    decision: str = json.loads(said)["hookSpecificOutput"]["permissionDecision"] if said else ""
    return decision


def of_line(home: Path, directory: Path, session: str, line: str = "echo 1") -> str:
    return of_call(home, directory, session, "Bash", {"command": line})


def elsewhere(home: Path, name: str) -> Path:
    (place := home.parent / name).mkdir()
    return place


def test_install_asks_for_the_deletes_of_the_default_policy_too(home: Path) -> None:
    code, said = at_terminal(command("claude"), home, "y\nn\nn\n")
    assert code == 0, said
    assert f"licet trust {home}/.config/licet/default.yaml" in said
    assert of_line(home, elsewhere(home, "before"), "s-1") == "allow"  # it removes what its session has made
    code, said = at_terminal(command("claude"), home, "n\ny\n")
    assert (code, "agree to renames and deletes here" in said) == (0, True), said
    for name in ("one", "two"):
        assert of_line(home, elsewhere(home, name), f"s-{name}") == "allow"
    _, said = at_terminal(command("claude"), home, "y\n")
    assert "agree to renames" not in said


def test_each_question_says_what_a_yes_does_and_lists_are_folded(home: Path) -> None:
    code, said = at_terminal(command("claude"), home, "y\nn\nn\n")
    assert code == 0, said
    above = [
        said[: found.start()].splitlines()[-1] for found in re.finditer(r"write all of this\?|give this standing", said)
    ]
    assert len(above) == 3
    assert all("a yes " in line for line in above), above
    assert str(home / ".claude" / "settings.json") in above[0]
    assert "names that other programs run or trust: --json lists them" in said
    assert len(said.splitlines()) < 250


def test_an_agent_behind_walls_as_well_needs_its_model_named_first(home: Path) -> None:
    code, said = at_terminal(command("gemini"), home, "both\ny\nn\nn\n")
    assert code == 0, said
    (first,) = (line for line in said.splitlines() if line.startswith("  1. "))
    assert "`generativelanguage.googleapis.com`" in first
    assert "`GEMINI_API_KEY`" in first
    assert str(home.parent / "project" / ".licet" / "licet.yaml") in first


def test_the_default_policy_denies_env_in_projects_that_are_made_later(home: Path) -> None:
    assert at_terminal(command("claude", "--yes"), home, "")[0] == 0
    other = elsewhere(home, "other")
    for name in (".env", "notes.txt"):
        (other / name).write_text("TOKEN=secret\n")
    assert of_call(home, other, "s-1", "Read", {"file_path": str(other / ".env")}) == "deny"
    assert of_call(home, other, "s-2", "Read", {"file_path": str(other / "notes.txt")}) in ("", "allow")


def test_trust_agrees_to_the_deletes_of_the_default_policy_in_every_directory(home: Path) -> None:
    at_terminal(command("claude"), home, "y\nn\nn\n")
    policy = str(home / ".config" / "licet" / "default.yaml")
    trust = [sys.executable, "-I", "-m", "licet", "trust", policy]
    code, said = at_terminal(trust, home, "y\n")
    assert (code, "${workdir} is each directory" in said) == (0, True), said
    for name in ("one", "two"):
        assert of_line(home, elsewhere(home, name), f"s-{name}") == "allow"
    code, said = at_terminal(trust, home, "")
    assert "are covered until" in said


def hooks(home: Path, directory: Path, *words: str, **more: str) -> tuple[int, str]:
    """The exit code of `licet hooks` in a directory, and what it says."""
    ended = subprocess.run(
        [sys.executable, "-I", "-m", "licet", "hooks", *words], cwd=directory, env=environment(home) | more,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


def test_each_test_call_is_decided_by_the_policy_of_its_directory_and_leaves_no_session(home: Path) -> None:
    project, other = home.parent / "project", elsewhere(home, "other")
    for place in (project, other):
        code, said = hooks(home, place, "install", "--agent", "claude", "--scope", "user", "--yes")
        assert code == 0, said
    for place in (project, other):
        _, said = hooks(home, place, "status", "--agent", "claude", "--json")
        (canary,) = json.loads(said)["agents"][0]["canaries"]
        assert canary["outcome"] == "refused"
        assert str(place / ".licet" / "licet.yaml") in canary["why"]
    sessions = home / ".local" / "state" / "licet" / "hooks" / "sessions"
    assert list(sessions.iterdir()) == []


def test_status_says_what_install_says_of_a_version(home: Path) -> None:
    programs = elsewhere(home, "programs")
    (programs / "claude").write_text("#!/bin/sh\necho '2.1.197 (Claude Code)'\n")
    (programs / "claude").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    for words in (("install", "--yes"), ("status",)):
        _, said = hooks(home, home.parent / "project", *words, "--agent", "claude", **path)
        assert "this version ignores `onFailure`: when the hook fails, the call runs" in said


def test_status_names_a_policy_that_is_here_and_that_hooks_do_not_use_yet(home: Path) -> None:
    place = elsewhere(home, "other")
    policy = place / ".licet" / "licet.yaml"
    policy.parent.mkdir()
    policy.write_text("licet: 1\nagent: a\n")
    _, said = hooks(home, place, "status", "--no-canary")
    assert f"policy of {place}: {policy}\n  hooks do not use it yet: " in said


def test_status_ends_with_why_its_exit_code_is_1(home: Path) -> None:
    project = home.parent / "project"
    hooks(home, project, "install", "--agent", "claude", "--scope", "user", "--yes")
    code, said = hooks(home, project, "status", "--agent", "claude")
    assert (code, "exit code 1" in said) == (0, False), said
    code, said = hooks(home, project, "status", "--agent", "claude", "--agent", "gemini", "--no-canary")
    assert code == 1
    last = said.splitlines()[-1]
    assert last == "exit code 1: Gemini CLI has no hooks (`--agent NAME` looks at that agent alone)"
    assert "an agent has no hooks" in hooks(home, project, "status", "--help")[1]


def test_remove_ends_what_serves_hooks_and_names_the_directories_that_stay(home: Path) -> None:
    project, state = home.parent / "project", home / ".local" / "state" / "licet"
    for agent in ("claude", "gemini"):
        hooks(home, project, "install", "--agent", agent, "--scope", "user", "--yes")
    assert of_line(home, project, "s-1") == "ask"
    made = [path for path in project.rglob("*") if path.is_dir() and path.name != ".licet"]
    assert len(made) == 8  # seven, and `.github` above two of them
    _, said = hooks(home, project, "remove", "--agent", "gemini", "--yes", "--json")
    assert [(state / "hooks" / name).is_dir() for name in ("sessions", "tickets")] == [True, True]
    _, said = hooks(home, project, "remove", "--yes")
    assert [(state / "hooks" / name).exists() for name in ("sessions", "tickets")] == [False, False]
    assert "resident: none runs" in hooks(home, project, "status", "--no-canary")[1]
    (line,) = [one for one in said.splitlines() if "rmdir" in one]
    command_line = line.partition("remove them with: ")[2]
    (project / ".cursor" / "mine").write_text("")
    subprocess.run(["/bin/sh", "-c", command_line], check=False)
    assert [path for path in made if path.exists()] == [project / ".cursor"]
    assert "rmdir" not in hooks(home, project, "remove", "--yes")[1]


def test_where_nobody_is_asked_hooks_are_taken_and_it_is_said(home: Path) -> None:
    def run(*words: str) -> str:
        return subprocess.run(
            command("gemini", "--yes", *words), cwd=home.parent / "project", env=environment(home),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=True,
        ).stdout  # fmt: skip

    said = run()
    assert "not chosen: walls around the whole agent" in said
    assert (home / ".gemini" / "settings.json").exists()
    (home / ".gemini" / "settings.json").unlink()
    (agent,) = json.loads(run("--json"))["agents"]
    assert agent["not_chosen"].endswith("licet run -- gemini")
