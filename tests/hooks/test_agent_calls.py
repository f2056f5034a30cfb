"""What calls of every coding agent's tools are answered, in the agent's own words."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hooks.coding_agents import POLICY, Project
from hooks.every_agent import Played, said

OUTSIDE = "{root}/../outside.txt"

CALLS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    # An argument that the table does not have may be read by a newer version of the agent.
    "Cursor reads a file": ("cursor", "Read", {"file_path": "{root}/a.txt"}, "silent"),
    "Cursor reads a file under its other name": ("cursor", "Read", {"target_file": OUTSIDE}, "deny"),
    "Cursor writes a file under its other name": (
        "cursor",
        "Write",
        {"target_file": "{root}/.cursor/hooks.json"},
        "deny",
    ),
    "Cursor reads two files": ("cursor", "Read", {"path": "{root}/a.txt", "target_file": OUTSIDE}, "deny"),
    "Cursor reads without any path": ("cursor", "Read", {"offset": 1}, "deny"),
    "Cursor writes what looks like a path": (
        "cursor",
        "Write",
        {"path": "{root}/a.txt", "contents": "/etc ~ .."},
        "silent",
    ),
    "Cursor lists where it is": ("cursor", "LS", {}, "silent"),
    "Cursor searches in a folder": ("cursor", "Grep", {"pattern": "/etc", "path": "{root}/sub"}, "silent"),
    "Gemini reads many files": ("gemini", "read_many_files", {"include": ["**/.env"]}, "deny"),
    "Gemini reads many files under another name": ("gemini", "read_many_files", {"paths": ["/etc/shadow"]}, "deny"),
    "Gemini reads many files that nothing names": ("gemini", "read_many_files", {"include": []}, "deny"),
    "Gemini searches for what looks like a path": (
        "gemini",
        "grep_search",
        {"pattern": "/api", "dir_path": "{root}/sub", "include_pattern": "../*"},
        "silent",
    ),
    "Claude Code reads with a name that is not known": (
        "claude",
        "Read",
        {"file_path": "{root}/a.txt", "other_file": "b"},
        "deny",
    ),
    "Claude Code reads with a value that is not known": (
        "claude",
        "Read",
        {"file_path": "{root}/a.txt", "more": ["/etc/shadow"]},
        "deny",
    ),
    "Claude Code reads with a path in an object": (
        "claude",
        "Read",
        {"file_path": "{root}/a.txt", "more": {"also": [{"name": "~/.ssh/id"}]}},
        "deny",
    ),
    "Claude Code reads with a path as a key": (
        "claude",
        "Read",
        {"file_path": "{root}/a.txt", "more": {"/etc": 1}},
        "deny",
    ),
    "Claude Code reads with a number": (
        "claude",
        "Read",
        {"file_path": "{root}/a.txt", "limit": 3, "as": "text"},
        "silent",
    ),
    "Claude Code replaces what looks like a path": (
        "claude",
        "Edit",
        {"file_path": "{root}/a.txt", "old_string": "/usr", "new_string": "../usr"},
        "silent",
    ),
    "Claude Code fetches with a second address": (
        "claude",
        "WebFetch",
        {"url": "https://docs.example.com/", "proxy_url": "x", "prompt": "/"},
        "deny",
    ),
    "Copilot searches below one of two names": ("copilot", "grep", {"pattern": "x", "path": "{root}/sub"}, "silent"),
    "Copilot searches below both": (
        "copilot",
        "grep",
        {"pattern": "x", "path": "{root}/sub", "paths": "{root}"},
        "deny",
    ),
    "Copilot searches where it is": ("copilot", "grep", {"pattern": "x"}, "deny"),  # a denied file is there
    "Copilot finds files by a list of folders": (
        "copilot",
        "glob",
        {"pattern": "../*.txt", "paths": ["{root}/sub", "{root}/.."]},
        "deny",
    ),
    "OpenCode edits what looks like a path": (
        "opencode",
        "edit",
        {"filePath": "{root}/a.txt", "oldString": "/a", "newString": "~/b"},
        "silent",
    ),
    "OpenCode edits with a name that is not known": (
        "opencode",
        "edit",
        {"filePath": "{root}/a.txt", "uri": "x"},
        "deny",
    ),
    # Text that is typed into a shell may be run by the shell itself.
    "Copilot types into a shell": (
        "copilot",
        "write_bash",
        {"shellId": "s", "input": "cat /etc/shadow{enter}"},
        "deny",
    ),
    "Copilot reads what a shell has written": ("copilot", "read_bash", {"shellId": "s", "delay": 3}, "silent"),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return Project(tmp_path)


def placed(value: object, project: Project) -> dict[str, Any]:
    """Arguments in a project."""
    found: dict[str, Any] = json.loads(json.dumps(value).replace("{root}", str(project.root)))
    return found


def answered(agent: str, project: Project, tool: str, **arguments: Any) -> tuple[str, str]:
    return said(agent, asyncio.run(Played(agent, project).before(tool, **placed(arguments, project))))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_answered_by_what_it_names(project: Project, name: str) -> None:
    agent, tool, arguments, expected = CALLS[name]
    found, reason = answered(agent, project, tool, **arguments)
    assert found == expected, reason


@pytest.mark.parametrize("name", ["copilot", "codex", "opencode"])
def test_an_unreadable_call_has_a_receipt(project: Project, name: str) -> None:
    read = {"copilot": "view", "codex": "view_image", "opencode": "read"}[name]
    found, reason = answered(name, project, read, elsewhere="/etc/shadow")
    assert found == "deny"
    assert "/etc/shadow" not in reason
    (receipt,) = project.receipts()
    assert receipt["id"] in reason
    assert receipt["reason"] == "INPUT_INVALID"


# Deletes --------------------------------------------------------------------------------------------------------------

KEPT = POLICY.replace("deny: [", 'deny: ["fs:delete:*", ')


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


MOVE = patch("*** Update File: a.txt", "*** Move to: b.txt", "@@", "-hello", "+there")
DELETES = {
    "Cursor": ("cursor", "Delete", {"file_path": "{root}/a.txt"}),
    "a patch of Codex": ("codex", "apply_patch", {"command": patch("*** Delete File: a.txt")}),
    "a patch of Codex that moves": ("codex", "apply_patch", {"command": MOVE}),
    "a patch of Copilot that moves": ("copilot", "apply_patch", {"input": MOVE}),
    "a patch of OpenCode that moves": ("opencode", "apply_patch", {"patchText": MOVE}),
}


@pytest.mark.parametrize("name", DELETES)
def test_a_delete_needs_the_use_that_deletes(project: Project, name: str) -> None:
    agent, tool, arguments = DELETES[name]
    project.write_policy(KEPT)
    found, reason = answered(agent, project, tool, **arguments)
    assert found == "deny"
    assert "delete not permitted" in reason


@pytest.mark.parametrize("name", DELETES)
def test_a_delete_asks_if_the_policy_says_so(project: Project, name: str) -> None:
    agent, tool, arguments = DELETES[name]
    project.write_policy(POLICY.replace("delete: session", "delete: call"))
    found, reason = answered(agent, project, tool, **arguments)
    assert found == ("ask" if agent == "copilot" else "deny")
    assert agent == "copilot" or "licet approvals approve" in reason


def test_a_policy_without_deletes_refuses_them(project: Project) -> None:
    project.write_policy(POLICY.replace("max_side_effect_class: full", "max_side_effect_class: write_limited"))
    assert answered("cursor", project, "Delete", file_path="{root}/a.txt")[0] == "deny"
    assert answered("cursor", project, "Write", file_path="{root}/a.txt", contents="x")[0] == "silent"
