"""What licet knows of one coding agent: its tools and events, and the functions that read and write its words.

The file of each agent makes one `Dialect`. Everything in it is data or a pure function.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from licet.hooks.agent_event import AgentEvent, AgentTool, Answer, Moment, Printed

FALLBACK_REASON = "licet refused this call"  # for a reason that is blank: some agents run a call whose refusal has none

DECIDING: frozenset[Moment] = frozenset({"before a call", "before a prompt"})  # an answer may stop what follows


class Seen(Struct, frozen=True):
    """A version of the agent, and how the facts were seen there."""

    version: str
    how: Literal["run", "read", "documented"]  # tried here, read in its program or source, or taken from its pages


class Event(Struct, frozen=True):
    """An event of the agent."""

    moment: Moment
    about: str = ""
    installed: bool = True  # whether `licet hooks install` registers our hook for it


class Mode(Struct, frozen=True):
    """What the agent does in one of its permission modes about a shell line that no rule mentions."""

    shell: Literal["asks", "runs", "refuses", "judges"]  # `judges`: another model decides
    reads_only: bool = False


class Place(Struct, frozen=True):
    """A file or folder that configures the agent: `~/…` in the home, `./…` in the project, `/…` on the machine."""

    path: str
    scope: Literal["user", "project", "local", "managed"]
    holds: tuple[Literal["hooks", "settings", "servers", "plugins", "trust", "rules"], ...]
    acts: Literal["at once", "next start"] = "next start"  # when a change of it counts in a session
    folder: bool = False


class McpTool(Struct, frozen=True):
    """One possible meaning of the name of an MCP tool."""

    server: str  # as the agent's configuration names it
    tool: str  # as the agent's tool name has it: characters that the agent does not allow are replaced


class PatchedFile(Struct, frozen=True):
    """A file that a patch names."""

    action: Literal["add", "update", "delete", "move"]  # `move`: the name that the file before it gets
    path: str


class Dialect(Struct, frozen=True, kw_only=True):
    """One coding agent."""

    name: str  # in commands, policies and receipts
    product: str
    program: str  # what a person types to start it
    seen: tuple[Seen, ...]
    tools: Mapping[str, AgentTool]
    events: Mapping[str, Event]
    modes: Mapping[str, Mode] = {}  # empty where payloads name none
    places: tuple[Place, ...]

    read: Callable[[str, bytes], AgentEvent]  # event, payload; raises `Unreadable` and nothing else
    printed: Callable[[str, Answer], Printed]  # event, answer; `ValueError` for an answer that the event cannot carry
    failure: Callable[[str, str], Printed]  # event, reason: what to print when licet itself fails
    may_be_mcp: Callable[[str], bool]  # whether a tool of this name can be one of an MCP server
    mcp_tools: Callable[[str, Sequence[str]], tuple[McpTool, ...]]  # all meanings of a name, for these servers
    urls: Callable[[AgentTool, Mapping[str, Any]], tuple[str, ...]]  # that a call fetches; raises `Unreadable`
    patched_files: Callable[[str], tuple[PatchedFile, ...]] | None = None  # raises `Unreadable`

    # Where its hooks learn the directory that it was started in, if the directory in its payloads moves: `$NAME` is a
    # variable that it sets for them, and `.` the directory that they are started in.
    start: str = ""
    headless: tuple[str, ...] = ()  # words of its command line that make it run without a person
    asks: bool  # whether it asks its person if a hook says so, and never lets the call run instead
    rewrites: Literal["whole", "merged"]  # new arguments replace all old ones, or only those of the same name
    call_ids: bool  # whether a call has the same id before and after
    failing_hook_runs: tuple[str, ...]  # failures of a hook after which the call runs, whatever we set
    fail_closed: str = ""  # the setting that makes other failures refuse
    needs_trust: str = ""  # what must be trusted before hooks run at all
    unseen: tuple[str, ...]  # what its hooks are not told
    expands_home: bool  # whether a path that begins with `~/` is below the home, and not below a folder named `~`
    keeps: Literal["nothing", "directory", "shell"]  # what lasts from one shell line to the next
    line_program: tuple[str, ...]  # the program and options that it runs a shell line with
    other_shells: bool = False  # whether a call may name another shell, PowerShell too, and hooks are not told
    ends_shell: bool = False  # whether a line must end the shell that runs it, since that might read what is typed
    timeout_unit: Literal["seconds", "milliseconds"]
    timeout: int | None  # in that unit, where the settings name none; None for no limit
    timeout_key: str = ""


def meanings(dialect: Dialect, tool: str, servers: Sequence[str], server_name: str = "") -> list[AgentTool | McpTool]:
    """Everything that a tool's name may mean. A call with none, or with more than one, must be refused.

    `servers` are the names in the agent's own configuration. `server_name` is the one that the payload names, if any.
    """
    found: list[AgentTool | McpTool] = []
    if (row := dialect.tools.get(tool)) is not None:
        found.append(row)
    named = [one for one in servers if not server_name or one == server_name]
    found.extend(dialect.mcp_tools(tool, named))
    return found


def split_by_servers(
    tool: str, servers: Sequence[str], prefix: str, separator: str, spelled: Callable[[str], str]
) -> tuple[McpTool, ...]:
    """Each server whose spelled name, between a prefix and a separator, begins the name of a tool."""
    found = []
    for server in dict.fromkeys(servers):
        start = f"{prefix}{spelled(server)}{separator}"
        if tool.startswith(start) and len(tool) > len(start):
            found.append(McpTool(server, tool[len(start) :]))
    return tuple(found)


def url_arguments(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The URLs that a call fetches, for tools with one URL in an argument."""
    from licet.hooks.agents.event_payload import text_of

    return tuple(text_of(arguments, name, f"the arguments of `{tool.name}`") for name in tool.urls)


def shown(text: str) -> str:
    """A reason or a line for a person: never blank, and always text that JSON can carry."""
    readable = text.encode("utf-8", "replace").decode("utf-8").strip()
    return readable or FALLBACK_REASON


def as_json(value: Mapping[str, Any]) -> bytes:
    """The one JSON object that a hook prints. `ValueError` for arguments that JSON cannot carry."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError("the answer cannot be written as JSON") from error


def cannot_carry(event: str, answer: Answer) -> ValueError:
    """The error for an answer that an event has no words for."""
    return ValueError(f"`{event}` cannot be answered with {type(answer).__name__}")
