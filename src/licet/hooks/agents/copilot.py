"""GitHub Copilot CLI: its tools, its events, and its words.

Payloads name no event, so it comes from the command line alone. A hook that exits with another code than 0 refuses,
and its reason is lost; a slow one lets the call run. Visual Studio Code has the same events in other words, and was
not run: its payloads are unreadable here.
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
    text_of,
)
from licet.hooks.agents.patch_text import patched_files

NAME = "copilot"
PRODUCT = "Copilot CLI"
_EXPANDS_HOME = False  # whether `~/a` is below the home, and not below a folder named `~`

_FILE: Mapping[str, Any] = {"paths": ("path",)}
_PLAN = "[[PLAN]]"  # it begins each prompt that is sent in a plan
_OWN_WORDS = "<"  # what it says itself, such as that a line has ended, is a prompt in a tag, in a plan too
_APPROVED = "Plan approved!"  # what it tells the model of a plan whose person agrees; else it goes on

_HERE: Mapping[str, Any] = {"paths": ("paths", "path"), "optional": ("paths", "path"), "here": True}
_SEARCHED = ("pattern", "glob", "type")
_EDITED = ("file_text", "old_str", "new_str")

_TOOLS = (
    AgentTool("bash", "shell", "runs a shell line", text="command"),
    # Hooks are not told whether the shell reads it, or a line behind walls that the shell runs.
    AgentTool("write_bash", "code", "types into a shell that is running (other versions)"),
    AgentTool("read_bash", "typed", "reads the output of a shell that is running"),
    AgentTool("stop_bash", "typed", "ends a shell that is running"),
    AgentTool("list_bash", "typed", "lists shells that are running"),
    AgentTool("powershell", "code", "runs a line of PowerShell"),
    AgentTool("write_powershell", "code", "types into a PowerShell that is running"),
    AgentTool("read_powershell", "typed", "reads the output of a PowerShell that is running"),
    AgentTool("stop_powershell", "typed", "ends a PowerShell that is running"),
    AgentTool("list_powershell", "typed", "lists PowerShells that are running"),
    AgentTool("view", "read", "reads a file, or lists a directory", **_FILE),
    AgentTool("show_file", "read", "shows the person a file", **_FILE),
    AgentTool("glob", "search", "finds files by name", patterns=("pattern",), **_HERE),
    AgentTool("grep", "search", "searches files for a pattern", data=_SEARCHED, **_HERE),
    AgentTool("rg", "search", "searches files for a pattern", data=_SEARCHED, **_HERE),
    AgentTool("create", "write", "writes a new file", data=_EDITED, **_FILE),
    AgentTool("edit", "write", "replaces text in a file", data=_EDITED, **_FILE),
    AgentTool("str_replace_editor", "write", "reads, writes or edits a file (earlier versions)", data=_EDITED, **_FILE),
    AgentTool("apply_patch", "patch", "adds, changes, moves and deletes files", text="input"),
    AgentTool("web_fetch", "fetch", "fetches a page", urls=("url",)),
    AgentTool("web_search", "service", "searches the web"),
    AgentTool("fetch_copilot_cli_documentation", "service", "reads the documentation of the agent"),
    AgentTool("store_memory", "service", "stores a note for later sessions"),
    AgentTool("vote_memory", "service", "rates a stored note"),
    AgentTool("create_pull_request", "service", "opens a pull request"),
    AgentTool("reply_to_comment", "service", "answers a comment of a pull request"),
    AgentTool("rename_branch", "code", "renames the branch of the repository"),
    AgentTool("run_setup", "code", "runs the set-up of the repository"),
    AgentTool("extensions_manage", "code", "changes extensions, which run programs"),
    AgentTool("extensions_reload", "code", "loads extensions, which run programs"),
    AgentTool("task", "subagent", "starts a subagent"),
    AgentTool("code_review", "subagent", "starts a subagent that reviews changes"),
    AgentTool("parallel_validation", "subagent", "starts subagents that check changes"),
    AgentTool("read_agent", "plain", "reads what a subagent has said"),
    AgentTool("write_agent", "plain", "sends a message to a subagent"),
    AgentTool("list_agents", "plain", "lists subagents"),
    AgentTool("send_inbox", "plain", "sends a message to another session", prompts=True),
    AgentTool("context_board", "plain", "keeps notes that subagents share"),
    AgentTool("ask_user", "plain", "asks the person a question"),
    AgentTool("skill", "plain", "loads the instructions of a skill"),
    AgentTool("sql", "plain", "asks the session's own database"),
    AgentTool("session_store_sql", "plain", "asks the database of earlier sessions"),
    AgentTool("report_intent", "plain", "says what it is about to do"),
    AgentTool("update_todo", "plain", "writes the list of tasks"),
    AgentTool("exit_plan_mode", "plain", "ends a plan, and asks the person to accept it"),
    AgentTool("task_complete", "plain", "says that the task is done"),
    AgentTool("manage_schedule", "plain", "plans prompts for later", prompts=True),
    AgentTool("tool_search_tool_regex", "plain", "finds tools by name"),
)

_EVENTS: Mapping[str, Event] = {
    "sessionStart": Event("session begins", "a session begins, or is resumed"),
    "userPromptSubmitted": Event("prompt", "the person, or the agent for a subagent, has sent a prompt"),
    "preToolUse": Event("before a call", "a tool is about to run"),
    "permissionRequest": Event("before a prompt", "rules and the person are about to be asked", installed=False),
    "postToolUse": Event("after a call", "a tool has run"),
    "postToolUseFailure": Event("after a call", "a tool has failed"),
    "subagentStart": Event("subagent begins", "a subagent begins"),
    "subagentStop": Event("subagent ends", "a subagent has ended"),
    "sessionEnd": Event("session ends", "the session ends"),
    "agentStop": Event("other", "a turn has ended", installed=False),
    "errorOccurred": Event("other", "something has failed", installed=False),
    "notification": Event("other", "the person is shown a notice", installed=False),
    "preCompact": Event("other", "the context is about to be shortened", installed=False),
}


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    others = ("tool_name", "tool_use_id", "session_id", "turn_id", "prompt_id", "conversation_id", "hookEventName")
    foreign(fields, others, PRODUCT)
    if event != "notification":
        foreign(fields, ("hook_event_name",), PRODUCT)
    if not isinstance(fields.get("timestamp"), int) or isinstance(fields.get("timestamp"), bool):
        raise Unreadable("the payload has no time in `timestamp`")
    moment = _EVENTS[event].moment
    is_call = moment in {"before a call", "before a prompt", "after a call"}
    if moment == "prompt" and not isinstance(fields.get("prompt"), str):
        raise Unreadable("the payload has no text in `prompt`")
    if (moment in {"before a call", "before a prompt"}) and ("toolResult" in fields or "error" in fields):
        raise Unreadable(f"the payload is not one of `{event}`: it has a result")
    tool = text_of(fields, "toolName") if is_call else ""
    arguments = _arguments(tool, fields) if is_call else {}
    if moment == "before a call":
        decidable(TOOLS.get(tool), arguments, expands_home=_EXPANDS_HOME)
    is_of_subagent = moment in {"subagent begins", "subagent ends"}
    result = fields.get("error") if event == "postToolUseFailure" else fields.get("toolResult")
    return AgentEvent(
        agent=NAME,
        event=event,
        moment=moment,
        session=text_of(fields, "sessionId"),
        directory=directory_of(fields),
        subagent=_subagent(fields) or (text_of(fields, "agentName") if is_of_subagent else ""),
        tool=tool,
        arguments=arguments,
        plan=_plan(event, fields),
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        result=result,
        failed=event == "postToolUseFailure" or (isinstance(result, dict) and result.get("resultType") != "success"),
    )


def _plan(event: str, fields: Mapping[str, Any]) -> bool | None:
    """Whether an event says that a plan begins, or that none goes on."""
    if event == "userPromptSubmitted":
        prompt = optional_text(fields, "prompt")
        return None if prompt.startswith(_OWN_WORDS) else prompt.startswith(_PLAN)
    result = fields.get("toolResult")
    if event != "postToolUse" or fields.get("toolName") != "exit_plan_mode" or not isinstance(result, dict):
        return None
    return False if str(result.get("textResultForLlm")).startswith(_APPROVED) else None


def _subagent(fields: Mapping[str, Any]) -> str:
    return optional_text(fields, "agentId") or optional_text(fields, "parentAgentId")


def _arguments(tool: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments: an object, in earlier versions the JSON text of one, and for a patch the patch itself."""
    name = "toolArgs" if "toolArgs" in fields else "toolInput"
    given = fields.get(name)
    if not isinstance(given, str):
        return object_of(fields, name)
    if tool == "apply_patch" and not given.lstrip().startswith("{"):
        return {"input": given}
    return payload_object(given.encode())


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    match answer:
        case Silent() | Tell():  # it has no words for its person
            return Printed()
        case Refuse(reason) if event == "permissionRequest":
            return Printed(as_json({"behavior": "deny", "message": shown(reason)}))
        case AskPerson(_, None) if event == "permissionRequest":
            return Printed()  # its own rules, and then the person, are about to be asked
        case Refuse() | Rewrite() | AskPerson() if event != "preToolUse":
            raise cannot_carry(event, answer)
        case Refuse(reason):
            return _decision("deny", reason)
        case Rewrite(arguments, allow=True):
            return Printed(as_json({"permissionDecision": "allow", "modifiedArgs": dict(arguments)}))
        case Rewrite(arguments):
            return Printed(as_json({"modifiedArgs": dict(arguments)}))
        case AskPerson(reason, None):
            return _decision("ask", reason)
        case AskPerson(reason, arguments):
            return _decision("ask", reason, modifiedArgs=dict(arguments or {}))
        case _:
            assert_never(answer)


def _decision(decision: str, reason: str, **more: Any) -> Printed:
    return Printed(as_json({"permissionDecision": decision, "permissionDecisionReason": shown(reason), **more}))


def failure(event: str, reason: str) -> Printed:
    """What to print when licet itself fails: a refusal before a call, and nothing that stops the person else."""
    errors = f"licet: {shown(reason)}\n".encode()
    known = _EVENTS.get(event)
    if known is None:
        return Printed(errors=errors, code=2)
    if known.moment in DECIDING:
        return Printed(printed(event, Refuse(reason)).output, errors)
    return Printed(errors=errors)


def may_be_mcp(tool: str) -> bool:
    """Whether a tool of this name can be one of an MCP server: `SERVER-TOOL`. A built-in one can, too."""
    return "-" in tool[1:-1]


def mcp_tools(tool: str, servers: Sequence[str]) -> tuple[McpTool, ...]:
    """All that a name `a-b-c` may mean, for the servers of the agent's configuration."""
    return split_by_servers(tool, servers, "", "-", _spelled)


def _spelled(server: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="copilot",
    seen=(Seen("1.0.102", "run"),),
    tools=TOOLS,
    events=_EVENTS,
    places=(
        Place("~/.copilot/hooks", "user", ("hooks",), folder=True),
        Place("~/.copilot/config.json", "user", ("settings", "trust")),
        Place("~/.copilot/mcp-config.json", "user", ("servers",)),
        Place("~/.copilot", "user", ("hooks", "settings", "servers", "plugins", "trust"), folder=True),
        Place("./.github/hooks", "project", ("hooks",), folder=True),
        Place("./.github/copilot/settings.json", "project", ("hooks", "settings")),
        Place("./.github/copilot/settings.local.json", "local", ("hooks", "settings")),
        Place("./.github/copilot", "project", ("hooks", "settings", "plugins"), folder=True),
        Place("./.claude/settings.json", "project", ("hooks", "settings")),
        Place("./.mcp.json", "project", ("servers",)),
        Place("/etc/github-copilot/policy.d", "managed", ("hooks",), folder=True),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=url_arguments,
    patched_files=patched_files,
    headless=("-p", "--prompt", "--acp", "--server"),
    asks=True,
    rewrites="whole",
    call_ids=False,
    failing_hook_runs=("a time-out", "broken JSON or text with exit code 0", "silence"),
    needs_trust="a project's hooks need a trusted folder",
    unseen=(
        "which of two equal calls at the same time has ended: calls have no id",
        "a line that the person types after `!`",
        "the permission mode; that a plan has begun is told with the next prompt, and that it was approved at once",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="nothing",
    line_program=("/bin/bash", "--norc", "--noprofile", "-c"),
    ends_shell=True,
    timeout_unit="seconds",
    timeout=30,
    timeout_key="timeoutSec",
)
