"""Tools that use libraries which open their own connections and files."""

import asyncio
import os
import socket
import urllib.error
import urllib.request
from typing import Any

from licet import tool

NEEDS = ["network:tcp:*", "fs:read:*", "fs:write:*"]


@tool(needs=NEEDS, effect="write_limited")
def get_with_urllib(url: str) -> str:
    """A page, by the standard library."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        return f"no: {error.reason!r}"


@tool(needs=NEEDS, effect="write_limited")
async def get_with_streams(port: int) -> str:
    """A page, by hand and in a loop."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return f"no: {type(error).__name__}"
    writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = await reader.readuntil(b"hello")
    writer.close()
    return text.rpartition(b"\r\n")[2].decode()


@tool(needs=NEEDS, effect="write_limited")
def touch(what: str, path: str) -> Any:
    """Do something to a file without asking anybody."""
    try:
        match what:
            case "read":
                with open(path, encoding="utf-8") as file:
                    return file.read()
            case "write":
                with open(path, "w", encoding="utf-8") as file:
                    return file.write("new")
            case "delete":
                return os.unlink(path)
            case "rename":
                return os.rename(path, f"{path}.moved")
            case "list":
                return sorted(os.listdir(path))
            case "listen":
                socket.create_server(("127.0.0.1", 0))
    except OSError as error:
        return f"no: {type(error).__name__}"
