"""A client of `mcp` 1.x or 2.x that can be asked: prints its version, its tools, and what they return.

Arguments: the mode of 2.x, or nothing of 1.x; then the command of the server.
"""

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp  # type: ignore[import-not-found,unused-ignore]

warnings.simplefilter("ignore")  # methods of older versions are deprecated
types: Any = mcp.types if hasattr(mcp, "types") else __import__("mcp_types")


async def elicit(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"ok": True})


async def sample(context: Any, params: Any) -> Any:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="yo"), model="m")


@asynccontextmanager
async def opened(mode: str, command: list[str]) -> AsyncIterator[tuple[Any, str]]:
    server = mcp.StdioServerParameters(command=command[0], args=command[1:])
    callbacks: Any = {"elicitation_callback": elicit, "sampling_callback": sample}
    if mode:
        async with mcp.Client(server, mode=mode, **callbacks) as client:
            yield client, client.protocol_version
        return
    from mcp.client.stdio import stdio_client  # type: ignore[import-not-found,unused-ignore]

    async with stdio_client(server) as streams, mcp.ClientSession(*streams, **callbacks) as client:
        yield client, (await client.initialize()).protocolVersion


async def main() -> None:
    mode, *command = sys.argv[1:]
    async with opened(mode, command) as (client, version):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        said = {name: (await client.call_tool(name, {})).content[0].text for name in tools}
    print(json.dumps({"version": version, "said": said}))


asyncio.run(main())
