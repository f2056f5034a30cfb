"""A server of the official Python SDK over streamable HTTP: `python sdk_http_server.py PORT MODE`.

It runs with mcp 1.x and 2.x. MODE is `events`, `json` or `stateless`.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any

import uvicorn  # type: ignore[import-not-found,unused-ignore]
from pydantic import BaseModel, Field

try:
    from mcp.server.mcpserver import Context, MCPServer  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from mcp.server.fastmcp import Context  # type: ignore[import-not-found,no-redef,unused-ignore]
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[import-not-found,no-redef,unused-ignore]

server = MCPServer("sdk")
tool: Callable[[Any], Any] = server.tool()


class Name(BaseModel):
    """What the user is asked for."""

    name: str


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def count(to: int, ctx: Context) -> str:
    """Count, and report each step."""
    for step in range(to):
        await ctx.report_progress(step + 1, to)
    return f"counted to {to}"


@tool
async def wait() -> str:
    """Wait until the call is cancelled."""
    await asyncio.Event().wait()
    return "never"


@tool
def near(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Use an argument that a header repeats."""
    return region


@tool
async def ask(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("Your name?", Name)
    return str(answer.data.name if answer.action == "accept" else answer.action)


def app(mode: str) -> Any:
    options = {"json_response": mode == "json", "stateless_http": mode == "stateless"}
    if hasattr(server, "settings") and hasattr(server.settings, "json_response"):  # 1.x
        for key, value in options.items():
            setattr(server.settings, key, value)
        return server.streamable_http_app()
    return server.streamable_http_app(**options)


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
