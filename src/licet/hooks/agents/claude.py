"""Claude Code: its tools, its events, and its words.

Its hooks answer with JSON and exit code 0. Broken JSON with that code lets the call run, so failures of licet itself
use exit code 2 with text, which always refuses.
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
    optional_object,
    optional_text,
    payload_object,
    same_event,
    text_of,
)

NAME = "claude"
PRODUCT = "Claude Code"
_EXPANDS_HOME = True  # whether `~/a` is below the home, and not below a folder named `~`

_FILE: Mapping[str, Any] = {"paths": ("file_path",)}
_HERE: Mapping[str, Any] = {"paths": ("path",), "optional": ("path",), "here": True}

_TOOLS = (
    AgentTool("Bash", "shell", "runs a shell line", text="command"),
    AgentTool("PowerShell", "code", "runs a line of PowerShell"),
    AgentTool("Monitor", "shell", "runs a shell line and watches its output", text="command", undecided=("ws",)),
    AgentTool("REPL", "code", "runs JavaScript that calls other tools"),
    AgentTool("Eval", "code", "runs JavaScript that calls other tools; the former name of `REPL`"),
    AgentTool("TaskStop", "typed", "ends a shell line or a subagent that runs in the background"),
    AgentTool("KillShell", "typed", "ends a shell line in the background; the former name of `TaskStop`"),
    AgentTool("KillBash", "typed", "ends a shell line in the background; the former name of `TaskStop`"),
    AgentTool("TaskOutput", "typed", "reads the output of a task in the background (earlier versions)"),
    AgentTool("BashOutput", "typed", "reads the output of a shell line in the background (earlier versions)"),
    AgentTool("Read", "read", "reads a file", **_FILE),
    AgentTool("NotebookRead", "read", "reads a notebook (earlier versions)", paths=("notebook_path",)),
    AgentTool("LS", "read", "lists a directory (earlier versions)", paths=("path",), data=("ignore",)),
    AgentTool("LSP", "read", "asks a language server about a file", paths=("filePath",)),
    AgentTool("Glob", "search", "finds files by name", patterns=("pattern",), **_HERE),
    AgentTool("Grep", "search", "searches files for a pattern", data=("pattern", "glob", "type"), **_HERE),
    AgentTool("Write", "write", "writes a file", data=("content",), **_FILE),
    AgentTool("Edit", "write", "replaces text in a file", data=("old_string", "new_string"), **_FILE),
    AgentTool("MultiEdit", "write", "replaces several texts in a file (earlier versions)", data=("edits",), **_FILE),
    AgentTool("NotebookEdit", "write", "edits a cell of a notebook", paths=("notebook_path",), data=("new_source",)),
    AgentTool("EnterWorktree", "write", "makes a git worktree and goes there", **_HERE),
    AgentTool("ExitWorktree", "write", "leaves a git worktree, and may delete it", **_HERE),
    AgentTool("WebFetch", "fetch", "fetches a page", urls=("url",), data=("prompt",)),
    AgentTool("WebSearch", "service", "searches the web"),
    AgentTool(
        "Artifact",
        "service",
        "publishes a file as a page, and manages such pages",
        paths=("file_path",),
        optional=("file_path",),
        undecided=("file_paths", "out_dir"),
    ),
    AgentTool(
        "Projects",
        "service",
        "reads and writes documents of a project on claude.ai",
        paths=("local_path",),
        optional=("local_path",),
    ),
    AgentTool("ClaudeDesign", "service", "works on a design on claude.ai"),
    AgentTool("RemoteTrigger", "service", "manages agents that run at claude.ai", prompts=True),
    AgentTool("SendUserFile", "service", "sends files to the person's other devices", undecided=("files",)),
    AgentTool("SendFeedback", "service", "sends feedback to the maker"),
    AgentTool("PushNotification", "service", "notifies the person's devices"),
    AgentTool("ShareOnboardingGuide", "service", "shares a guide with others"),
    AgentTool("Agent", "subagent", "starts a subagent"),
    AgentTool("Task", "subagent", "starts a subagent; the former name of `Agent`"),
    AgentTool("Workflow", "subagent", "runs a script that starts subagents", undecided=("scriptPath",)),
    AgentTool("SubagentHandback", "plain", "hands a subagent's result back"),
    AgentTool("SendMessage", "plain", "sends a message to a subagent"),
    AgentTool("ListAgents", "plain", "lists subagents"),
    AgentTool("ListPeers", "plain", "lists subagents; the former name of `ListAgents`"),
    AgentTool("Skill", "plain", "loads the instructions of a skill", skill="skill"),
    AgentTool("ToolSearch", "plain", "finds tools by name"),
    AgentTool("DeferredToolPlaceholder", "plain", "does nothing"),
    AgentTool("WaitForMcpServers", "plain", "waits until servers are connected"),
    AgentTool("RefreshMcpTools", "plain", "lists the tools of servers again"),
    AgentTool("ListMcpResourcesTool", "plain", "lists the resources of servers"),
    AgentTool("ListMcpResources", "plain", "lists the resources of servers; another name of `ListMcpResourcesTool`"),
    AgentTool("ReadMcpResourceTool", "service", "reads a resource of a server"),
    AgentTool("ReadMcpResource", "service", "reads a resource of a server; another name of `ReadMcpResourceTool`"),
    AgentTool("ReadMcpResourceDirTool", "service", "lists a directory of resources of a server"),
    AgentTool("ReadMcpResourceDir", "service", "lists a directory of resources of a server (another name)"),
    AgentTool("TodoWrite", "plain", "writes the list of tasks"),
    AgentTool("TaskCreate", "plain", "adds a task to the list"),
    AgentTool("TaskGet", "plain", "reads a task of the list"),
    AgentTool("TaskList", "plain", "reads the list of tasks"),
    AgentTool("TaskUpdate", "plain", "changes a task of the list"),
    AgentTool("AskUserQuestion", "plain", "asks the person a question"),
    AgentTool("SendUserMessage", "plain", "shows the person a message"),
    AgentTool("Brief", "plain", "shows the person a message; the former name of `SendUserMessage`"),
    AgentTool("ReportFindings", "plain", "shows the person what a review found"),
    AgentTool("EnterPlanMode", "plain", "begins a plan"),
    AgentTool("ExitPlanMode", "plain", "ends a plan, and asks the person to accept it"),
    AgentTool("EndConversation", "plain", "ends the conversation"),
    AgentTool("CronCreate", "plain", "plans a prompt for later", prompts=True),
    AgentTool("CronDelete", "plain", "deletes a planned prompt"),
    AgentTool("CronList", "plain", "lists planned prompts"),
    AgentTool("ScheduleWakeup", "plain", "plans when a loop goes on", prompts=True),
    AgentTool("Sleep", "plain", "waits"),
    AgentTool("SetGoal", "plain", "proposes a goal for the session", prompts=True),
    AgentTool("ProposeGoal", "plain", "proposes a goal for the session; the former name of `SetGoal`", prompts=True),
    AgentTool("propose_skills", "plain", "proposes skills to the person"),
    AgentTool("ProposeSkills", "plain", "proposes skills to the person; another name of `propose_skills`"),
    AgentTool("ReadNotifications", "plain", "reads notifications of the session"),
    AgentTool("ShowOnboardingRolePicker", "plain", "asks the person for a role"),
    AgentTool("OfferChromeSetup", "plain", "offers to set up a browser"),
    AgentTool("StructuredOutput", "plain", "returns the result of a run without a terminal"),
)

_EVENTS: Mapping[str, Event] = {
    "SessionStart": Event("session begins", "a session begins, or is resumed"),
    "UserPromptSubmit": Event("prompt", "the person has sent a prompt"),
    "PreToolUse": Event("before a call", "a tool is about to run"),
    "PermissionRequest": Event("before a prompt", "the person is about to be asked", installed=False),
    "PostToolUse": Event("after a call", "a tool has run"),
    "PostToolUseFailure": Event("after a call", "a tool has failed"),
    "SubagentStart": Event("subagent begins", "a subagent begins"),
    "SubagentStop": Event("subagent ends", "a subagent has ended"),
    "SessionEnd": Event("session ends", "the session ends"),
} | {
    name: Event("other", installed=False)
    for name in (
        *("PostToolBatch", "Notification", "UserPromptExpansion", "Stop", "StopFailure", "PreCompact", "PostCompact"),
        *("PreModelSwitch", "PostModelSwitch", "PermissionDenied", "Setup", "TeammateIdle", "TaskCreated"),
        *("TaskCompleted", "Elicitation", "ElicitationResult", "ConfigChange", "WorktreeCreate", "WorktreeRemove"),
        *("InstructionsLoaded", "CwdChanged", "FileChanged", "DirectoryAdded", "MessageDisplay"),
    )
}

_MODES: Mapping[str, Mode] = {
    "default": Mode("asks"),
    "acceptEdits": Mode("asks"),
    "plan": Mode("asks", reads_only=True),
    "auto": Mode("judges"),
    "dontAsk": Mode("refuses"),
    "bypassPermissions": Mode("runs"),
}

_TOLD = frozenset({"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure"})


def read(event: str, payload: bytes) -> AgentEvent:
    """Read one event. Raises `Unreadable`."""
    if event not in _EVENTS:
        raise Unreadable(f"{PRODUCT} has no event of this name that licet knows")
    fields = payload_object(payload)
    same_event(fields, event)
    if "prompt_id" not in fields:
        foreign(fields, ("turn_id",), PRODUCT)
    foreign(fields, ("conversation_id", "sessionId"), PRODUCT)
    moment = _EVENTS[event].moment
    is_call = moment in {"before a call", "before a prompt", "after a call"}
    mode = optional_text(fields, "permission_mode")
    known = _MODES.get(mode, Mode("refuses"))
    server = optional_object(fields, "mcp_server") or {}
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
        call=text_of(fields, "tool_use_id") if is_call and event != "PermissionRequest" else "",
        server_name=optional_text(server, "name"),
        prompt=optional_text(fields, "prompt") if moment == "prompt" else "",
        result=fields.get("error") if event == "PostToolUseFailure" else fields.get("tool_response"),
        failed=event == "PostToolUseFailure",
    )


def printed(event: str, answer: Answer) -> Printed:
    """Print an answer. `ValueError` for an answer that this event cannot carry."""
    match answer:
        case Silent():
            return Printed()
        case Tell(text):
            return Printed(as_json({"systemMessage": shown(text)})) if event in _TOLD else Printed()
        case Refuse(reason) if event == "PermissionRequest":
            decision = {"behavior": "deny", "message": shown(reason)}
            return Printed(as_json({"hookSpecificOutput": {"hookEventName": event, "decision": decision}}))
        case AskPerson(_, None) if event == "PermissionRequest":
            return Printed()  # the person is about to be asked anyway
        case Refuse() | Rewrite() | AskPerson() if event != "PreToolUse":
            raise cannot_carry(event, answer)
        case Refuse(reason):
            return _decision(permissionDecision="deny", permissionDecisionReason=shown(reason))
        case Rewrite(arguments, allow=True):
            return _decision(permissionDecision="allow", updatedInput=dict(arguments))
        case Rewrite(arguments):
            return _decision(updatedInput=dict(arguments))
        case AskPerson(reason, arguments):
            changed = {} if arguments is None else {"updatedInput": dict(arguments)}
            return _decision(permissionDecision="ask", permissionDecisionReason=shown(reason), **changed)
        case _:
            assert_never(answer)


def _decision(**fields: Any) -> Printed:
    # Without `hookEventName` the decision is ignored, and the call runs.
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
    """All that a name `mcp__a_b__c` may mean, for the servers of the agent's configuration."""
    return split_by_servers(tool, servers, "mcp__", "__", _spelled)


def urls(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The URLs that a call fetches: it raises `http` to `https`, so both must be allowed. Raises `Unreadable`."""
    given = url_arguments(tool, arguments)
    raised = (f"https{url[4:]}" for url in given if url[:7].lower() == "http://")
    return (*given, *raised)


def _spelled(server: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", server)
    if server.startswith("claude.ai "):  # connectors of the person's account
        name = re.sub(r"_+", "_", name).strip("_")
    return name


TOOLS: Mapping[str, AgentTool] = {tool.name: tool for tool in _TOOLS}

DIALECT = Dialect(
    name=NAME,
    product=PRODUCT,
    program="claude",
    seen=(Seen("2.1.326", "run"), Seen("2.1.327", "read")),
    tools=TOOLS,
    events=_EVENTS,
    modes=_MODES,
    places=(
        Place("~/.claude/settings.json", "user", ("hooks", "settings", "rules"), acts="at once"),
        Place("~/.claude.json", "user", ("servers", "trust")),
        Place("~/.claude", "user", ("hooks", "settings", "plugins", "rules"), acts="at once", folder=True),
        Place("./.claude/settings.json", "project", ("hooks", "settings", "rules"), acts="at once"),
        Place("./.claude/settings.local.json", "local", ("hooks", "settings", "rules"), acts="at once"),
        Place("./.claude", "project", ("hooks", "settings", "plugins", "rules"), acts="at once", folder=True),
        Place("./.mcp.json", "project", ("servers",)),
        Place("/etc/claude-code/managed-settings.json", "managed", ("hooks", "settings", "rules")),
        Place("/etc/claude-code/managed-mcp.json", "managed", ("servers",)),
    ),
    read=read,
    printed=printed,
    failure=failure,
    may_be_mcp=may_be_mcp,
    mcp_tools=mcp_tools,
    urls=urls,
    start="$CLAUDE_PROJECT_DIR",
    headless=("-p", "--print"),
    asks=True,
    rewrites="whole",
    call_ids=True,
    failing_hook_runs=("broken JSON or text with exit code 0", "silence"),
    fail_closed='"onFailure": "block"',  # since 2.1.295; one wrong value of it drops all hooks of the file
    needs_trust="a project's hooks need a trusted folder; without a terminal they run in any folder",
    unseen=(
        "a file that the person names with `@` in a prompt",
        "hooks of a project, when the agent is started in a folder below it",
        "everything, when the agent is started with `--bare`",
        "what a skill runs while its text is loaded was not tried",
    ),
    expands_home=_EXPANDS_HOME,
    keeps="directory",
    line_program=("/bin/bash", "-c"),
    timeout_unit="seconds",
    timeout=600,
    timeout_key="timeout",
)
