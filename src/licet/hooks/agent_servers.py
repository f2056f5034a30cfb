"""Which MCP server a tool of a coding agent belongs to, and whether that server is licet's gateway with this policy.

The agent's own lists of servers are read at each call: those of the user, those of the directory that it was started
in, and those of every directory above. A name says nothing: a project may give its server the name of ours, and agents
differ in which of two entries wins. So a call passes silently only if every entry of that name starts this licet's
gateway with the policy of the session, because then the gateway decides about the call and records it. Every other
server is refused, with the command that puts it behind.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.clients.entries import starts_gateway
from licet.clients.jsonc import BadConfig, Jsonc, KeyPath, table_of
from licet.clients.known import (
    CLAUDE_CODE,
    CODEX,
    CURSOR,
    GEMINI,
    Client,
    Surroundings,
    System,
    Unusable,
    places,
    read_own,
)
from licet.hooks.agent_event import AgentEvent, AgentTool
from licet.hooks.agent_sessions import AgentSession
from licet.hooks.agents.dialect import Dialect, McpTool, meanings
from licet.hooks.switches import configuration_directories, directories_around
from licet.policy_files.policy_paths import home_directory

_CLIENTS: Mapping[str, Client] = {"claude": CLAUDE_CODE, "codex": CODEX, "gemini": GEMINI, "cursor": CURSOR}
# The files of agents that the set-up of clients does not know: below each directory around the start, and below a
# directory of the home, wherever it lies.
_PROJECT = {
    "copilot": (".mcp.json", ".github/mcp.json"),
    "opencode": tuple(f"{base}opencode.json{end}" for base in ("", ".opencode/") for end in ("", "c")),
}
_HOME = {
    "copilot": ((".copilot", "mcp-config.json"),),
    "opencode": tuple(
        (base, name)
        for base in (".config/opencode", ".opencode")
        for name in ("opencode.json", "opencode.jsonc", "config.json")
    ),
}
_BEHIND = "put the server behind the gateway: `licet init --mcp`, then `licet lock --init`"


class Behind(Struct, frozen=True):
    """What stands behind an MCP tool: the name for the receipt, and why the call is refused, if it is."""

    name: str
    is_gateway: bool = False
    why: str = ""


def server_behind(dialect: Dialect, session: AgentSession, event: AgentEvent, row: AgentTool | None) -> Behind | None:
    """Find the server of a tool in the agent's own configuration; None for a built-in tool that no server has."""
    try:
        entries = _entries(event.agent, session.start)
    except (Unusable, BadConfig) as wrong:
        return Behind(event.tool, why=f"the servers of this agent are not known: {wrong}")
    found = meanings(dialect, event.tool, tuple(entries), event.server_name)
    if found == [row]:
        return None
    if not found:
        return Behind(event.tool, why=f"no configuration of this agent names the server of `{event.tool}`; {_BEHIND}")
    if len(found) > 1:
        named = " or ".join(f"`{one.tool}` of `{one.server}`" for one in found[:4] if isinstance(one, McpTool))
        return Behind(event.tool, why=f"`{event.tool}` may be {named}: give one of these servers another name")
    (one,) = found
    if not isinstance(one, McpTool):
        return None
    name = f"{one.server}.{one.tool}"
    if event.server is not None and not _is_ours(_as_usual(event.server), session):
        return Behind(name, why=f"the server `{one.server}` that was started is not licet's gateway; {_BEHIND}")
    if not all(_is_ours(entry, session) for entry in entries[one.server]):
        text = f"the server `{one.server}` does not start licet's gateway with the policy of this session"
        return Behind(name, why=f"{text}; {_BEHIND}")
    return Behind(name, is_gateway=True)


def _entries(agent: str, start: str) -> dict[str, list[Any]]:
    """Every entry of every configuration that may count for a session, by name."""
    found: dict[str, list[Any]] = {}
    form = client.form if (client := _CLIENTS.get(agent)) is not None else Jsonc()
    read = _known_files(client, start) if client is not None else _other_files(agent, start)
    for (path, base), tables in read.items():
        if (seen := read_own(path, base)) is not None:
            data = form.read(seen.text)
            for table in tables:
                for name, entry in table_of(data, table).items():
                    found.setdefault(name, []).append(_as_usual(entry) if client is None else entry)
    return found


_Files = dict[tuple[Path, Path], dict[KeyPath, None]]  # a file and the directory that it is below, with its tables


def _known_files(client: Client, start: str) -> _Files:
    found: _Files = {}
    system: System = "darwin" if os.uname().sysname == "Darwin" else "linux"
    for directory in directories_around(start):
        for place in places(Surroundings(system, os.environ, home_directory(), directory)):
            if place.client is client:
                tables = found.setdefault((Path(place.path), Path(place.base)), {})
                tables.update(dict.fromkeys(place.tables))
    return found


def _other_files(agent: str, start: str) -> _Files:
    table: KeyPath = ("mcp",) if agent == "opencode" else ("mcpServers",)
    own = [(Path(base), name) for below, name in _HOME.get(agent, ()) for base in configuration_directories(below)]
    around = [(Path(base), name) for base in directories_around(start) for name in _PROJECT.get(agent, ())]
    found = {(base / name, base): {table: None} for base, name in (*own, *around)}
    if agent == "opencode" and os.path.isabs(file := os.environ.get("OPENCODE_CONFIG", "")):
        found[Path(file), Path(file).parent] = {table: None}
    return found


def _as_usual(entry: Any) -> Any:
    """An entry of OpenCode, whose command is one list, in the form of all others."""
    command = entry.get("command") if isinstance(entry, dict) else None
    if not isinstance(command, list) or not command:
        return entry
    others = {key: value for key, value in entry.items() if key not in ("command", "environment", "type")}
    given = {"env": entry["environment"]} if "environment" in entry else {}
    return {"command": command[0], "args": command[1:], **given, **others}


def _is_ours(entry: Any, session: AgentSession) -> bool:
    """Whether an entry starts this licet's gateway with the policy of a session, and nothing else."""
    from licet.clients.setup_plan import this_licet  # loads much

    if session.choice is None or not starts_gateway(entry, this_licet()):
        return False
    words = [word for word in entry["args"][1:] if word != "--accepted"]
    if len(words) != 1 or words[0].startswith("-"):
        return False
    return os.path.realpath(words[0]) == session.choice.policy if os.path.isabs(words[0]) else False
