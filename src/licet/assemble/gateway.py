"""The gate behind the MCP gateway: its tools are those of servers, and running one asks its server.

The guard knows nothing of MCP. It decides, asks, reserves and records a call of `files.read` as that of any tool; only
the step that runs the tool is another one, `AsksServers`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from licet.core.decision.decision import Happened, ResultNoted
from licet.core.policy.effects import Level
from licet.core.policy.lock import NamedPlaces, local
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import servers_of, tool_parts
from licet.core.policy.tool import ToolSpec
from licet.declare import Context, Tool
from licet.declare.json_schema import schema_validator
from licet.guard.execution import JsonText, Layers, LayersOfTools, Sandbox, ToolCall, Walls
from licet.guard.grant import Grant


class CallNotes:
    """Writes what a server did during a call into the receipt of that call."""

    __slots__ = ("_grant",)

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    def __call__(self, text: str) -> None:
        """Note something about the result."""
        self.happened(ResultNoted, rule=text)

    def happened(self, kind: type[Happened], about: str = "", reason: str = "", rule: str = "", count: int = 0) -> None:
        """Record an event; `about` is a capability, if the event is not about the call itself."""
        if self._grant is not None:
            self._grant.note_about(kind, about, reason, rule, count)


AskServer = Callable[[ToolCall, CallNotes], Awaitable[JsonText]]  # the result of a call of a `ServerTool`, as JSON


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


class AsksServers:
    """Runs tools of servers by asking the server, and every other tool as `inner` does."""

    def __init__(self, inner: Sandbox, ask: AskServer) -> None:
        self._inner, self._ask = inner, ask

    def layers(self, level: Level) -> tuple[str, ...]:
        """The walls of a level."""
        return self._inner.layers(level)

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The walls around a tool."""
        if isinstance(self._inner, LayersOfTools) and not isinstance(tool, ServerTool):
            return self._inner.tool_layers(tool, level, allow_degraded=allow_degraded)
        return Layers(self._inner.layers(level))

    def walls(self, held: Any) -> Walls:
        """The walls of a child process."""
        return self._inner.walls(held)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a tool."""
        tool = call.tool
        if isinstance(tool, ServerTool):
            return self._ask(call, CallNotes(context._grant if context is not None else None))
        return self._inner.run(level, call, context)

    def forget(self) -> None:
        """End idle workers."""
        forget = getattr(self._inner, "forget", None)
        if forget is not None:
            forget()

    def close(self) -> None:
        """End all workers."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()
