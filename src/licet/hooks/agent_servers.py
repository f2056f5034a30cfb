"""Which MCP server a tool of a coding agent belongs to, and whether that server is licet's gateway with this policy.

The agent's own list of servers is read at each call. A name says nothing: a project may give its server the name of
ours. So only an entry that starts this licet's gateway with the policy of the session is passed silently, because then
the gateway decides about the call and records it. Every other server is refused, with the command that puts it behind.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.clients.entries import starts_gateway
from licet.clients.jsonc import BadConfig, Jsonc, table_of
from licet.clients.known import CLAUDE_CODE, CODEX, CURSOR, GEMINI, Client, Surroundings, Unusable, places, read_own
from licet.hooks.agent_event import AgentEvent, AgentTool
from licet.hooks.agent_sessions import AgentSession
from licet.hooks.agents.dialect import Dialect, McpTool, meanings
from licet.policy_files.policy_paths import home_directory

_CLIENTS: Mapping[str, Client] = {"claude": CLAUDE_CODE, "codex": CODEX, "gemini": GEMINI, "cursor": CURSOR}
# The files of agents that the set-up of clients does not know: below the home or the project, and the table in each.
_COPILOT = (("home", ".copilot/mcp-config.json"), ("project", ".mcp.json"), ("project", ".github/mcp.json"))
_OPENCODE = (
    *(("config", f"opencode/{name}") for name in ("opencode.json", "opencode.jsonc", "config.json")),
    *(("project", name) for name in ("opencode.json", "opencode.jsonc")),
)
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
    """Every entry of every configuration that counts for a session, by name."""
    here = Surroundings("darwin" if os.uname().sysname == "Darwin" else "linux", os.environ, home_directory(), start)
    found: dict[str, list[Any]] = {}
    if (client := _CLIENTS.get(agent)) is not None:
        for place in places(here):
            if place.client is not client or (seen := read_own(Path(place.path), Path(place.base))) is None:
                continue
            data = client.form.read(seen.text)
            for table in place.tables:
                for name, entry in table_of(data, table).items():
                    found.setdefault(name, []).append(entry)
        return found
    for path, base in _other_files(agent, here):
        if (seen := read_own(path, base)) is not None:
            key = "mcp" if agent == "opencode" else "mcpServers"
            for name, entry in table_of(Jsonc().read(seen.text), (key,)).items():
                found.setdefault(name, []).append(_as_usual(entry))
    return found


def _other_files(agent: str, here: Surroundings) -> Iterator[tuple[Path, Path]]:
    bases = {"home": Path(here.home), "project": Path(here.project), "config": Path(here.config())}
    for base, name in {"copilot": _COPILOT, "opencode": _OPENCODE}.get(agent, ()):
        yield bases[base] / name, bases[base]


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
