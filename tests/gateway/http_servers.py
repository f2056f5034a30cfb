"""MCP servers over streamable HTTP on a loopback address, in the event loop of the test, that do what a test says.

A server answers as its era does, unless a handler takes the request: `on` has handlers by MCP method, by `GET` and by
`DELETE`; `calls` has them by tool. A handler may answer in any way, well or badly, with the `Out` that it is given.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from gateway.servers import SECONDS
from guard.grants import grant
from licet.backends.http import HttpClient
from licet.guard.handles.messages import Pairs
from licet.guard.ports import Http
from licet.guard.redaction.redact import Redactor
from licet.mcp.http_link import Endpoint, HttpLink
from licet.mcp.upstream import Upstream
from loopback import Connections

from .servers import RecordingPeer

META = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class Asked(NamedTuple):
    """A request that came."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {}

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params") or {}


class Out:
    """The answer to one request."""

    def __init__(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._asked, self._reader, self._writer = asked, reader, writer
        self.is_whole = False
        self.is_stream = False

    async def raw(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A complete answer."""
        self.is_whole = True
        lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.raw(status, json.dumps(value).encode(), content_type="application/json", **headers)

    async def result(self, result: dict[str, Any], **headers: str) -> None:
        """Answer with JSON."""
        await self.json(self.answer(result), 200, **headers)

    def answer(self, result: dict[str, Any]) -> dict[str, Any]:
        kind = {"resultType": "complete"} if META in self._asked.body.decode(errors="replace") else {}
        return {"jsonrpc": "2.0", "id": self._asked.message.get("id"), "result": {**kind, **result}}

    async def stream(self, **headers: str) -> None:
        """Begin a stream of events."""
        self.is_stream = True
        lines = ["HTTP/1.1 200 x", "content-type: text/event-stream", "transfer-encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        """Bytes of a stream."""
        if not self.is_stream:
            await self.stream()
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def event(self, value: Any, event_id: str = "") -> None:
        """An event with a message."""
        first = f"id: {event_id}\n" if event_id else ""
        await self.piece(f"{first}event: message\ndata: {json.dumps(value)}\n\n".encode())

    async def end(self) -> None:
        """The end of a stream."""
        self.is_whole = True
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def until_closed(self) -> None:
        """Wait until the client has closed the connection."""
        await self._reader.read(1)


Handler = Callable[[Asked, Out], Awaitable[None]]


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def notified(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


class HttpServer:
    """A scripted server: `era` is 2025 or 2026, `session` its session id, `streams` whether it answers with events."""

    def __init__(
        self,
        era: str = "2025",
        *,
        session: str = "s-1",
        streams: bool = False,
        tools: list[dict[str, Any]] | None = None,
        capabilities: dict[str, Any] | None = None,
        calls: Mapping[str, Handler] | None = None,
        on: Mapping[str, Handler] | None = None,
    ) -> None:
        self.era, self.session, self.streams = era, session if era == "2025" else "", streams
        self.tools = tools or [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.capabilities = capabilities or {"tools": {}}
        self.calls, self.on = dict(calls or {}), dict(on or {})
        self.seen: list[Asked] = []
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def posted(self, method: str = "") -> list[Asked]:
        """The messages that came, or those with a method."""
        return [one for one in self.seen if one.verb == "POST" and (not method or one.message.get("method") == method)]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")[:-2]
                verb, path, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                asked = Asked(verb, path, headers, body)
                self.seen.append(asked)
                out = Out(asked, reader, writer)
                await self.answer(asked, out)
                if not out.is_whole:
                    return
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            writer.transport.abort()

    async def answer(self, asked: Asked, out: Out) -> None:
        method = asked.message.get("method", "")
        taken = self.on.get(asked.verb if asked.verb != "POST" else method)
        if method == "tools/call" and asked.params["name"] in self.calls:
            taken = self.calls[asked.params["name"]]
        if taken is not None:
            await taken(asked, out)
        elif asked.verb == "DELETE":
            await out.raw(200)
        elif asked.verb != "POST":
            await out.raw(405)
        elif "id" not in asked.message or not method:
            await out.raw(202)
        else:
            await self.reply(asked, out, method)

    async def reply(self, asked: Asked, out: Out, method: str) -> None:
        version = asked.headers.get("mcp-protocol-version", "")
        if self.era == "2025" and method != "initialize" and asked.headers.get("mcp-session-id", "") != self.session:
            await out.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}, 400)
        elif self.era == "2026" and (version != MODERN or asked.headers.get("mcp-method") != method):
            wrong = {"code": -32022, "message": "unsupported", "data": {"supported": [MODERN]}}
            await out.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": wrong}, 400)
        elif (result := self.result(asked, method)) is None:
            error = {"code": -32601, "message": "Method not found"}
            await out.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, 404)
        elif method == "initialize" and self.session:
            await out.result(result, mcp_session_id=self.session)
        elif self.streams:
            await out.event(out.answer(result))
            await out.end()
        else:
            await out.result(result)

    def result(self, asked: Asked, method: str) -> dict[str, Any] | None:
        match self.era, method:
            case "2025", "initialize":
                about = {"protocolVersion": LEGACY, "capabilities": self.capabilities}
                return {**about, "serverInfo": {"name": "scripted", "version": "1"}}
            case "2026", "server/discover":
                return {"supportedVersions": [MODERN], "capabilities": self.capabilities, "ttlMs": 0}
            case _, "tools/list":
                return {"tools": self.tools}
            case _, "tools/call":
                return text_result(json.dumps(asked.params.get("arguments", {})))
        return None


@asynccontextmanager
async def listening(server: HttpServer) -> AsyncIterator[HttpServer]:
    """A server that is running."""
    connections = Connections(server.talk, limit=1 << 20)
    listener = await asyncio.get_running_loop().create_server(connections.protocol, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await connections.refuse_more(listener)
        for task in tuple(server.tasks):
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await connections.close()


def link_to(
    url: str,
    *,
    headers: Pairs = (),
    redactor: Redactor | None = None,
    reports: list[str] | None = None,
    http: Http | None = None,
    private: tuple[str, ...] = ("127.0.0.0/8",),
    needs: tuple[str, ...] = ("network:*:*",),
    schemas: Mapping[str, dict[str, Any]] | None = None,
) -> HttpLink:
    """A link to a server under a manifest that allows every host, and loopback addresses."""
    told = reports if reports is not None else []
    held = grant(needs, effect="read_only", private=private)
    endpoint = Endpoint(url, held, http or HttpClient(), headers=headers, redactor=redactor, report=told.append)
    return HttpLink("far", endpoint, lambda tool: (schemas or {}).get(tool, {}))


@asynccontextmanager
async def opened(
    server: HttpServer,
    peer: RecordingPeer | None = None,
    offers: dict[str, Any] | None = None,
    *,
    prefer: Any = "",
    **options: Any,
) -> AsyncIterator[Upstream]:
    """A scripted server, seen through an Upstream that is open."""
    async with listening(server):
        upstream = Upstream("far", link_to(server.url, **options), peer or RecordingPeer(), offers or {})
        try:
            await upstream.open(prefer, seconds=SECONDS)
            yield upstream
        finally:
            await upstream.close()
