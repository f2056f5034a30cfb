"""Makes an installed hook refuse a harmless call, exactly as it stands in the settings of its agent.

The call is one of a tool that no agent has, so no policy allows it, and a hook that works refuses it whatever it says.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from licet.hooks.agent_sessions import AgentSessions
from licet.hooks.agent_settings import Found
from licet.hooks.agents import AGENTS
from licet.hooks.limits import CANARY_SECONDS
from licet.hooks.unread_event import SESSION_KEYS

TOOL = "licetcanary"  # without a mark that would make it one of a server
_NAME = "licet-canary"
_REASON_CHARACTERS = 300
_SHELL = "/bin/sh"


class Canary(Struct, frozen=True):
    """What came of a test call."""

    outcome: Literal["refused", "not seen", "not tried"]
    how: Literal["command", "agent"]
    why: str = ""
    milliseconds: int = 0


def canary_payload(agent: str, event: str, directory: str) -> dict[str, Any]:
    """The event before a call of a tool that does not exist, in the form that an agent has it.

    Its session is a new one each time: the first event of a session settles which policy holds for it.
    """
    call = session = f"{_NAME}-{os.getpid()}-{time.time_ns()}"
    about: dict[str, Any] = {}
    match agent:
        case "claude":
            about |= {"session_id": session, "transcript_path": "/dev/null", "cwd": directory, "prompt_id": "canary"}
            about |= {"permission_mode": "default", "hook_event_name": event}
            return {**about, "tool_name": TOOL, "tool_input": {}, "tool_use_id": call}
        case "codex":
            about |= {"session_id": session, "turn_id": "canary", "transcript_path": "/dev/null", "cwd": directory}
            about |= {"hook_event_name": event, "model": "canary", "permission_mode": "default"}
            return {**about, "tool_name": TOOL, "tool_input": {}, "tool_use_id": call}
        case "gemini":
            about |= {"session_id": session, "transcript_path": "/dev/null", "cwd": directory}
            about |= {"hook_event_name": event, "timestamp": "2026-01-01T00:00:00.000Z"}
            return {**about, "tool_name": TOOL, "tool_input": {}}
        case "copilot":
            about |= {"sessionId": session, "timestamp": time.time_ns() // 1_000_000, "cwd": directory}
            return {**about, "toolName": TOOL, "toolArgs": {}}
        case "opencode":
            about |= {"event": event, "sessionID": session, "directory": directory}
            return {**about, "tool": TOOL, "callID": call, "args": {}}
        case "cursor":
            about |= {"hook_event_name": event, "conversation_id": session, "generation_id": "canary"}
            about |= {"workspace_roots": [directory], "cwd": directory}
            return {**about, "tool_name": TOOL, "tool_input": {}, "tool_use_id": call}
        case _:
            raise ValueError(f"`{agent}` is no agent")


def deciding(agent: str, found: Sequence[Found]) -> Found | None:
    """The hook that decides about calls of every tool."""
    names = [name for name, event in AGENTS[agent].events.items() if event.moment == "before a call"]
    return next((one for name in names for one in found if one.event == name), None)


def try_command(agent: str, hook: Found, directory: Path) -> Canary:
    """Run the command of a hook as its agent does, with the event of a call that must be refused."""
    about = canary_payload(agent, hook.event, str(directory))
    try:
        return _tried(agent, hook, directory, json.dumps(about).encode())
    finally:
        AgentSessions().remove(agent, next(str(about[key]) for key in SESSION_KEYS if key in about))


def _tried(agent: str, hook: Found, directory: Path, payload: bytes) -> Canary:
    command = list(hook.words) if agent == "opencode" else [_SHELL, "-c", hook.line]
    began = time.monotonic()
    try:
        ended = subprocess.run(  # noqa: S603 - the command of the settings
            command, input=payload, capture_output=True, timeout=CANARY_SECONDS, cwd=directory, check=False
        )
    except subprocess.TimeoutExpired:
        return Canary("not seen", "command", f"it did not answer within {CANARY_SECONDS:g} s")
    except OSError as wrong:
        return Canary("not seen", "command", f"it cannot be started: {wrong.strerror}")
    taken = round((time.monotonic() - began) * 1000)
    reason = refusal(agent, ended.returncode, ended.stdout, ended.stderr)
    if reason is not None:
        return Canary("refused", "command", reason[:_REASON_CHARACTERS], taken)
    said = ended.stderr.decode("utf-8", "replace").strip() or ended.stdout.decode("utf-8", "replace").strip()
    return Canary("not seen", "command", f"it ended with {ended.returncode}: {said[:_REASON_CHARACTERS]}", taken)


def refusal(agent: str, code: int, output: bytes, errors: bytes) -> str | None:
    """Why a hook's answer refuses the call, as its agent reads it; None if the call would run."""
    text = errors.decode("utf-8", "replace").strip()
    try:
        said = json.loads(output) if output.strip() else {}
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    if agent == "opencode":  # everything but a clear answer is a refusal of the plugin
        if code != 0 or said.get("decision") not in ("none", "rewrite"):
            return str(said.get("reason") or text or "no answer")
        return None
    if agent in ("claude", "codex"):
        inner = said.get("hookSpecificOutput")
        inner = inner if isinstance(inner, dict) else {}
        reason = str(inner.get("permissionDecisionReason") or "")
        if (
            inner.get("hookEventName") == "PreToolUse"
            and inner.get("permissionDecision") == "deny"
            and (reason or agent == "claude")
        ):
            return reason if code == 0 or agent == "claude" else None
        return text if code == 2 and (text or agent == "claude") else None
    keys = {"gemini": ("decision", "reason"), "copilot": ("permissionDecision", "permissionDecisionReason")}
    decision, reason_key = keys.get(agent, ("permission", "agent_message"))
    if said.get(decision) == "deny":
        return str(said.get(reason_key) or "")
    if (agent == "copilot" and code != 0) or (code >= 2 and text):
        return text or f"it ended with {code}"
    return None
