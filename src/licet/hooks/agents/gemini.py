"""Gemini CLI: its tools, its events, and its words.

A hook that says nothing, is killed, or is slow lets the call run. Text on the standard output that is no JSON counts
as a message, so silence is an empty object.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from licet.core.late_pattern import late_pattern
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
    split_by_servers,
)
from licet.hooks.agents.event_payload import (
    decidable,
    directory_of,
    foreign,
    object_of,
    optional_object,
    optional_text,
    payload_object,
    same_event,
    text_of,
)

NAME = "gemini"
PRODUCT = "Gemini CLI"
_EXPANDS_HOME = False  # whether `~/a` is below the home, and not below a folder named `~`

_LONGEST_NAME = 63  # the middle of a longer name is cut out

_FILE: Mapping[str, Any] = {"paths": ("file_path",)}
_HERE: Mapping[str, Any] = {"paths": ("dir_path",), "optional": ("dir_path",), "here": True}
_SEARCHED = ("pattern", "include", "include_pattern", "exclude_pattern", "file_filtering_options")
_EDITED = ("content", "ai_proposed_content", "instruction", "old_string", "new_string")

_TOOLS = (
    AgentTool("run_shell_command", "shell", "runs a shell line", text="command", directory="dir_path"),
    AgentTool("list_background_processes", "typed", "lists shell lines in the background"),
    AgentTool("read_background_output", "typed", "reads the output of a shell line in the background"),
    AgentTool("read_file", "read", "reads a file", **_FILE),
    # Its patterns hold for every folder of the workspace, and hooks are not told which these are.
    AgentTool(
        "read_many_files", "search", "reads files by pattern: never decided", undecided=("include", "exclude", "paths")
    ),
    AgentTool(
        "list_directory", "read", "lists a directory", paths=("dir_path",), data=("ignore", "file_filtering_options")
    ),
    AgentTool("glob", "search", "finds files by name", patterns=("pattern",), **_HERE),
    AgentTool("grep_search", "search", "searches files for a pattern", data=_SEARCHED, **_HERE),
    AgentTool(
        "search_file_content", "search", "searches files; the former name of `grep_search`", data=_SEARCHED, **_HERE
    ),
    AgentTool("write_file", "write", "writes a file", data=_EDITED, **_FILE),
    AgentTool("replace", "write", "replaces text in a file", data=_EDITED, **_FILE),
    AgentTool("web_fetch", "fetch", "fetches every URL in a prompt", urls=("prompt", "url")),
    AgentTool("google_web_search", "service", "searches the web"),
    AgentTool("invoke_agent", "subagent", "starts a subagent"),
    AgentTool("codebase_investigator", "subagent", "starts a subagent that searches the code"),
    AgentTool("cli_help", "subagent", "starts a subagent that explains the agent"),
    AgentTool("activate_skill", "plain", "loads the instructions of a skill"),
    AgentTool("ask_user", "plain", "asks the person a question"),
    AgentTool("write_todos", "plain", "writes the list of tasks"),
    AgentTool("tracker_create_task", "plain", "adds a task to the list"),
    AgentTool("tracker_update_task", "plain", "changes a task of the list"),
    AgentTool("tracker_get_task", "plain", "reads a task of the list"),
    AgentTool("tracker_list_tasks", "plain", "reads the list of tasks"),
    AgentTool("tracker_add_dependency", "plain", "says which task waits for which"),
    AgentTool("tracker_visualize", "plain", "draws the list of tasks"),
    AgentTool("get_internal_docs", "plain", "reads the documentation of the agent"),
    AgentTool("enter_plan_mode", "plain", "begins a plan"),
    AgentTool("exit_plan_mode", "plain", "ends a plan, and asks the person to accept it"),
    AgentTool("update_topic", "plain", "names what the session is about"),
    AgentTool("complete_task", "plain", "ends a subagent with its result"),
    AgentTool("list_mcp_resources", "plain", "lists the resources of servers"),
    AgentTool("read_mcp_resource", "service", "reads a resource of a server"),
)

_EVENTS: Mapping[str, Event] = {
    "SessionStart": Event("session begins", "a session begins, or is resumed"),
    "BeforeAgent": Event("prompt", "the person has sent a prompt"),
    "BeforeTool": Event("before a call", "a tool is about to run"),
    "AfterTool": Event("after a call", "a tool has run, or failed"),
    "SessionEnd": Event("session ends", "the session ends"),
    "AfterAgent": Event("other", "a turn has ended", installed=False),
    "BeforeModel": Event("other", "the model is about to be asked", installed=False),
    "AfterModel": Event("other", "the model has answered", installed=False),
    "BeforeToolSelection": Event("other", "the model is about to choose tools", installed=False),
    "Notification": Event("other", "the person is shown a notice, such as a question", installed=False),
    "PreCompress": Event("other", "the context is about to be shortened", installed=False),
}

_NOTHING = b"{}"


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    same_event(fields, event)
    foreign(fields, ("turn_id", "prompt_id", "conversation_id", "sessionId"), PRODUCT)
    text_of(fields, "timestamp")  # events of other agents that look like these have none, or a number
    moment = _EVENTS[event].moment
    is_call = moment in {"before a call", "after a call"}
    arguments = object_of(fields, "tool_input") if is_call else {}
    tool = text_of(fields, "tool_name") if is_call else ""
    if moment == "before a call":
        decidable(TOOLS.get(tool), arguments, expands_home=_EXPANDS_HOME)
    server = optional_object(fields, "mcp_context")
    result = fields.get("tool_response")
    return AgentEvent(
        agent=NAME,
        event=event,
        moment=moment,
        session=text_of(fields, "session_id"),
        directory=directory_of(fields),
        tool=tool,
        arguments=arguments,
        plan=_plan(tool, result) if event == "AfterTool" else None,
        server=server,
        server_name=optional_text(server or {}, "server_name"),
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        result=result,
        failed=isinstance(result, dict) and bool(result.get("error")),
    )


def _plan(tool: str, result: Any) -> bool | None:
    """Whether the end of a call says that a plan begins, or has ended: its person may have said no to either."""
    said = result.get("llmContent") if isinstance(result, dict) else None
    if not isinstance(said, str):
        return None
    if tool == "enter_plan_mode" and said.startswith("Switching to Plan mode"):
        return True
    return False if tool == "exit_plan_mode" and "\nThe approved implementation plan is stored at:" in said else None


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    match answer:
        case Silent():
            return Printed(_NOTHING)
        case Tell(text):
            return Printed(as_json({"systemMessage": shown(text)}))
        case Refuse() | Rewrite() | AskPerson() if event != "BeforeTool":
            raise cannot_carry(event, answer)
        case Refuse(reason) | AskPerson(reason):  # without a terminal, `ask` ends the whole run
            return Printed(as_json({"decision": "deny", "reason": shown(reason)}))
        case Rewrite(arguments):
            changed = {"hookEventName": "BeforeTool", "tool_input": dict(arguments)}
            return Printed(as_json({"hookSpecificOutput": changed}))
        case _:
            assert_never(answer)


def failure(event: str, reason: str) -> Printed:
    """What to print when licet itself fails: a refusal before a call, and nothing that stops the person else."""
    text = shown(reason)
    known = _EVENTS.get(event)
    errors = f"licet: {text}\n".encode()
    if known is None or known.moment in DECIDING:
        return Printed(as_json({"decision": "deny", "reason": text}), errors, 2)
    return Printed(_NOTHING, errors)


def may_be_mcp(tool: str) -> bool:
    """Whether a tool of this name is one of an MCP server: `mcp_SERVER_TOOL`."""
    return tool.startswith("mcp_")


def mcp_tools(tool: str, servers: Sequence[str]) -> tuple[McpTool, ...]:
    """All that a name `mcp_a_b_c` may mean, for the servers of the agent's configuration."""
    if len(tool) >= _LONGEST_NAME and "..." in tool:
        return ()
    return split_by_servers(tool, servers, "mcp_", "_", _spelled)


def _spelled(server: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_\-.:]", "_", server.removeprefix("mcp_"))


def urls(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Every URL that a call fetches. Raises `Unreadable` for a prompt whose URLs cannot be told for sure.

    The agent splits the prompt at blanks, and takes each word with `://` in it as a URL. Words that another reader of
    URLs might understand differently are refused; so are prompts without any.
    """
    found: list[str] = []
    for name in tool.urls:
        given = arguments.get(name)
        if given is None:
            continue
        if not isinstance(given, str):
            raise Unreadable(f"`{tool.name}` has something else than text in `{name}`")
        found.extend(word for word in _BLANKS.split(given) if "://" in word)
    if not found:
        raise Unreadable(f"`{tool.name}` names no URL")
    if strange := next((word for word in found if not _PLAIN_URL.fullmatch(word)), None):
        raise Unreadable(f"`{tool.name}` names `{strange[:200]}`, which is no plain http or https URL between blanks")
    raw = (_GITHUB_PAGE.fullmatch(word) for word in found)
    return (*found, *(f"https://raw.githubusercontent.com/{page[1]}" for page in raw if page))


_BLANKS = late_pattern(
    "[\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff]+"
)  # of JavaScript
_PLAIN_URL = late_pattern(r"(?i:https?)://[A-Za-z0-9\[][!-\[\]-~]*")  # visible ASCII without a backslash
_GITHUB_PAGE = late_pattern(r"(?i:https?://github\.com)(?::\d+)?/([^?#]*)/blob/.*")

TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="gemini",
    seen=(Seen("0.61.0", "run"),),
    tools=TOOLS,
    events=_EVENTS,
    places=(
        Place("~/.gemini/settings.json", "user", ("hooks", "settings", "servers")),
        Place("~/.gemini/trustedFolders.json", "user", ("trust",)),
        Place("~/.gemini", "user", ("hooks", "settings", "servers", "plugins", "rules", "trust"), folder=True),
        Place("./.gemini/settings.json", "project", ("hooks", "settings", "servers")),
        Place("./.gemini", "project", ("hooks", "settings", "servers", "plugins", "rules"), folder=True),
        Place("/etc/gemini-cli/settings.json", "managed", ("hooks", "settings", "servers")),
        Place("/etc/gemini-cli", "managed", ("hooks", "settings", "servers", "rules"), folder=True),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=urls,
    headless=("-p", "--prompt", "--acp", "--experimental-acp"),
    asks=False,
    rewrites="merged",
    call_ids=False,
    failing_hook_runs=("exit code 1", "a time-out", "broken JSON or text with exit code 0", "silence"),
    needs_trust="a project's hooks need a trusted folder",
    unseen=(
        "which of two equal calls at the same time has ended: calls have no id",
        "the permission mode; in a plan it refuses every shell line itself, a rewritten one too",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="nothing",
    line_program=("bash", "-c"),
    timeout_unit="milliseconds",
    timeout=60_000,
    timeout_key="timeout",
)
