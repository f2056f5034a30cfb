"""The MCP server of the gateway benchmarks, on the official SDK: an echo, a large text, and other tools."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(structured_output=False)
def large(size: int) -> str:
    """Return a text of this length."""
    return ("one line of a large text, as long as many\n" * (size // 40 + 1))[:size]


def read_end(path: str, lines: int = 10, follow: bool = False) -> str:
    """Read the last lines of a file."""
    return f"{path} {lines} {follow}"


for number in range(2, int(sys.argv[1])):
    server.add_tool(read_end, name=f"read_end_{number}", structured_output=False)
server.run()
