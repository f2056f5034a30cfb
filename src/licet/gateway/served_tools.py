"""The tools of servers, which are run by asking their servers.

The guard knows nothing of MCP. It decides, asks, reserves and records a call of `files.read` as that of any tool; only
the step that runs the tool is another one, `AsksServers`.

A gateway that only observes has every tool that a server offers, with any arguments. In licet itself such a call holds
nothing. What it can touch is what the process of its server can: its walls are those of the policy, unless the operator
has opened them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from licet.assemble.gate import Backends, CommandGate
from licet.core.policy.lock import LockedServer, NamedPlaces, local
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import PROMPTS, RESOURCES, Server, servers_of, tool_parts
from licet.core.policy.terms import Admission, Natives, least_limits
from licet.core.policy.tool import ToolSpec, spec_of
from licet.core.values import Origin
from licet.declare import Context, Tool
from licet.declare.arguments import checked_json
from licet.declare.json_schema import schema_validator
from licet.declare.plain_json import data_again
from licet.guard.registration import RegisteredTools
from licet.policy_files.server_tools import refusal_of_name


class ServerTool(Tool):
    """A tool of an MCP server. Its arguments are checked against the schema in the lock."""

    in_lock = False  # its definition is, below its server
    uses_handles = False  # its server's process acts by itself

    server: str
    tool: str
    _schema: dict[str, Any]

    def __init__(self, spec: ToolSpec, server: str, tool: str, places: NamedPlaces | None = None) -> None:
        super().__init__(_run_by_its_server, spec)
        # A lock names directories, such as `${workdir}`. Clients are shown the real ones, and servers expect them.
        vars(self).update(server=server, tool=tool, _schema=local(dict(spec.schema or {}), places or {}))

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return schema_validator(self._schema)

    def parameter_names(self) -> dict[str, str | None]:
        return {name: name for name in (self.spec.schema or {}).get("properties", {})}


async def _run_by_its_server(ctx: Context) -> None:  # with a context, so that what is noted gets into the receipt
    raise RuntimeError("a server's tool is run by its server")


def server_tools(manifest: Manifest, places: NamedPlaces | None = None) -> list[Tool]:
    """The tools of all servers of a manifest that the lock has and `servers:` declares.

    `places` are the directories of this machine, by the names that the lock has for them.
    """
    servers = servers_of(manifest.servers)
    found: list[Tool] = []
    for name, spec in manifest.tools.items():
        parts = tool_parts(name, servers)
        if parts is not None:
            found.append(ServerTool(spec, *parts, places))
    return found


_ORIGIN = Origin("licet gateway --observe", 0, 0)


class ObservedTool(ServerTool):
    """A tool of an MCP server that takes any arguments."""

    def validator(self) -> Callable[[object], dict[str, Any]]:
        return _any_object


def _any_object(given: object) -> dict[str, Any]:
    arguments: dict[str, Any] = data_again(checked_json(given))
    return arguments


def observed_policy(
    manifest: Manifest,
    servers: Mapping[str, Server],
    offered: Mapping[str, LockedServer],
    backends: Backends,
    *,
    workdir: Path | None,
    is_open: bool,
) -> RegisteredTools:
    """A policy that admits every tool, resource and prompt that these servers offer, without rules or budgets.

    The time limits are those of `manifest`.
    """
    tools: list[ObservedTool] = []
    natives: set[str] = set()
    for name, locked in offered.items():
        is_native = is_open or servers[name].kind == "native"
        for tool, definition in {**locked.listed("tools"), RESOURCES: {}, PROMPTS: {}}.items():
            if definition and (f"tools/{tool}" in locked.refused or refusal_of_name(name, tool)):
                continue
            full = f"{name}.{tool}"
            spec = spec_of(
                name=full,
                needs=[],
                effect="read_only",  # of what it holds here, which is nothing
                sandbox="native" if is_native else "isolated",
                description=str(definition.get("description", "")),
                schema={"type": "object"},
                origin=_ORIGIN,
            )
            natives |= {full} if is_native else set()
            tools.append(ObservedTool(spec, name, tool))
    instead = Manifest(
        agent=manifest.agent,
        origin=_ORIGIN,
        admissions={tool.name: (_admission(manifest, servers[tool.server], tool),) for tool in tools},
        natives=(Natives(frozenset(natives), _ORIGIN),),
        limits=manifest.limits,
        allow_degraded=manifest.allow_degraded,
        record=manifest.record,
        loaded=manifest.loaded or manifest,  # receipts have the digest of the policy
    )
    instead = instead.under(*manifest.organisations)
    return CommandGate(instead, tools, backends, workdir=workdir, on_misfit="deny").policy


def _admission(manifest: Manifest, server: Server, tool: ObservedTool) -> Admission:
    """How a tool is admitted: with the limits that the manifest and the workspace state for it."""
    entry = server.entry(tool.tool)
    limits: Mapping[str, int] = entry.limits if entry is not None else {}
    for admission in manifest.admissions.get(tool.name, ()):
        limits = least_limits(limits, admission.limits)
    return Admission(_ORIGIN, limits=limits)
