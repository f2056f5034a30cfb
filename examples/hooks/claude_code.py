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


class ClaudeCode:
    """One session. `hook` are the words that its settings name for each event, without the event."""

    def __init__(self, directory: Path, hook: list[str]) -> None:
        self._directory, self._hook = directory, hook
        self._numbers = count(1)

    def event(self, event: str, *, subagent: str = "", **fields: Any) -> Mapping[str, Any]:
        """Tell the hook of an event; returns the decision."""
        common = {
            "session_id": "48f619db-47c8-4987-bb2d-618fef869bfb",
            "transcript_path": "/home/u/.claude/projects/project/48f619db.jsonl",
            "cwd": str(self._directory),
            "hook_event_name": event,
        }
        if event not in ("SessionStart", "SessionEnd"):
            common |= {"prompt_id": "8e1a8338", "permission_mode": "bypassPermissions"}
        if subagent:
            common |= {"agent_id": subagent, "agent_type": "general-purpose"}
        told = json.dumps(common | fields).encode()
        ran = subprocess.run([*self._hook, event], input=told, capture_output=True, cwd=self._directory, check=False)  # noqa: S603
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
            ["/bin/bash", "-c", command], cwd=self._directory, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        said = (ran.stdout + ran.stderr).decode()
        return ran.returncode, [re.sub(r"^/bin/(ba)?sh: line \d+: ", "bash: ", line) for line in said.splitlines()]

    def _own_tool(self, tool: str, arguments: Mapping[str, Any]) -> list[str]:
        file = Path(arguments["file_path"])
        if tool == "Read":
            return file.read_text("utf-8").splitlines()
        text = arguments.get("content") or file.read_text("utf-8").replace(
            arguments["old_string"], arguments["new_string"]
        )
        file.write_text(text, "utf-8")
        return ["done"]
