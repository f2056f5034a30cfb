"""Plays Claude Code: sends the events that it sends, in the form that was recorded, and does what the answers say.

It keeps no rule of its own, as Claude Code with `--dangerously-skip-permissions`, and without a terminal: a call that
its hook wants to ask about is refused.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from hijacked import Step

VERSION = "2.1.326"  # whose events were recorded
SESSION = "48f619db-47c8-4987-bb2d-618fef869bfb"


class ClaudeCode:
    """One session, in a project and with the settings of a home directory."""

    def __init__(self, directory: Path, home: Path) -> None:
        self._directory = directory
        settings = home / ".claude" / "settings.json"
        self._hooks = json.loads(settings.read_text("utf-8"))["hooks"] if settings.exists() else {}
        self._numbers = count(1)

    def event(self, event: str, *, subagent: str = "", **fields: Any) -> Mapping[str, Any]:
        """Tell the hook of an event; returns the decision."""
        common = {
            "session_id": SESSION,
            "transcript_path": "/home/u/.claude/projects/project/48f619db.jsonl",
            "cwd": str(self._directory),
            "hook_event_name": event,
        }
        if event not in ("SessionStart", "SessionEnd"):
            common |= {"prompt_id": "8e1a8338", "permission_mode": "bypassPermissions"}
        if subagent:
            common |= {"agent_id": subagent, "agent_type": "general-purpose"}
        told = json.dumps(common | fields).encode()
        if event not in self._hooks:
            return {}
        [entry] = self._hooks[event]
        words = ["/bin/sh", "-c", entry["hooks"][0]["command"]]
        ran = subprocess.run(words, input=told, capture_output=True, cwd=self._directory, check=False)  # noqa: S603
        if ran.returncode == 2:
            return {"permissionDecision": "deny", "permissionDecisionReason": ran.stderr.decode()}
        decision: Mapping[str, Any] = json.loads(ran.stdout).get("hookSpecificOutput", {}) if ran.stdout else {}
        return decision

    def call(self, step: Step) -> list[str]:
        """Make a call, if the hook lets it through; returns what happened, as lines."""
        call = f"toolu_{next(self._numbers)}"
        fields = {"tool_name": step.tool, "tool_use_id": call, "subagent": step.subagent}
        decision = self.event("PreToolUse", tool_input=step.arguments, **fields)
        reason = str(decision.get("permissionDecisionReason", "")).rstrip()
        match decision.get("permissionDecision"):
            case "deny":
                return [f"refused: {reason}"]
            case "ask":
                return [f"asks:    {reason}", "         nobody answers, so the call does not run"]
        arguments = decision.get("updatedInput", step.arguments)
        if step.tool == "Bash":
            code, lines = self._line(arguments["command"])
            event, result = ("PostToolUseFailure", {"error": f"Exit code {code}"}) if code else ("PostToolUse", {})
            result = result or {"tool_response": {"stdout": "\n".join(lines), "stderr": "", "interrupted": False}}
            lines = [*lines, *([f"[exit code {code}]"] if code else [])]
        else:
            lines, event = self._own_tool(step.tool, arguments), "PostToolUse"
            result = {"tool_response": {"type": "text"}}
        self.event(event, tool_input=arguments, **fields, **result)
        return lines

    def _line(self, command: str) -> tuple[int, list[str]]:
        ran = subprocess.run(  # noqa: S603
            ["/bin/bash", "-c", command],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        said = (ran.stdout + ran.stderr).decode()
        return ran.returncode, [re.sub(r"^/bin/(ba)?sh: line \d+: ", "bash: ", line) for line in said.splitlines()]

    def _own_tool(self, tool: str, arguments: Mapping[str, Any]) -> list[str]:
        match tool:
            case "Read":
                return Path(arguments["file_path"]).read_text("utf-8").splitlines()
            case "Edit":
                file = Path(arguments["file_path"])
                file.write_text(file.read_text("utf-8").replace(arguments["old_string"], arguments["new_string"]))
            case "Write":
                file = Path(arguments["file_path"])
                file.parent.mkdir(exist_ok=True)
                file.write_text(arguments["content"], "utf-8")
            case "Grep":
                return self._line(f"grep -rn {arguments['pattern']} {arguments['path']}")[1]
            case _:
                return ["this is not played"]
        return ["done"]
