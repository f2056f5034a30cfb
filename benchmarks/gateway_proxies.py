"""What stands in the place of `licet gateway` in its benchmarks: `line SERVER…` or `fastmcp SERVER…`."""

import subprocess
import sys
import threading
from typing import Any, BinaryIO


def line_proxy(command: list[str]) -> None:
    """Pass every line on as it is, in both directions: what any process between the two costs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        answers = threading.Thread(target=_pass_on, args=(server.stdout, sys.stdout.buffer))
        answers.start()
        _pass_on(sys.stdin.buffer, server.stdin)
        server.stdin.close()
        answers.join()


def _pass_on(source: BinaryIO, sink: BinaryIO) -> None:
    for line in source:
        sink.write(line)
        sink.flush()


def fastmcp_proxy(command: list[str]) -> None:
    """FastMCP's proxy with one middleware, which looks up the tool and records an event in memory.

    A connected client is its fastest way: with any other target it starts a process for each request.
    """
    import asyncio
    import logging

    logging.disable(logging.WARNING)
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy
    from fastmcp.server.middleware import Middleware

    allowed, events = frozenset(("echo", "large")), []

    class Governing(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            if context.message.name not in allowed:
                raise PermissionError(context.message.name)
            events.append((context.message.name, context.message.arguments))
            return await call_next(context)

    async def serve() -> None:
        async with Client(StdioTransport(command[0], command[1:])) as client:
            proxy = create_proxy(client, name="bench")
            proxy.add_middleware(Governing())
            await proxy.run_stdio_async(show_banner=False)

    asyncio.run(serve())


if __name__ == "__main__":
    {"line": line_proxy, "fastmcp": fastmcp_proxy}[sys.argv[1]](sys.argv[2:])
