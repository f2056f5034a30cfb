"""What a coding agent reports to its hook, and what the hook answers: values that are the same for every agent.

The dialect of an agent (`hooks/agents/`) reads its payload into an `AgentEvent`, and prints an `Answer` in its words.
Nothing here decides anything. All of an event comes from the agent, so from a model: it is data, never trusted.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from licet.errors import LicetError

# At which moment of a session an event comes, whatever the agent calls it.
Moment = Literal[
    "session begins",
    "prompt",  # a person has sent words
    "before a call",
    "before a prompt",  # the agent is about to ask its person about a call
    "after a call",
    "subagent begins",
    "subagent ends",
    "session ends",
    "other",  # nothing follows from it
]

# What an agent's tool does, so what licet has to decide about it.
Kind = Literal[
    "shell",  # runs a text as a shell line
    "typed",  # sends text to a shell line that runs behind walls, reads its output, or ends it
    "read",  # reads the files that `paths` names, or lists directories
    "search",  # reads every file below the directories that `paths` names
    "write",  # writes the files that `paths` names
    "delete",  # deletes the files that `paths` names
    "patch",  # writes or deletes every file that a patch names
    "fetch",  # fetches the URLs that `urls` names
    "service",  # hands data to a service whose address no argument names, and reads what `paths` names
    "code",  # runs a program that is no shell line, so that neither arguments nor walls say what it does: refused
    "subagent",  # starts another agent of the same kind
    "server",  # a tool of an MCP server
    "plain",  # touches nothing outside the agent: plans, questions to the person, lists of tools
]


class AgentTool(Struct, frozen=True):
    """A built-in tool of a coding agent: one row of the agent's table."""

    name: str  # as the agent's events have it
    kind: Kind
    about: str  # what it does, for a page of the documentation
    paths: tuple[str, ...] = ()  # the arguments that name files or directories
    optional: tuple[str, ...] = ()  # those of `paths` that may be left out
    here: bool = False  # whether a call without any of `paths` means the agent's directory
    patterns: tuple[str, ...] = ()  # the arguments with wildcards that name files, below the first of `paths`
    urls: tuple[str, ...] = ()  # the arguments that name URLs, or hold texts that contain URLs
    text: str = ""  # the argument with the shell line, the patch, or the typed text
    directory: str = ""  # the argument that names the directory of a shell line
    skill: str = ""  # the argument that names a skill whose text runs commands when it is loaded
    undecided: tuple[str, ...] = ()  # arguments that licet cannot decide about: a call that has one is unreadable
    data: tuple[str, ...] = ()  # arguments that name nothing it touches, though they may look like paths
    seen: bool = True  # whether the agent's hooks are told of its calls
    prompts: bool = False  # whether the agent then gets a prompt later that the model has written


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event of a session of an agent, read from its payload."""

    agent: str  # the name in `hooks/agents`, such as `claude`: from the command line, never from the payload
    event: str  # as the agent calls it: from the command line as well
    moment: Moment
    session: str = ""  # as the agent names it
    directory: str = ""  # where the agent is now. It never decides which policy holds
    version: str = ""  # of the agent, if the payload has it
    mode: str = ""  # the permission mode, in the agent's words
    reads_only: bool = False  # whether that mode is a plan or another that changes nothing
    plan: bool | None = None  # True: a plan begins here, False: none goes on; for agents that name no mode
    would_ask: bool = False  # whether in that mode the agent would ask its person about a shell line
    would_run: bool = False  # whether in that mode the agent would run a shell line without asking
    shell: str | None = None  # the shell that it is set to, if the payload says it; may be empty
    subagent: str = ""  # the id of the subagent that makes the call; empty for the session itself
    tool: str = ""  # as the agent calls it
    arguments: Mapping[str, Any] = {}
    call: str = ""  # the agent's id of the call; empty for agents that give none
    server: Mapping[str, Any] | None = None  # how the server of an MCP tool is started, if the payload says so
    server_name: str = ""  # the name of that server, if the payload says it
    prompt: str = ""  # the words of the person, or of a model to a subagent
    alone: bool = True  # whether it is known that no other session has opened this one
    result: Any = None  # what a call returned, as the agent reports it
    failed: bool = False  # whether the agent reports that a call failed


class Silent(Struct, frozen=True):
    """No objection: the agent goes on as it would without the hook."""


class Refuse(Struct, frozen=True):
    """The call must not run. `reason` is for the model and is never empty."""

    reason: str


class Rewrite(Struct, frozen=True):
    """The call runs with other arguments, which are all of them."""

    arguments: Mapping[str, Any]
    allow: bool = False  # whether the agent need not ask its person about the new arguments


class AskPerson(Struct, frozen=True):
    """The agent must ask its person, about the arguments given here if they are others."""

    reason: str
    arguments: Mapping[str, Any] | None = None


class Tell(Struct, frozen=True):
    """No objection, and a line for the person at the agent."""

    text: str


Answer = Silent | Refuse | Rewrite | AskPerson | Tell


class Printed(Struct, frozen=True):
    """An answer in the dialect of an agent: what its hook prints, and its exit code."""

    output: bytes = b""
    errors: bytes = b""
    code: int = 0


class Unreadable(LicetError):
    """A payload that is not an event of this agent. Before a call, that is a refusal."""
