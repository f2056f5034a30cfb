"""What coding agents are answered: which policy holds, which calls pass, and what the receipts say of them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from attacks.walled_programs import needs_programs
from hooks.coding_agents import POLICY, Claude, Project, new_arguments, no_policies, verdict
from hooks.residents import without_resident
from licet.assemble.acceptance import accept_policy
from licet.backends.secrets import generated_key
from licet.cli import hook
from licet.cli.app import licet
from licet.core.review.sensitive import SWITCHES
from licet.hooks import answering
from licet.hooks.answering import service_alone
from licet.hooks.policy_choice import HookPolicies, read_policies, write_policies
from licet.policy_files.load import load_own_manifest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return Project(tmp_path)


def answered(agent: Claude, tool: str, **arguments: Any) -> tuple[str, str]:
    return verdict(asyncio.run(agent.before(tool, **arguments)))


# Calls ----------------------------------------------------------------------------------------------------------------

CALLS: Mapping[str, tuple[str, dict[str, str], str]] = {
    "a file of the project": ("Read", {"file_path": "{root}/a.txt"}, "silent"),
    "a directory of the project": ("LS", {"path": "{root}"}, "silent"),
    "a denied file": ("Read", {"file_path": "{root}/.env"}, "deny"),
    "a file elsewhere": ("Read", {"file_path": "{root}/../outside.txt"}, "deny"),
    "a link out of the project": ("Read", {"file_path": "{root}/link"}, "deny"),
    "a link in the project is handed back resolved": ("Read", {"file_path": "{root}/inner"}, "rewritten"),
    "a relative path is handed back resolved": ("Read", {"file_path": "a.txt"}, "rewritten"),
    "a path of the home": ("Read", {"file_path": "~/.ssh/id_ed25519"}, "deny"),
    "a new file": ("Write", {"file_path": "{root}/new.txt", "content": "x"}, "silent"),
    "an edit": ("Edit", {"file_path": "{root}/a.txt", "old_string": "h", "new_string": "j"}, "silent"),
    "an edit of the policy": ("Edit", {"file_path": "{root}/.licet/licet.yaml"}, "deny"),
    "an edit of the agent's settings": ("Write", {"file_path": "{root}/.claude/settings.local.json"}, "deny"),
    "an edit of the list of servers, which is missing": ("Write", {"file_path": "{root}/.mcp.json"}, "deny"),
    "an edit of the user's own settings": ("Write", {"file_path": "~/.claude/settings.json"}, "deny"),
    "a search of a tree with a denied file": ("Grep", {"pattern": "TOKEN", "path": "{root}"}, "deny"),
    "a search of one without": ("Grep", {"pattern": "TOKEN", "path": "{root}/sub"}, "silent"),
    "a pattern elsewhere": ("Glob", {"pattern": "/etc/*"}, "deny"),
    "an allowed page": ("WebFetch", {"url": "https://docs.example.com/a", "prompt": "read"}, "silent"),
    "another host": ("WebFetch", {"url": "https://evil.example.net/", "prompt": "read"}, "deny"),
    "a denied host": ("WebFetch", {"url": "https://tracker.example.com/", "prompt": "read"}, "deny"),
    "no URL": ("WebFetch", {"url": "not a url", "prompt": "read"}, "deny"),
    "a tool without reach": ("TodoWrite", {"todos": "[]"}, "silent"),
    "a subagent": ("Task", {"prompt": "do", "subagent_type": "general"}, "silent"),
    "a tool that nobody knows": ("Teleport", {"to": "mars"}, "deny"),
    "a name in another case": ("read", {"file_path": "{root}/a.txt"}, "deny"),
    "a name that only looks alike": ("Ｒead", {"file_path": "{root}/a.txt"}, "deny"),
    "a service that the policy does not name": ("WebSearch", {"query": "x"}, "deny"),
    "a program that is no shell line": ("REPL", {"code": "1"}, "deny"),
    "no path": ("Read", {"file": "{root}/a.txt"}, "deny"),
    "a server that is not behind the gateway": ("mcp__files__read", {"path": "{root}/a.txt"}, "deny"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_answered_by_the_policy(project: Project, name: str) -> None:
    tool, arguments, expected = CALLS[name]
    given = {key: value.replace("{root}", str(project.root)) for key, value in arguments.items()}
    found, reason = answered(Claude(project), tool, **given)
    assert (found, bool(reason)) == (expected, expected == "deny"), reason


def test_a_refusal_names_the_line_that_decided_and_its_receipt(project: Project) -> None:
    _, reason = answered(Claude(project), "Read", file_path=f"{project.root}/.env")
    assert f"{project.policy}:8" in reason
    (receipt,) = project.receipts()
    assert receipt["id"] in reason
    assert (receipt["tool"], receipt["verdict"], receipt["reason"]) == ("claude.Read", "deny", "PATH_NOT_REACHABLE")


def test_what_was_checked_is_what_the_agent_opens(project: Project) -> None:
    given = {"file_path": "inner", "limit": 3}
    printed = asyncio.run(Claude(project).before("Read", **given))
    assert new_arguments(printed) == {"file_path": f"{project.root}/a.txt", "limit": 3}


# Receipts -------------------------------------------------------------------------------------------------------------


def test_the_agents_event_closes_the_call(project: Project) -> None:
    claude, path = Claude(project), {"file_path": f"{project.root}/a.txt"}
    asyncio.run(claude.before("Read", **path))
    assert project.receipts() == []
    asyncio.run(claude.after("Read", path, {"content": "hello"}))
    asyncio.run(claude.after("Read", path, {"content": "hello"}))  # a second event changes nothing
    (receipt,) = project.receipts()
    about = receipt["coding_agent"]
    assert (about["name"], about["call"], about["end"]) == ("claude", "toolu_s-1_1", "reported")
    assert (receipt["session"], receipt["code"]) == ("claude/s-1", "ok")


def test_calls_without_an_end_are_unknown_when_the_session_ends(project: Project) -> None:
    claude = Claude(project)
    asyncio.run(claude.before("Read", file_path=f"{project.root}/a.txt"))
    asyncio.run(claude.tell("SessionEnd", reason="exit"))
    (receipt,) = project.receipts()
    assert receipt["coding_agent"]["end"] == "unknown"


def test_calls_of_a_subagent_are_calls_of_a_delegate(project: Project) -> None:
    claude, path = Claude(project), {"file_path": f"{project.root}/a.txt"}
    claude.subagent = "a17"
    asyncio.run(claude.before("Read", **path))
    asyncio.run(claude.after("Read", path))
    (receipt,) = project.receipts()
    assert receipt["agent"].startswith("coder>")
    assert receipt["parent"] == {"agent": "coder", "session": "claude/s-1"}
    assert receipt["coding_agent"]["subagent"] == "a17"


def test_two_sessions_whose_ids_differ_in_odd_characters_stay_apart(project: Project) -> None:
    for session in ("a/b", "a_b", "a b"):
        asyncio.run(Claude(project, session).before("Read", file_path=f"{project.root}/.env"))
    assert len({receipt["session"] for receipt in project.receipts()}) == 3


# Which policy holds ---------------------------------------------------------------------------------------------------


def test_a_cd_does_not_change_the_policy(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    claude = Claude(project)
    assert answered(claude, "Read", file_path=f"{project.root}/a.txt")[0] == "silent"
    claude.directory = str(other)
    assert answered(claude, "Read", file_path=f"{project.root}/a.txt")[0] == "silent"
    assert answered(claude, "Read", file_path=f"{other}/x")[0] == "deny"


MOVED: Mapping[str, dict[str, str]] = {
    "claude": {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_use_id": "t", "prompt_id": "p"},
    "codex": {
        "hook_event_name": "PreToolUse",
        "tool_name": "view_image",
        "tool_use_id": "t",
        "turn_id": "p",
        "model": "m",
    },
}


@pytest.mark.parametrize("agent", MOVED)
def test_the_first_event_may_come_after_a_cd(project: Project, tmp_path: Path, agent: str) -> None:
    # As the agents were seen: the payload has the directory of the line, and the variable, or the directory that the
    # hook is started in, that of the session.
    lax = tmp_path / "lax"
    lax.mkdir()
    (lax / ".licet").mkdir()
    other = lax / ".licet" / "licet.yaml"
    other.write_text(POLICY.replace('read: ["${workdir}"]', f'read: ["${{workdir}}", "{tmp_path}/outside.txt"]'))
    accept_policy(other, load_own_manifest(other))
    write_policies(read_policies().with_project(str(lax), str(other)))
    argument = "path" if agent == "codex" else "file_path"
    arguments = {argument: f"{tmp_path}/outside.txt"}
    words = [sys.executable, "-I", "-m", "licet", "hook", agent, "PreToolUse"]
    at, more = (lax, {"CLAUDE_PROJECT_DIR": str(project.root)}) if agent == "claude" else (project.root, {})
    for session, environment, expected in (("s", more, True), ("t", {}, agent == "codex")):
        event = {**MOVED[agent], "session_id": session, "cwd": str(lax), "tool_input": arguments}
        ended = subprocess.run(
            words, input=json.dumps(event).encode(), capture_output=True, check=True, cwd=at,
            env={**os.environ, **environment},
        )  # fmt: skip
        assert (b'"deny"' in ended.stdout) is expected, ended


def test_a_session_elsewhere_has_the_default_policy_in_its_own_directory(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other" / "deep"
    other.mkdir(parents=True)
    write_policies(HookPolicies(read_policies().projects, str(project.policy)))
    claude = Claude(project, "s-2")
    claude.directory = str(other)
    assert answered(claude, "Read", file_path=f"{other}/x")[0] == "silent"
    assert answered(claude, "Read", file_path=f"{project.root}/a.txt")[0] == "deny"


def test_the_default_policy_does_not_open_a_whole_home(project: Project, tmp_path: Path) -> None:
    write_policies(HookPolicies((), str(project.policy)))
    claude = Claude(project, "s-3")
    claude.directory = str(tmp_path / "home")
    found, reason = answered(claude, "Read", file_path=str(tmp_path / "home" / "x"))
    assert found == "failed"
    assert "start the agent in a project" in reason


def test_without_any_policy_each_call_is_refused(project: Project) -> None:
    no_policies()
    found, reason = answered(Claude(project), "Read", file_path=f"{project.root}/a.txt")
    assert found == "failed"
    assert "`licet hooks install`" in reason


def test_a_policy_that_is_not_accepted_refuses(project: Project) -> None:
    project.write_policy(POLICY.replace("max_calls_per_day: 1000", "max_calls_per_day: 2000"), accept=False)
    found, reason = answered(Claude(project), "Read", file_path=f"{project.root}/a.txt")
    assert found == "failed"
    assert f"`licet trust {project.policy}`" in reason


def test_a_policy_that_changes_while_a_session_runs_is_read_anew(project: Project) -> None:
    async def session() -> list[str]:
        service = service_alone()
        claude = Claude(project, answering=service)
        found = [verdict(await claude.before("Read", file_path=f"{project.root}/a.txt"))[0]]
        project.write_policy(POLICY.replace('"fs:*:${workdir}/.env"', '"fs:*:${workdir}/a.txt"'))
        found.append(verdict(await claude.before("Read", file_path=f"{project.root}/a.txt"))[0])
        await service.close()
        return found

    assert asyncio.run(session()) == ["silent", "deny"]


def test_the_start_of_a_session_says_why_every_call_will_be_refused(project: Project) -> None:
    no_policies()
    found, text = verdict(asyncio.run(Claude(project).tell("SessionStart", source="startup")))
    assert found == "told"
    assert "every call will be refused" in text


DELETE = "delete: manifest"

# People ---------------------------------------------------------------------------------------------------------------


def test_what_needs_a_person_is_asked_in_the_agent(project: Project) -> None:
    project.write_policy(POLICY.replace("write: manifest", "write: call"))
    claude, arguments = Claude(project), {"file_path": f"{project.root}/new.txt", "content": "x"}
    assert answered(claude, "Write", **arguments)[0] == "ask"
    asyncio.run(claude.after("Write", arguments))
    (receipt,) = project.receipts()
    assert receipt["coding_agent"]["asked"] is True
    assert receipt["approvals"][0]["by"] == ["asked in the agent"]


def test_what_asks_is_named_with_its_line_and_what_would_settle_it(project: Project) -> None:
    asks = '  tools: {claude.Bash: {args: {command: {ask: {pattern: "^git push"}}}}}\n'
    project.write_policy(POLICY.replace("  fs_reach:", f"{asks}  fs_reach:").replace("delete: session", DELETE))
    found, text = answered(Claude(project), "Bash", command="git push")
    assert found == "ask"
    assert f"the value of `command` asks before each call ({project.policy}:5)" in text
    assert f"nobody has given a standing approval of them ({project.policy}:13)" in text
    assert f"`licet trust {project.policy}`" in text


def test_a_refusal_names_the_command_that_agrees_for_all_sessions(project: Project) -> None:
    project.write_policy(POLICY.replace("delete: session", DELETE))
    event = {"session_id": "s-1", "transcript_path": "/t", "cwd": str(project.root), "hook_event_name": "BeforeTool"}
    event |= {"timestamp": "2026-01-01T00:00:00Z", "tool_name": "run_shell_command"}
    data = json.dumps(event | {"tool_input": {"command": "echo 1"}}).encode()
    printed = asyncio.run(service_alone().hook("gemini", "BeforeTool", data, str(project.root)))
    reason = json.loads(printed.output)["reason"]
    assert "`licet approvals approve a-" in reason
    assert f"`licet trust {project.policy}`" in reason


def test_an_answer_in_the_agent_never_counts_towards_a_quorum(project: Project) -> None:
    keys = [generated_key().public for _ in range(2)]
    project.write_policy(POLICY.replace("write: manifest", f"write: call, quorum: 2, keys: {json.dumps(keys)}"))
    found, reason = answered(Claude(project), "Write", file_path=f"{project.root}/new.txt", content="x")
    assert found == "deny"
    assert "licet approvals approve" in reason


def test_a_line_that_the_policy_wants_asked_is_asked(project: Project) -> None:
    rule = '  tools: {claude.Bash: {args: {command: {not: {pattern: "^rm "}, ask: {pattern: "^git push"}}}}}\n'
    project.write_policy(POLICY.replace("  fs_reach:", f"{rule}  fs_reach:").replace("delete: session", "delete: call"))
    claude = Claude(project)
    found, reason = answered(claude, "Bash", command="rm -r sub")
    assert found == "deny"
    assert f"{project.policy}:5" in reason
    assert answered(claude, "Bash", command="ls")[0] == "allow"
    assert answered(claude, "Bash", command="git push origin")[0] == "ask"


# Failures -------------------------------------------------------------------------------------------------------------

BROKEN = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "bytes": b"\xff\xfe\x00",
    "another event": json.dumps({"session_id": "s", "hook_event_name": "PostToolUse"}).encode(),
    "deep": b"[" * 100_000,
    "no tool": json.dumps({"session_id": "s", "cwd": "/", "hook_event_name": "PreToolUse"}).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_has_a_receipt(project: Project, name: str) -> None:
    printed = asyncio.run(service_alone().hook("claude", "PreToolUse", BROKEN[name], str(project.root)))
    asyncio.run(service_alone().hook("claude", "PostToolUse", BROKEN[name], str(project.root)))  # no call
    (receipt,) = project.receipts()
    assert receipt["id"] in printed.errors.decode()
    assert (receipt["session"], receipt["tool"], receipt["reason"]) == (
        "claude/unread",
        "claude.unread",
        "INPUT_INVALID",
    )
    assert receipt["arguments"] == f"sha256:{sha256(BROKEN[name]).hexdigest()}"


NAMES_OF_TOOLS = {"Read": "claude.Read", "Re\nad": "claude.unread", "x" * 5000: "claude.unread"}


@pytest.mark.parametrize("name", NAMES_OF_TOOLS, ids=["plain", "with a newline", "long"])
def test_a_call_that_cannot_be_read_is_recorded_in_its_session(project: Project, name: str) -> None:
    claude = Claude(project, "known")
    asyncio.run(claude.tell("SessionStart", source="startup"))
    event = claude.event("PreToolUse", tool_name=name, tool_input=["no object"], tool_use_id="t")
    asyncio.run(service_alone().hook("claude", "PreToolUse", event, "/"))
    (receipt,) = project.receipts()
    assert (receipt["session"], receipt["tool"]) == ("claude/known", NAMES_OF_TOOLS[name])
    assert (receipt["verdict"], receipt["coding_agent"]["event"]) == ("deny", "PreToolUse")


def test_a_call_that_comes_too_late_has_a_receipt(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    claude = Claude(project)
    asyncio.run(claude.tell("SessionStart", source="startup"))
    monkeypatch.setattr(answering, "HOOK_SECONDS", 0)
    found, reason = answered(claude, "Read", file_path=f"{project.root}/a.txt")
    (receipt,) = project.receipts()
    assert (found, receipt["tool"], receipt["reason"]) == ("failed", "claude.Read", "DECISION_FAILED")
    assert receipt["id"] in reason


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_a_refusal_before_a_call_and_nothing_else(project: Project, name: str) -> None:
    printed = asyncio.run(service_alone().hook("claude", "PreToolUse", BROKEN[name], str(project.root)))
    assert printed.code == 2
    assert printed.errors
    assert not printed.output
    told = asyncio.run(service_alone().hook("claude", "PostToolUse", BROKEN[name], str(project.root)))
    assert told.code == 0


def test_a_full_ledger_refuses(project: Project, tmp_path: Path) -> None:
    claude, path = Claude(project), {"file_path": f"{project.root}/a.txt"}
    assert answered(claude, "Read", **path)[0] == "silent"
    (ledger,) = Path(tmp_path, "state", "licet").glob("*/ledger.sqlite")
    ledger.write_bytes(b"not a database" * 100)
    found, reason = answered(claude, "Read", **path)
    assert found in ("deny", "failed")
    assert "LEDGER_UNAVAILABLE" in reason or "ledger" in reason


def test_the_command_answers_as_the_service_does(project: Project) -> None:
    event = Claude(project).event(
        "PreToolUse", tool_name="Read", tool_input={"file_path": f"{project.root}/.env"}, tool_use_id="t"
    )
    words = [sys.executable, "-I", "-m", "licet", "hook", "claude-code", "PreToolUse"]
    ended = subprocess.run(words, input=event, capture_output=True, check=False, cwd=project.root, env=dict(os.environ))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


COMMAND_FAILURES = {"PreToolUse": 2, "NewToolUse": 2, "UserPromptSubmit": 0, "PostToolUse": 0, "SessionStart": 0}


@pytest.mark.parametrize("event", COMMAND_FAILURES)
@pytest.mark.parametrize("agent", ["claude", "claude-code"])
def test_a_command_that_fails_refuses_calls_and_stops_no_other_event(
    monkeypatch: pytest.MonkeyPatch, agent: str, event: str
) -> None:
    def fails(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(hook, "answer", fails)
    assert CliRunner().invoke(licet, ["hook", agent, event]).exit_code == COMMAND_FAILURES[event]


SERVERS = {"mcp__other__x": "does not start licet's gateway", "mcp__a__b__c": "may be `b__c` of `a` or `c` of `a__b`"}


@pytest.mark.parametrize("tool", SERVERS)
def test_the_refusal_of_a_servers_tool_says_what_to_do(project: Project, tool: str) -> None:
    servers = {name: {"command": "x"} for name in ("other", "a", "a__b")}
    Path(os.environ["HOME"], ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    found, reason = answered(Claude(project), tool)
    (receipt,) = project.receipts()
    assert (found, receipt["reason"], receipt["coding_agent"]["call"]) == ("deny", "UNKNOWN_TOOL", "toolu_s-1_1")
    assert receipt["reason"] in reason
    assert SERVERS[tool] in reason


def test_an_agent_that_nobody_knows_is_a_usage_error(project: Project) -> None:
    words = [sys.executable, "-I", "-m", "licet", "hook", "cluade", "PreToolUse"]
    ended = subprocess.run(words, input=b"{}", capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"claude" in ended.stderr


PROCESS = "process: {allowed_binaries: [sh, bash]}"

# Shell lines ----------------------------------------------------------------------------------------------------------


def run(printed: Any, project: Project) -> subprocess.CompletedProcess[bytes]:
    line = new_arguments(printed)["command"]
    return subprocess.run(["/bin/bash", "-c", line], capture_output=True, check=False, cwd=project.root)


@needs_programs
def test_a_line_runs_once_behind_walls_and_licet_closes_its_receipt(project: Project, tmp_path: Path) -> None:
    without_resident(tmp_path / "state")
    project.write_policy(POLICY.replace("delete: session", "delete: call"))
    claude = Claude(project)
    text = "cat a.txt .env ../outside.txt; touch made .claude/settings.json; exit 3"
    printed = asyncio.run(claude.before("Bash", command=text, description="d"))
    assert text in new_arguments(printed)["command"]
    assert new_arguments(printed)["description"] == "d"
    ended = run(printed, project)
    assert (ended.returncode, ended.stdout) == (3, b"hello\n"), ended
    assert (project.root / "made").exists()
    assert not (project.root / ".claude" / "settings.json").exists()
    again = run(printed, project)
    assert (again.returncode, again.stdout) == (125, b""), again
    asyncio.run(claude.after("Bash", {"command": text}))
    (receipt,) = project.receipts()
    assert (receipt["coding_agent"]["end"], receipt["coding_agent"]["rewritten"]) == ("seen", True)
    assert receipt["sandbox"]["programs"]["ended"] == [3]


@needs_programs
def test_no_line_writes_what_configures_an_agent_whether_it_is_there_or_not(project: Project, tmp_path: Path) -> None:
    without_resident(tmp_path / "state")
    project.write_policy(POLICY.replace("delete: session", "delete: call"))
    files = [one.path if not one.is_directory else f"{one.path}/settings.json" for one in SWITCHES]
    text = "; ".join(f"mkdir -p {Path(name).parent}; echo '{{}}' > {name}" for name in files)
    text += "; mv .claude other; rm -rf .codex; ln -s /tmp .gemini; echo done"
    ended = run(asyncio.run(Claude(project).before("Bash", command=text)), project)
    assert ended.stdout.endswith(b"done\n"), ended
    there = [name for name in files if (project.root / name).exists()]
    assert there == []
    assert not (project.root / "other").exists()
    assert all((project.root / one.path).is_dir() for one in SWITCHES if one.is_directory)


@needs_programs
def test_git_adds_no_names_that_are_held_while_a_line_runs(project: Project, tmp_path: Path) -> None:
    without_resident(tmp_path / "state")
    allowed = "process: {allowed_binaries: [sh, bash, git]}"
    project.write_policy(POLICY.replace(PROCESS, allowed))
    (project.root / ".env").unlink()  # so that this name is held as well
    subprocess.run(["git", "init", "--quiet", str(project.root)], check=True)
    exclude = project.root / ".git" / "info" / "exclude"
    exclude.write_text("*.log")  # no newline at its end
    (project.root / "made.log").write_text("")
    (project.root / "sub" / "opencode.json").write_text("{}")  # the person's own
    text = "ls .mcp.json; git add -A; git status --porcelain"
    printed = asyncio.run(Claude(project).before("Bash", command=text))
    ended = run(printed, project)
    names = sorted(line.split()[-1] for line in ended.stdout.decode().splitlines())
    # `.mcp.json` is from `ls`: the name is held.
    assert [name for name in names if name not in (".licet/licet.yaml", ".opencode/.gitignore")] == [
        ".mcp.json", "a.txt", "inner", "link", "sub/opencode.json"
    ], ended  # fmt: skip
    assert exclude.read_text() == "*.log"


@needs_programs
def test_what_git_leaves_out_opens_no_file_elsewhere(project: Project, tmp_path: Path) -> None:
    without_resident(tmp_path / "state")
    project.write_policy(POLICY.replace("delete: session", "delete: call"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "exclude").write_text("not for agents")
    (project.root / ".git").mkdir()
    (project.root / ".git" / "info").symlink_to(outside)
    ended = run(asyncio.run(Claude(project).before("Bash", command="cat .git/info/exclude; echo done")), project)
    assert ended.stdout == b"done\n"
    (project.root / ".git" / "info").unlink()
    (project.root / ".git" / "info").mkdir()
    (project.root / ".git" / "info" / "exclude").symlink_to(outside / "exclude")
    ended = run(asyncio.run(Claude(project).before("Bash", command="cat .git/info/exclude; echo done")), project)
    assert ended.stdout == b"done\n"


@needs_programs
def test_a_line_that_the_agent_never_ran_costs_nothing(project: Project) -> None:
    claude = Claude(project)
    printed = asyncio.run(claude.before("Bash", command="echo hi"))
    assert verdict(printed)[0] in ("allow", "ask")
    asyncio.run(claude.tell("SessionEnd", reason="exit"))
    (receipt,) = project.receipts()
    assert receipt["reason"] == "INTERRUPTED"
    assert "end" not in receipt["coding_agent"]
