"""The events of every coding agent, in its own words, and what its answers say."""

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from hooks.coding_agents import Project
from licet.hooks.agent_event import Printed
from licet.hooks.agents import AGENTS
from licet.hooks.answering import Answering, service_alone

BEFORE = {"gemini": "BeforeTool", "copilot": "preToolUse", "cursor": "preToolUse", "opencode": "tool.execute.before"}
AFTER = {"gemini": "AfterTool", "copilot": "postToolUse", "cursor": "postToolUse", "opencode": "tool.execute.after"}
PROMPT = {
    "gemini": "BeforeAgent",
    "copilot": "userPromptSubmitted",
    "cursor": "beforeSubmitPrompt",
    "opencode": "chat.message",
}


class Played:
    """A session of one agent, as its hook sees it."""

    def __init__(self, agent: str, project: Project, answering: Answering | None = None) -> None:
        self.agent, self.project, self._answering = agent, project, answering
        self._numbers = count(1)
        self.more: dict[str, Any] = {}  # fields of every payload

    async def before(self, tool: str, /, **arguments: Any) -> Printed:
        """A tool is about to run."""
        return await self._call(BEFORE.get(self.agent, "PreToolUse"), tool, arguments, {})

    async def after(self, tool: str, arguments: Mapping[str, Any], text: str) -> Printed:
        """A tool has run."""
        result: dict[str, Any] = {
            "copilot": {"toolResult": {"resultType": "success", "textResultForLlm": text}},
            "gemini": {"tool_response": {"llmContent": text, "returnDisplay": text}},
        }.get(self.agent, {"tool_response": text})
        return await self._call(AFTER.get(self.agent, "PostToolUse"), tool, arguments, result)

    async def prompt(self, text: str, **more: Any) -> Printed:
        """The person has sent a prompt."""
        return await self._tell(PROMPT.get(self.agent, "UserPromptSubmit"), {"prompt": text, **more})

    async def _call(self, event: str, tool: str, arguments: Mapping[str, Any], more: Mapping[str, Any]) -> Printed:
        if self.agent == "copilot":
            named: dict[str, Any] = {"toolName": tool, "toolArgs": arguments}
        elif self.agent == "opencode":
            named = {"tool": tool, "args": arguments, "callID": f"c{next(self._numbers)}"}
        else:
            named = {"tool_name": tool, "tool_input": arguments}
            named |= {} if self.agent == "gemini" else {"tool_use_id": f"c{next(self._numbers)}"}
        return await self._tell(event, {**named, **more})

    async def _tell(self, event: str, fields: Mapping[str, Any]) -> Printed:
        root = str(self.project.root)
        common: dict[str, dict[str, Any]] = {
            "claude": {"session_id": "s", "cwd": root, "prompt_id": "p", "permission_mode": "default"},
            "codex": {"session_id": "s", "cwd": root, "turn_id": "t", "model": "m", "permission_mode": "default"},
            "gemini": {"session_id": "s", "cwd": root, "timestamp": "2026-11-18T00:00:00Z"},
            "copilot": {"sessionId": "s", "cwd": root, "timestamp": 1},
            "cursor": {"conversation_id": "s", "workspace_roots": [root]},
            "opencode": {"sessionID": "s", "directory": root, "event": event, "agent": "build", "shell": "/bin/bash"},
        }
        name = {} if self.agent in ("copilot", "opencode") else {"hook_event_name": event}
        payload = json.dumps({**common[self.agent], **name, **self.more, **fields}).encode()
        answering = self._answering or service_alone()
        try:
            return await answering.hook(self.agent, event, payload, root)
        finally:
            if self._answering is None:
                await answering.close()


def said(agent: str, printed: Printed) -> tuple[str, str]:
    """What an answer says: `silent`, `deny`, `ask`, `rewritten` or `allow` (rewritten, without a question)."""
    if not printed.output:
        return ("failed" if printed.code else "silent"), printed.errors.decode()
    found = json.loads(printed.output)
    found = {**found, **found.get("hookSpecificOutput", {})}
    changed = next((found[key] for key in ("updatedInput", "updated_input", "modifiedArgs", "args", "tool_input")
                    if key in found), None)  # fmt: skip
    decision = next((found[key] for key in ("permissionDecision", "permission", "decision") if key in found), "none")
    reasons = ("permissionDecisionReason", "agent_message", "reason")
    reason = next((found[key] for key in reasons if key in found), "")
    if changed is not None and decision in ("none", "rewrite", "allow"):
        return ("allow" if decision == "allow" else "rewritten"), json.dumps(changed)
    return ("silent" if decision == "none" else decision), reason


def shell_tool(agent: str) -> str:
    """The name of the agent's tool for shell lines."""
    return next(tool.name for tool in AGENTS[agent].tools.values() if tool.kind == "shell")
