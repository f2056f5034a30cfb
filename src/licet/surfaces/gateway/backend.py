"""What stands behind a client's connection: `Backend`, and the values that pass between the two.

A backend knows nothing of protocol versions. It decides, asks, records and runs; the connection only translates.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from licet.surfaces.gateway.jsonrpc import INVALID_PARAMS
from licet.surfaces.gateway.methods import Sender

if TYPE_CHECKING:
    from licet.surfaces.gateway.caller import CallerLink


class ShownTool(Struct, frozen=True):
    """A tool that this agent may call."""

    name: str  # `server.tool`
    definition: dict[str, Any]  # the locked one
    listed: bool = True  # False while its server does not offer it as it was locked: its calls are refused


class Offered(Struct, frozen=True):
    """A resource, template or prompt that this agent may use."""

    server: str
    definition: dict[str, Any]  # the locked one
    listed: bool = True  # as of a tool


class Unforwarded(Struct, frozen=True):
    """Something that was not passed on. Each name is reported once per connection."""

    sender: Sender
    kind: str  # request, notification, parameter, `_meta` key, result key, tool, answer …
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sender}: {self.kind} `{self.name}`: {self.reason}"


class Refusal(Exception):
    """A request is refused: a reason code, and one line for the model that starts with it."""

    def __init__(self, reason: str, line: str, code: int = INVALID_PARAMS) -> None:
        self.reason = reason
        self.line = line
        self.code = code  # of the error, for methods whose results cannot say that they are errors
        super().__init__(line)


class Backend(Protocol):
    """The policy, the ledger and the servers of one connection.

    Each list is the same object until something in it changes, and is in a fixed order. It waits for no server: what
    one turns out not to offer stays in it, and is not listed any more.
    """

    def instructions(self) -> str: ...

    def tools(self) -> Sequence[ShownTool]: ...

    def resources(self) -> Sequence[Offered]: ...

    def templates(self) -> Sequence[Offered]: ...

    def prompts(self) -> Sequence[Offered]: ...

    async def call(self, tool: str, arguments: dict[str, Any], client: "CallerLink") -> dict[str, Any]:
        """The result of a tool call, refusals included. It may be JSON text, which is then not parsed again."""

    def hidden(self) -> Iterable[str]:
        """The full names of the tools that there are, and that no client is shown."""

    async def unknown(self, name: str, arguments: dict[str, Any], behind: str = "") -> None:
        """Record a call of something that this client was not shown; `behind` is the hidden tool of that name."""

    async def read(self, server: str, uri: str, client: "CallerLink") -> dict[str, Any]:
        """The contents of a resource. Raises `Refusal`, or `ProtocolError` for an error of the server."""

    async def prompt(self, server: str, name: str, arguments: dict[str, Any], client: "CallerLink") -> dict[str, Any]:
        """The messages of a prompt. Raises as `read` does."""

    async def complete(
        self,
        server: str,
        ref: dict[str, Any],
        argument: dict[str, Any],
        context: dict[str, Any],
        client: "CallerLink",
    ) -> dict[str, Any]:
        """Completions for an argument of a prompt or template. Raises as `read` does."""

    async def subscribe(self, server: str, uri: str) -> None:
        """Want updates of a resource; asked again for each subscription of the client. Raises as `read` does."""

    async def unsubscribe(self, server: str, uri: str) -> None:
        """Want no more updates of it."""

    def client_is(self, info: dict[str, Any], capabilities: dict[str, Any], version: str) -> None:
        """Take what the client claims to be, when it starts and whenever it claims something else."""

    def log_level(self, level: str) -> None:
        """Set the lowest level of log messages outside of calls. Only clients up to 2025-11-25 set one."""

    def roots_changed(self) -> None:
        """Take note that the client's roots may have changed."""

    def reported(self, event: Unforwarded) -> None:
        """Record something that was not passed on."""

    async def close(self) -> None: ...
