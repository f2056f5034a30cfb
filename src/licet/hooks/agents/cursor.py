"""Cursor: its tools, its events, and its words, from its documentation and from reports of others. It was not run.

Where the sources differ, the cautious reading is taken: `ask` only at the events that are documented to ask, and a
refusal at every other one. Its answers are always one JSON object.
"""

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
    Place,
    Seen,
    as_json,
    cannot_carry,
    shown,
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

NAME = "cursor"
PRODUCT = "Cursor"
_EXPANDS_HOME = False  # whether `~/a` is below the home, and not below a folder named `~`

# Sources differ: one must be there, and each that is there must be allowed.
_FILES = ("file_path", "path", "target_file")
_FOLDERS = ("target_directory", "path")
_FILE: Mapping[str, Any] = {"paths": _FILES, "optional": _FILES}
_FOLDER: Mapping[str, Any] = {"paths": _FOLDERS, "optional": _FOLDERS, "here": True}
_SAID = ("explanation", "instructions")
_EDITED = ("content", "contents", "file_text", "code_edit", "edits", "old_string", "new_string", *_SAID)

_TOOLS = (
    AgentTool("Shell", "shell", "runs a shell line", text="command", directory="working_directory"),
    AgentTool("Read", "read", "reads a file", data=_SAID, **_FILE),
    AgentTool("ReadFile", "read", "reads a file; another name of `Read`", data=_SAID, **_FILE),
    AgentTool("LS", "read", "lists a directory", data=("ignore_globs", *_SAID), **_FOLDER),
    AgentTool("ReadLints", "plain", "reads what linters said"),
    AgentTool("Grep", "search", "searches files for a pattern", data=("pattern", "glob", "type", *_SAID), **_FOLDER),
    AgentTool("Glob", "search", "finds files by name", patterns=("glob_pattern", "pattern"), data=_SAID, **_FOLDER),
    AgentTool(
        "SemanticSearch",
        "search",
        "searches files by meaning",
        undecided=("target_directories",),
        data=("query", *_SAID),
        **_FOLDER,
    ),
    AgentTool("Write", "write", "writes a file", data=_EDITED, **_FILE),
    AgentTool("Edit", "write", "edits a file", data=_EDITED, **_FILE),
    AgentTool("StrReplace", "write", "replaces text in a file", data=_EDITED, **_FILE),
    AgentTool("Delete", "delete", "deletes a file", data=_SAID, **_FILE),
    AgentTool("EditNotebook", "write", "edits a cell of a notebook", paths=("target_notebook",), data=_EDITED),
    AgentTool("WebFetch", "fetch", "fetches a page", urls=("url",), data=("prompt", *_SAID)),
    AgentTool("WebSearch", "service", "searches the web"),
    AgentTool("Task", "subagent", "starts a subagent"),
    AgentTool("Subagent", "subagent", "starts a subagent; another name of `Task`"),
    AgentTool("TodoWrite", "plain", "writes the list of tasks"),
    AgentTool("AskQuestion", "plain", "asks the person a question"),
    AgentTool("SwitchMode", "plain", "asks to change the mode"),
)

_EVENTS: Mapping[str, Event] = {
    "sessionStart": Event("session begins", "a conversation begins"),
    "beforeSubmitPrompt": Event("prompt", "the person has sent a prompt"),
    "preToolUse": Event("before a call", "a tool is about to run"),
    "beforeReadFile": Event("before a call", "a file is about to be read; some versions tell no other event of it"),
    "beforeShellExecution": Event("before a call", "a shell line is about to run", installed=False),
    "beforeMCPExecution": Event("before a call", "a tool of a server is about to run", installed=False),
    "postToolUse": Event("after a call", "a tool has run"),
    "postToolUseFailure": Event("after a call", "a tool has failed"),
    "subagentStart": Event("before a call", "a subagent is about to begin", installed=False),
    "subagentStop": Event("subagent ends", "a subagent has ended"),
    "sessionEnd": Event("session ends", "the conversation ends"),
    "beforeTabFileRead": Event("before a call", "a file is about to be read for a completion", installed=False),
    "afterShellExecution": Event("other", "a shell line has run", installed=False),
    "afterMCPExecution": Event("other", "a tool of a server has run", installed=False),
    "afterFileEdit": Event("other", "a file was edited", installed=False),
    "afterTabFileEdit": Event("other", "a file was edited by a completion", installed=False),
    "afterAgentResponse": Event("other", "the agent has answered", installed=False),
    "afterAgentThought": Event("other", "the agent has thought", installed=False),
    "preCompact": Event("other", "the context is about to be shortened", installed=False),
    "stop": Event("other", "a turn has ended", installed=False),
}

_PLANS = frozenset({"ask", "plan"})  # modes in which it changes nothing
_ASKING = frozenset({"beforeShellExecution", "beforeMCPExecution"})
_MCP = "MCP:"
_NOTHING = b"{}"


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    same_event(fields, event)
    foreign(fields, ("turn_id", "prompt_id", "sessionId", "sessionID"), PRODUCT)
    moment = _EVENTS[event].moment
    tool, arguments, server = _call(event, fields)
    if moment == "before a call":
        decidable(TOOLS.get(tool), arguments, expands_home=_EXPANDS_HOME)
    is_call = event in {"preToolUse", "postToolUse", "postToolUseFailure"}
    result = fields.get("error_message", fields.get("error")) if event == "postToolUseFailure" else None
    return AgentEvent(
        agent=NAME,
        event=event,
        moment=moment,
        session=text_of(fields, "conversation_id"),
        directory=_directory(fields),
        version=optional_text(fields, "cursor_version"),
        subagent=text_of(fields, "subagent_id") if event in {"subagentStart", "subagentStop"} else "",
        tool=tool,
        arguments=arguments,
        plan=_plan(event, tool, arguments, optional_text(fields, "composer_mode")),
        call=text_of(fields, "tool_use_id") if is_call else "",
        server=server,
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        result=fields.get("tool_output", fields.get("tool_response")) if result is None else result,
        failed=event == "postToolUseFailure",
    )


def _plan(event: str, tool: str, arguments: Mapping[str, Any], mode: str) -> bool | None:
    """Whether an event says that a mode begins which changes nothing, or another one."""
    if event == "postToolUse" and tool == "SwitchMode":  # its person may have refused to leave such a mode
        return True if arguments.get("target_mode_id") in _PLANS else None
    return mode in _PLANS if mode else None


def _call(event: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    match event:
        case "preToolUse" | "postToolUse" | "postToolUseFailure":
            return text_of(fields, "tool_name"), _object_or_text(fields), None
        case "beforeShellExecution":
            return "Shell", {"command": text_of(fields, "command")}, None
        case "beforeReadFile" | "beforeTabFileRead":
            return "Read", {"file_path": text_of(fields, "file_path")}, None
        case "beforeMCPExecution":
            name = text_of(fields, "tool_name")
            server = {key: text_of(fields, key) for key in ("url", "command") if key in fields}
            return _MCP + name.removeprefix(_MCP), _object_or_text(fields), server
        case "subagentStart":
            return "Task", {}, None
        case _:
            return "", {}, None


def _object_or_text(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool: an object, or for tools of servers the JSON text of one."""
    given = fields.get("tool_input")
    return payload_object(given.encode()) if isinstance(given, str) else object_of(fields, "tool_input")


def _directory(fields: Mapping[str, Any]) -> str:
    if fields.get("cwd"):
        return directory_of(fields)
    roots = fields.get("workspace_roots")
    if not isinstance(roots, list) or not roots:
        raise Unreadable("the payload has no directory in `cwd` and no `workspace_roots`")
    return directory_of({"workspace_roots": roots[0]}, "workspace_roots")


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    known = _EVENTS.get(event)
    match answer:
        case Silent():
            return Printed(_NOTHING)
        case Tell(text):
            # Beside a permission the line would need one, and `allow` skips the person's own rules.
            return Printed(as_json({"user_message": shown(text)})) if event == "sessionStart" else Printed(_NOTHING)
        case Refuse() | Rewrite() | AskPerson() if known is None or known.moment not in DECIDING:
            raise cannot_carry(event, answer)
        case Rewrite(arguments) if event == "preToolUse":
            return Printed(as_json({"permission": "allow", "updated_input": dict(arguments)}))
        case Rewrite():
            raise cannot_carry(event, answer)
        case AskPerson(reason, None) if event in _ASKING:
            return _decision("ask", reason)
        case Refuse(reason) | AskPerson(reason):
            return _decision("deny", reason)
        case _:
            assert_never(answer)


def _decision(permission: str, reason: str) -> Printed:
    text = shown(reason)
    return Printed(as_json({"permission": permission, "user_message": text, "agent_message": text}))


def failure(event: str, reason: str) -> Printed:
    """What to print when licet itself fails: a refusal before a call, and nothing that stops the person else."""
    errors = f"licet: {shown(reason)}\n".encode()
    known = _EVENTS.get(event)
    if known is None or known.moment in DECIDING:
        return Printed(_decision("deny", reason).output, errors, 2)
    return Printed(_NOTHING, errors)


def may_be_mcp(tool: str) -> bool:
    """Whether a tool of this name is one of an MCP server: `MCP:TOOL`, or `MCP:SERVER:TOOL`."""
    return tool.startswith(_MCP)


def mcp_tools(tool: str, servers: Sequence[str]) -> tuple[McpTool, ...]:
    """All that a name may mean: where it has no server's name, each server may have a tool of it."""
    if not may_be_mcp(tool):
        return ()
    rest = tool.removeprefix(_MCP).lstrip(" ")
    found = []
    for server in dict.fromkeys(servers):
        start = f"{server}:"
        if rest.startswith(start) and len(rest) > len(start):
            found.append(McpTool(server, rest[len(start) :]))
        elif rest:
            found.append(McpTool(server, rest))
    return tuple(found)


TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="cursor",
    seen=(Seen("3.18", "documented"),),
    tools=TOOLS,
    events=_EVENTS,
    places=(
        Place("~/.cursor/hooks.json", "user", ("hooks",)),
        Place("~/.cursor/mcp.json", "user", ("servers",)),
        Place("~/.cursor", "user", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("./.cursor/hooks.json", "project", ("hooks",), acts="at once"),
        Place("./.cursor/mcp.json", "project", ("servers",)),
        Place("./.cursor", "project", ("hooks", "settings", "servers", "rules"), acts="at once", folder=True),
        Place("/etc/cursor/hooks.json", "managed", ("hooks",)),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=url_arguments,
    headless=("-p", "--print", "acp"),
    asks=False,
    rewrites="whole",
    call_ids=True,
    failing_hook_runs=(),
    fail_closed='"failClosed": true',
    needs_trust="",
    unseen=(
        "reads of some versions at `preToolUse`: they are told at `beforeReadFile` alone",
        "most of what agents in the cloud do",
        "the mode, but for prompts that name it; a line that is put behind walls is never asked about",
        "which shell runs a line: it is taken to be the login shell",
        "nothing of this was tried: Cursor was not run",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="shell",
    line_program=("$SHELL",),
    timeout_unit="seconds",
    timeout=None,
    timeout_key="timeout",
)
