"""OpenCode: its tools, its events, and the words between its plugin and licet.

OpenCode has no hooks as programs. A plugin of ours runs in its process, hands each event to `licet hook` as JSON, and
does what the answer says. So these words are licet's own:

- To licet: `event`, `sessionID`, `directory`, and where there is one `parentID` (of a subagent's session), `version`,
  `agent`, `shell`, `tool`, `callID`, `args`, `prompt`, `output`, `failed`.
- From licet, with exit code 0: `{"decision": "none"}`, `{"decision": "deny", "reason": …}`, or
  `{"decision": "rewrite", "args": …}`; each may have a `text` for the person.

For the plugin everything else is a refusal: another exit code, no JSON, an unknown decision, no answer in time. It
refuses by an exception, and puts new arguments into the old object, since a new object is ignored.
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

NAME = "opencode"
PRODUCT = "OpenCode"
_EXPANDS_HOME = False  # whether `~/a` is below the home, and not below a folder named `~`

_FILE: Mapping[str, Any] = {"paths": ("filePath",)}
_HERE: Mapping[str, Any] = {"paths": ("path",), "optional": ("path",), "here": True}

_TOOLS = (
    AgentTool("bash", "shell", "runs a shell line", text="command", directory="workdir"),
    AgentTool("read", "read", "reads a file, or lists a directory", **_FILE),
    AgentTool("list", "read", "lists a directory (earlier versions)", data=("ignore",), **_HERE),
    AgentTool("lsp", "read", "asks a language server about a file", data=("query",), **_FILE),
    AgentTool("glob", "search", "finds files by name", patterns=("pattern",), **_HERE),
    AgentTool("grep", "search", "searches files for a pattern", data=("pattern", "include"), **_HERE),
    AgentTool("write", "write", "writes a file", data=("content",), **_FILE),
    AgentTool("edit", "write", "replaces text in a file", data=("oldString", "newString"), **_FILE),
    AgentTool("multiedit", "write", "replaces several texts in a file (earlier versions)", data=("edits",), **_FILE),
    AgentTool("apply_patch", "patch", "adds, changes, moves and deletes files", text="patchText"),
    AgentTool("patch", "patch", "changes files (earlier versions)", text="patchText"),
    AgentTool("batch", "code", "runs several other tools (earlier versions)"),
    AgentTool("webfetch", "fetch", "fetches a page", urls=("url",)),
    AgentTool("websearch", "service", "searches the web"),
    AgentTool("codesearch", "service", "searches code on the web (earlier versions)"),
    AgentTool("task", "subagent", "starts a subagent"),
    AgentTool("skill", "plain", "loads the instructions of a skill"),
    AgentTool("todowrite", "plain", "writes the list of tasks"),
    AgentTool("todoread", "plain", "reads the list of tasks (earlier versions)"),
    AgentTool("question", "plain", "asks the person a question"),
    AgentTool("plan_enter", "plain", "begins a plan"),
    AgentTool("plan_exit", "plain", "ends a plan, and asks the person to accept it"),
    AgentTool("invalid", "plain", "tells the model that its call was wrong"),
    AgentTool("list_mcp_resources", "plain", "lists the resources of servers"),
    AgentTool("list_mcp_resource_templates", "plain", "lists the templates of resources of servers"),
    AgentTool("read_mcp_resource", "service", "reads a resource of a server"),
)

_EVENTS: Mapping[str, Event] = {
    "session.created": Event("session begins", "a session begins; a subagent's has a parent"),
    "chat.message": Event("prompt", "the person, or the agent for a subagent, has sent a prompt"),
    "tool.execute.before": Event("before a call", "a tool is about to run"),
    "tool.execute.after": Event("after a call", "a tool has run"),
    "session.deleted": Event("session ends", "the session was deleted"),
    "session.idle": Event("other", "a turn has ended", installed=False),
    "permission.asked": Event("other", "the person is being asked", installed=False),
}

_MODES: Mapping[str, Mode] = {"build": Mode("runs"), "plan": Mode("asks", reads_only=True)}

_PASSED_OVER = frozenset({"", "fish", "nu"})  # it takes bash for them
_NOTHING = {"decision": "none"}


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    same_event(fields, event, "event")
    foreign(fields, ("hook_event_name", "tool_name", "toolName", "session_id", "sessionId"), PRODUCT)
    moment = _EVENTS[event].moment
    is_call = moment in {"before a call", "after a call"}
    mode = optional_text(fields, "agent")
    known = _MODES.get(mode, Mode("refuses"))
    session, parent = text_of(fields, "sessionID"), optional_text(fields, "parentID")
    arguments = object_of(fields, "args") if is_call else {}
    tool = text_of(fields, "tool") if is_call else ""
    if moment == "before a call":
        decidable(TOOLS.get(tool), arguments, expands_home=_EXPANDS_HOME)
    return AgentEvent(
        agent=NAME,
        event=event,
        moment=("subagent begins" if moment == "session begins" else "subagent ends")
        if parent and moment in {"session begins", "session ends"}
        else moment,
        session=parent or session,
        directory=directory_of(fields, "directory"),
        version=optional_text(fields, "version"),
        mode=mode,
        shell=_shell(fields),
        reads_only=known.reads_only,
        would_ask=known.shell == "asks",
        would_run=known.shell == "runs",
        subagent=session if parent else "",
        tool=tool,
        arguments=arguments,
        call=text_of(fields, "callID") if is_call else "",
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        alone=fields.get("alone") is True,  # only the plugin knows, and not always
        result=fields.get("output"),
        failed=fields.get("failed") is True,
    )


def _shell(fields: Mapping[str, Any]) -> str | None:
    if "shell" not in fields:  # a plugin of an earlier version of licet
        return None
    given = optional_text(fields, "shell")
    return "bash" if given.rpartition("/")[2].lower() in _PASSED_OVER else given


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    match answer:
        case Silent():
            return Printed(as_json(_NOTHING))
        case Tell(text):
            return Printed(as_json({**_NOTHING, "text": shown(text)}))
        case Refuse() | Rewrite() | AskPerson() if event != "tool.execute.before":
            raise cannot_carry(event, answer)
        case Refuse(reason) | AskPerson(reason):  # it cannot ask because a plugin says so
            return Printed(as_json({"decision": "deny", "reason": shown(reason)}))
        case Rewrite(arguments):
            return Printed(as_json({"decision": "rewrite", "args": dict(arguments)}))
        case _:
            assert_never(answer)


def failure(event: str, reason: str) -> Printed:
    """What to print when licet itself fails: a refusal before a call, and nothing that stops the person else."""
    errors = f"licet: {shown(reason)}\n".encode()
    known = _EVENTS.get(event)
    if known is None or known.moment in DECIDING:
        return Printed(as_json({"decision": "deny", "reason": shown(reason)}), errors, 2)
    return Printed(as_json(_NOTHING), errors)


def may_be_mcp(tool: str) -> bool:
    """Whether a tool of this name can be one of an MCP server: `SERVER_TOOL`. A built-in one can, too."""
    return "_" in tool[1:-1]


def mcp_tools(tool: str, servers: Sequence[str]) -> tuple[McpTool, ...]:
    """All that a name `a_b_c` may mean, for the servers of the agent's configuration."""
    return split_by_servers(tool, servers, "", "_", _spelled)


def _spelled(server: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def urls(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The URLs that a call fetches: it may raise `http` to `https`, so both must be allowed. Raises `Unreadable`."""
    given = url_arguments(tool, arguments)
    return (*given, *(f"https{url[4:]}" for url in given if url[:7].lower() == "http://"))


TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="opencode",
    seen=(Seen("1.18.18", "run"),),
    tools=TOOLS,
    events=_EVENTS,
    modes=_MODES,
    places=(
        Place("~/.config/opencode/plugins", "user", ("hooks", "plugins"), folder=True),
        Place("~/.config/opencode/opencode.json", "user", ("settings", "servers", "plugins", "rules")),
        Place("~/.config/opencode", "user", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("./.opencode/plugins", "project", ("hooks", "plugins"), folder=True),
        Place("./.opencode", "project", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("./opencode.json", "project", ("settings", "servers", "plugins", "rules")),
        Place("./opencode.jsonc", "project", ("settings", "servers", "plugins", "rules")),
        Place("./tui.json", "project", ("plugins",)),
        Place("./tui.jsonc", "project", ("plugins",)),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=urls,
    patched_files=patched_files,
    headless=("run", "serve", "acp", "web", "github"),
    asks=False,
    rewrites="whole",
    call_ids=True,
    failing_hook_runs=("a plugin that does not load, or throws at its start",),
    needs_trust="",
    unseen=(
        "requests that are no calls, such as one for a directory outside",
        "everything, when the agent is started with `--pure`",
        "whether a prompt comes from the person, if the session's parent is not known",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="nothing",
    line_program=("$SHELL", "-c"),
    timeout_unit="milliseconds",
    timeout=None,
)
