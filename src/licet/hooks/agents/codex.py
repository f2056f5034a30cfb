"""Codex CLI: its tools, its events, and its words.

A failed hook lets the call run: an unknown field, an empty reason, an exit code 2 without text, a missing
`hookEventName` are all failures. It never asks its person because a hook says so.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from licet.hooks.agent_event import (
    AgentEvent,
    AgentTool,
    Answer,
    AskPerson,
    Printed,
    Refuse,
    Rewrite,
    Silent,
    Tell,
    Unreadable,
)
from licet.hooks.agents.dialect import (
    DECIDING,
    Dialect,
    Event,
    McpTool,
    Mode,
    Place,
    Seen,
    as_json,
    cannot_carry,
    shown,
    split_by_servers,
    url_arguments,
)
from licet.hooks.agents.event_payload import (
    decidable,
    directory_of,
    foreign,
    object_of,
    optional_text,
    payload_object,
    same_event,
    text_of,
)
from licet.hooks.agents.patch_text import patched_files

NAME = "codex"
PRODUCT = "Codex CLI"
_EXPANDS_HOME = False  # whether `~/a` is below the home, and not below a folder named `~`

_OTHER_PLACE = ("environment_id",)  # the call is for another machine than this one


def _family(prefix: str, kind: Any, rows: Mapping[str, str]) -> tuple[AgentTool, ...]:
    """Tools of a namespace: events join its name and the tool's without anything between them."""
    return tuple(AgentTool(prefix + name, kind, about) for name, about in rows.items())


_AGENTS = {
    "list_agents": "lists subagents",
    "send_message": "sends a message to a subagent",
    "followup_task": "gives a subagent another task",
    "interrupt_agent": "interrupts a subagent",
    "wait_agent": "waits for subagents",
}

_TOOLS = (
    AgentTool("Bash", "shell", "runs a shell line", text="command", undecided=_OTHER_PLACE),
    AgentTool("apply_patch", "patch", "adds, changes, moves and deletes files", text="command"),
    AgentTool("view_image", "read", "reads an image", paths=("path",), undecided=_OTHER_PLACE),
    AgentTool("write_stdin", "typed", "types into a shell line that is running", text="chars", seen=False),
    AgentTool("exec", "code", "runs JavaScript that calls other tools, whose calls are seen", seen=False),
    AgentTool("wait", "plain", "waits for a script that is running", seen=False),
    AgentTool("web_search", "service", "searches the web", seen=False),
    AgentTool("image_generation", "service", "draws an image", seen=False),
    AgentTool("webrun", "service", "searches the web, and opens pages of it"),
    AgentTool("image_genimagegen", "service", "draws an image", undecided=("referenced_image_paths",)),
    AgentTool("spawn_agent", "subagent", "starts a subagent"),
    AgentTool("collaborationspawn_agent", "subagent", "starts a subagent"),
    *_family("", "plain", _AGENTS),
    *_family("collaboration", "plain", _AGENTS),
    *_family(
        "multi_agent_v1",
        "plain",
        {
            "close_agent": "ends a subagent",
            "resume_agent": "lets a subagent go on",
            "send_input": "sends a message to a subagent",
            "wait_agent": "waits for subagents",
        },
    ),
    AgentTool("request_permissions", "plain", "asks the person for wider permissions of the agent's own sandbox"),
    AgentTool("request_user_input", "plain", "asks the person a question"),
    AgentTool("send_user_message_async", "plain", "shows the person a message"),
    AgentTool("update_plan", "plain", "writes the plan"),
    AgentTool("get_goal", "plain", "reads the goal of the session"),
    AgentTool("create_goal", "plain", "sets a goal for the session"),
    AgentTool("update_goal", "plain", "changes the goal of the session"),
    AgentTool("get_context_remaining", "plain", "says how much context is left"),
    AgentTool("new_context", "plain", "begins a new context"),
    AgentTool("tool_search", "plain", "finds tools by name", seen=False),
    AgentTool("wait_for_environment", "plain", "waits until an environment is ready"),
    AgentTool("clockcurr_time", "plain", "says the time"),
    AgentTool("clocksleep", "plain", "waits"),
    AgentTool("list_available_plugins_to_install", "plain", "lists plugins"),
    AgentTool("request_plugin_install", "plain", "asks the person to install a plugin"),
    AgentTool("list_mcp_resources", "plain", "lists the resources of servers"),
    AgentTool("list_mcp_resource_templates", "plain", "lists the templates of resources of servers"),
    AgentTool("read_mcp_resource", "service", "reads a resource of a server"),
    *_family(
        "memories",
        "plain",
        {
            "list": "lists notes that the agent keeps in its own folder",
            "read": "reads such a note",
            "search": "searches such notes",
            "add_ad_hoc_note": "writes such a note",
        },
    ),
    *_family("skills", "plain", {"list": "lists skills", "read": "reads the instructions of a skill"}),
    *_family(
        "history",
        "service",
        {
            "list_windows": "lists earlier contexts",
            "list_items": "lists items of an earlier context",
            "read_item": "reads an item of an earlier context",
            "search_contents": "searches earlier contexts",
        },
    ),
    *_family(
        "notes",
        "service",
        {
            "list_files_by_prefix": "lists notes that the maker's service keeps",
            "read_file": "reads such a note",
            "search_contents": "searches such notes",
            "append_to_file": "adds to such a note",
            "write_file": "writes such a note",
        },
    ),
)

_EVENTS: Mapping[str, Event] = {
    "SessionStart": Event("session begins", "a session begins, or is resumed"),
    "UserPromptSubmit": Event("prompt", "the person, or the agent for a subagent, has sent a prompt"),
    "PreToolUse": Event("before a call", "a tool is about to run"),
    "PermissionRequest": Event("before a prompt", "the person is about to be asked", installed=False),
    "PostToolUse": Event("after a call", "a tool has run, or failed"),
    "SubagentStart": Event("subagent begins", "a subagent begins"),
    "SubagentStop": Event("subagent ends", "a subagent has ended"),
    "SessionEnd": Event("session ends", "the session ends"),
    "Stop": Event("other", "a turn has ended", installed=False),
    "PreCompact": Event("other", "the context is about to be shortened", installed=False),
    "PostCompact": Event("other", "the context was shortened", installed=False),
}

# Payloads name only two of them: the approval policy `never`, and all others.
_MODES: Mapping[str, Mode] = {
    "default": Mode("asks"),
    "acceptEdits": Mode("asks"),
    "plan": Mode("asks", reads_only=True),
    "dontAsk": Mode("refuses"),
    "bypassPermissions": Mode("runs"),
}

_WITHOUT_TURN = frozenset({"SessionStart", "SessionEnd"})
_WITHOUT_CALL = frozenset({"PermissionRequest"})


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    same_event(fields, event)
    foreign(fields, ("prompt_id", "effort", "conversation_id", "sessionId"), PRODUCT)
    if event not in _WITHOUT_TURN:
        text_of(fields, "turn_id")  # Claude Code's events look like these, and have none
    if event != "SessionEnd":
        text_of(fields, "model")
    moment = _EVENTS[event].moment
    is_call = moment in {"before a call", "before a prompt", "after a call"}
    mode = optional_text(fields, "permission_mode")
    known = _MODES.get(mode, Mode("refuses"))
    arguments = object_of(fields, "tool_input") if is_call else {}
    tool = text_of(fields, "tool_name") if is_call else ""
    if moment == "before a call":
        decidable(TOOLS.get(tool), arguments, expands_home=_EXPANDS_HOME)
    is_of_subagent = moment in {"subagent begins", "subagent ends"}
    return AgentEvent(
        agent=NAME,
        event=event,
        moment=moment,
        session=text_of(fields, "session_id"),
        directory=directory_of(fields),
        mode=mode,
        reads_only=known.reads_only,
        would_ask=known.shell == "asks",
        would_run=known.shell == "runs",
        subagent=text_of(fields, "agent_id") if is_of_subagent else optional_text(fields, "agent_id"),
        tool=tool,
        arguments=arguments,
        call=text_of(fields, "tool_use_id") if is_call and event not in _WITHOUT_CALL else "",
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        result=fields.get("tool_response"),
    )


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    match answer:
        case Silent():
            return Printed()
        case Tell(text):
            return Printed() if event == "SessionEnd" else Printed(as_json({"systemMessage": shown(text)}))
        case Refuse(reason) if event == "PermissionRequest":
            decision = {"behavior": "deny", "message": shown(reason)}
            return Printed(as_json({"hookSpecificOutput": {"hookEventName": event, "decision": decision}}))
        case AskPerson(_, None) if event == "PermissionRequest":
            return Printed()  # the person is about to be asked anyway
        case Refuse() | Rewrite() | AskPerson() if event != "PreToolUse":
            raise cannot_carry(event, answer)
        case Refuse(reason) | AskPerson(reason):  # it rejects `ask`, and runs the call
            return _decision(permissionDecision="deny", permissionDecisionReason=shown(reason))
        case Rewrite(arguments):
            # Without `allow` the old arguments run. Its own rules, sandbox and prompts still judge the new ones.
            return _decision(permissionDecision="allow", updatedInput=dict(arguments))
        case _:
            assert_never(answer)


def _decision(**fields: Any) -> Printed:
    return Printed(as_json({"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}))


def failure(event: str, reason: str) -> Printed:
    """What to print when licet itself fails: a refusal before a call, and nothing that stops the person else."""
    text = f"licet: {shown(reason)}\n".encode()
    known = _EVENTS.get(event)
    return Printed(errors=text, code=2 if known is None or known.moment in DECIDING else 0)


def may_be_mcp(tool: str) -> bool:
    """Whether a tool of this name is one of an MCP server: `mcp__SERVER__TOOL`."""
    return tool.startswith("mcp__")


def mcp_tools(tool: str, servers: Sequence[str]) -> tuple[McpTool, ...]:
    """All that a name `mcp__a_b__c` may mean, for the servers of the agent's configuration.

    Names that collide, or are longer than 128 characters, get a digest from the agent: those have no meaning here.
    """
    return split_by_servers(tool, servers, "mcp__", "__", _spelled)


def _spelled(server: str) -> str:
    return (re.sub(r"[^a-zA-Z0-9_]", "_", server) or "_").removeprefix("mcp__")


TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="codex",
    seen=(Seen("0.169.0", "run"),),
    tools=TOOLS,
    events=_EVENTS,
    modes=_MODES,
    places=(
        Place("~/.codex/config.toml", "user", ("hooks", "settings", "servers", "trust")),
        Place("~/.codex/hooks.json", "user", ("hooks",)),
        Place("~/.codex", "user", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("./.codex/config.toml", "project", ("hooks", "settings", "servers")),
        Place("./.codex/hooks.json", "project", ("hooks",)),
        Place("./.codex", "project", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("/etc/codex/config.toml", "managed", ("hooks", "settings")),
        Place("/etc/codex/requirements.toml", "managed", ("hooks", "settings")),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=url_arguments,
    patched_files=patched_files,
    start=".",
    headless=("exec", "e", "review", "app-server", "mcp-server", "proto", "cloud"),
    asks=False,
    rewrites="whole",
    call_ids=True,
    failing_hook_runs=(
        "exit code 1",
        "a missing program",
        "a time-out",
        "broken JSON or text with exit code 0",
        "an unknown field",
    ),
    needs_trust="each hook's digest must be trusted, the user's own too, and again after each change",
    unseen=(
        "tools that the maker hosts, such as web search",
        "text that is typed into a running shell line (`write_stdin`): it stays behind the walls of that line",
        "the shell that a call names; it takes those of the machine alone, and PowerShell cannot read every line",
        "the script of code mode, though each call in it is seen",
        "a patch in a shell line, which the agent applies itself, is seen as `Bash`",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="nothing",
    line_program=("/bin/bash", "-lc"),
    other_shells=True,
    timeout_unit="seconds",
    timeout=600,
    timeout_key="timeout",
)
