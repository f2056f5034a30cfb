"""A connection with a scripted backend on stdin and stdout: what the clients of the SDKs start."""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway.scripted_backend import Act, ScriptedBackend, prompt, resource, template, text, tool
from licet.gateway.client import ClientCall
from licet.gateway.connection import Connection
from licet.mcp.jsonrpc import Message, read_message, write_message
from licet.mcp.limits import MOST_LINE_BYTES


class PokedBackend(ScriptedBackend):
    """A scripted backend with a tool that changes what a client can subscribe to, and one with a structured result."""

    def acts(self) -> dict[str, Act]:
        return {**super().acts(), "poke": self._poke, "sum": self._sum}

    async def _poke(self, arguments: dict[str, Any], client: ClientCall) -> dict[str, Any]:
        self.client.list_changed("tools")
        self.client.resource_updated("s", "a://doc")
        return text("poked")

    async def _sum(self, arguments: dict[str, Any], client: ClientCall) -> dict[str, Any]:
        if arguments.get("refuse"):
            return await self._refuse(arguments, client)
        return {**text("3"), "structuredContent": {"sum": 3}}


async def main() -> None:
    output = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    backend = PokedBackend(
        resources=[resource("s", "a://doc"), resource("s", "a://secret")],
        templates=[template("s", "a://{name}")],
        prompts=[prompt("s", "draft")],
    )
    many = [tool(f"s.more{number}") for number in range(150)]
    backend.shown = [
        *(item for item in backend.shown if item.name != "s.sum"),
        tool("s.sum", outputSchema=output),
        *many,
    ]

    def send(message: Message) -> None:
        sys.stdout.buffer.write(write_message(message))
        sys.stdout.buffer.flush()

    connection = Connection(backend, send, names="plain")
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await connection.receive(read_message(line.rstrip(b"\n")))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
