"""`Connection`: all state of one client, whatever carries its messages.

It takes messages (`receive`) and gives messages (`send`). It decides nothing: it finds the row of each message in the
table of methods, asks the backend, and shapes the answer for the client's protocol version.

Serves one client over the standard input and output of this process.

What a client wants to be told about: changed lists and updated resources.

A client of 2025 subscribes to URIs, and gets a notification for every changed list. A client of 2026 opens streams;
each stream gets the notifications that it asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.gateway.catalog import Backend, Catalog, ListKind, Offered, Refusal, ShownTool, Unforwarded
from licet.gateway.governed_servers import GovernedBackend
from licet.gateway.questions import CallerLink, Cancellable, CannotAsk, Client, Timer
from licet.mcp import protocol
from licet.mcp.exchange import error_result
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    BadMessage,
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Response,
    read_message,
    write_message,
)
from licet.mcp.link import Flood, Gone, StdioLink
from licet.mcp.protocol import (
    ASKABLE,
    HANDSHAKE_VERSIONS,
    LEVELS,
    SUBSCRIPTION_KEY,
    Claims,
    Era,
    Method,
    ProtocolError,
    Sender,
    find,
    kept,
)
from licet.mcp.shown_names import Clash, Naming

__all__ = [
    "Backend",
    "CallerLink",
    "CannotAsk",
    "Clash",
    "Connection",
    "Offered",
    "ProtocolError",
    "Refusal",
    "ShownTool",
    "Unforwarded",
]

MOST_SUBSCRIPTIONS = 1000  # URIs, per connection

Changed = Literal["tools", "resources", "prompts"]
_FLAGS: Mapping[Changed, str] = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
_Resource = tuple[str, str]  # server, URI


class _Stream(Struct):
    id: Id | None  # the request that opened it; None for the one of a client of 2025
    lists: frozenset[Changed] = frozenset()
    resources: list[_Resource] = []
    held: dict[tuple[str, str], Notification] | None = None  # what happened before it was acknowledged


class Subscriptions:
    """The subscriptions of one client."""

    def __init__(
        self,
        backend: Backend,
        send: Callable[[Message], None],
        crowded: Callable[[], bool],
        server_of: Callable[[str], str],
    ) -> None:
        self._backend = backend
        self._send = send
        self._crowded = crowded
        self._server_of = server_of
        self._2025 = _Stream(None)
        self._streams = [self._2025]

    # A client of 2025 -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tell a client of 2025 of changed lists from now on."""
        self._2025.lists = frozenset(_FLAGS)

    async def subscribe(self, uri: object) -> None:
        await self._add(self._2025, uri)

    async def unsubscribe(self, uri: object) -> None:
        await self._remove(self._2025, [resource for resource in self._2025.resources if resource[1] == uri])

    # A client of 2026 -------------------------------------------------------------------------------------------------

    async def listen(self, request_id: Id, wanted: object) -> None:
        """Serve one stream until it is cancelled. What is refused is missing in the acknowledgement."""
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "`notifications` is not an object")
        uris = wanted.get("resourceSubscriptions") or []
        if not isinstance(uris, list):
            raise ProtocolError(INVALID_PARAMS, "`resourceSubscriptions` is not a list")
        lists = frozenset(kind for kind, flag in _FLAGS.items() if wanted.get(flag) is True)
        stream = _Stream(request_id, lists, held={})
        self._streams.append(stream)
        try:
            honored: dict[str, Any] = {_FLAGS[kind]: True for kind in _FLAGS if kind in lists}
            if accepted := [uri for uri in uris if await self._is_added(stream, uri)]:
                honored["resourceSubscriptions"] = accepted
            self._send(_stamped(stream, "notifications/subscriptions/acknowledged", {"notifications": honored}))
            held, stream.held = stream.held or {}, None
            for notification in held.values():
                self._send(notification)
            await asyncio.Event().wait()
        finally:
            self._streams.remove(stream)
            await self._remove(stream, list(stream.resources))

    async def _is_added(self, stream: _Stream, uri: object) -> bool:
        try:
            await self._add(stream, uri)
        except (Refusal, ProtocolError):
            return False
        return True

    # What happens -----------------------------------------------------------------------------------------------------

    def list_changed(self, kind: Changed) -> None:
        for stream in self._streams:
            if kind in stream.lists:
                self._tell(stream, f"notifications/{kind}/list_changed", {})

    def resource_updated(self, server: str, uri: str) -> None:
        """Tell who subscribed to this resource of this server, or to one above it, unless the transport is behind."""
        if self._crowded():
            return
        for stream in self._streams:
            if any(_covers(resource, server, uri) for resource in stream.resources):
                self._tell(stream, "notifications/resources/updated", {"uri": uri})

    def _tell(self, stream: _Stream, method: str, params: dict[str, Any]) -> None:
        notification = _stamped(stream, method, params)
        if stream.held is None:
            self._send(notification)
        elif len(stream.held) < MOST_SUBSCRIPTIONS:
            stream.held[method, params.get("uri", "")] = notification

    async def _add(self, stream: _Stream, uri: object) -> None:
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "`uri` is not a text")
        if sum(len(each.resources) for each in self._streams) >= MOST_SUBSCRIPTIONS:
            raise ProtocolError(INTERNAL_ERROR, f"too many: at most {MOST_SUBSCRIPTIONS} subscriptions")
        resource = self._server_of(uri), uri
        if resource in stream.resources:
            return
        stream.resources.append(resource)
        try:
            await self._backend.subscribe(*resource)
        except BaseException:
            stream.resources.remove(resource)
            raise

    async def _remove(self, stream: _Stream, resources: Iterable[_Resource]) -> None:
        for resource in resources:
            stream.resources.remove(resource)
            if not any(resource in each.resources for each in self._streams):
                await self._backend.unsubscribe(*resource)


def _covers(subscribed: _Resource, server: str, uri: str) -> bool:
    above = subscribed[1]
    return subscribed[0] == server and (uri == above or uri.startswith(f"{above.rstrip('/')}/"))


def _stamped(stream: _Stream, method: str, params: dict[str, Any]) -> Notification:
    return Notification(method, params if stream.id is None else {**params, "_meta": {SUBSCRIPTION_KEY: stream.id}})


MOST_RUNNING = 200  # requests at once
MOST_REPORTS = 200  # different things that were not passed on
_LONGEST_NAME = 200  # characters of a client's text in messages and reports

Handler = Callable[[CallerLink, dict[str, Any]], Awaitable[dict[str, Any]]]


class Connection:
    """One client. Raises `Clash` if two tools or two prompts would be shown under one name.

    `crowded` says that the transport is behind: progress, log messages and updates of resources are left out meanwhile,
    so that a server cannot fill the memory. `later` is the timer for questions that the client does not answer.
    """

    def __init__(
        self,
        backend: Backend,
        send: Callable[[Message], None],
        *,
        names: Naming,
        crowded: Callable[[], bool] = lambda: False,
        later: Timer | None = None,
    ) -> None:
        self.era: Era = ""
        self._backend = backend
        self._names = names
        self._sink = send
        self._closed = False
        self._claims = Claims(HANDSHAKE_VERSIONS[-1], {}, {})
        self._catalog = Catalog(backend, names, self._claims.version)
        self._client = Client(self._send, partial(self._report, "server"), crowded, later or _call_later)
        self._subscriptions = Subscriptions(backend, self._send, crowded, lambda uri: self._catalog.server_of(uri))
        self._calls: dict[asyncio.Task[None], CallerLink] = {}  # also those that wait to be repeated
        self._reported: set[tuple[str, ...]] = set()
        self._at_once: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda _: {},
            "logging/setLevel": self._set_level,
        }
        self._handlers: Mapping[str, Handler] = {
            "tools/list": partial(self._list, "tools"),
            "tools/call": self._call_tool,
            "resources/list": partial(self._list, "resources"),
            "resources/templates/list": partial(self._list, "resourceTemplates"),
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "subscriptions/listen": self._listen,
            "prompts/list": partial(self._list, "prompts"),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    # What the client sends --------------------------------------------------------------------------------------------

    async def receive(self, message: Message) -> None:
        """Take one message. Its answer is sent now or later; `receive` does not wait for it."""
        if self._closed:
            return
        try:
            match message:
                case Request():
                    self._take_request(message)
                case Notification():
                    self._take_notification(message)
                case Response() | Failure():
                    if not self._client.questions.answered(message):
                        self._report("client", "answer", str(message.id), "nothing waits for it")
        except Exception as error:
            known = error if isinstance(error, ProtocolError) else self._crash(message, error)
            if isinstance(message, Request):
                self._send(_failure(known, message.id))
        await asyncio.sleep(0)  # a burst of messages lets calls begin in between

    async def close(self) -> None:
        """End every call and the backend. Nothing is sent any more."""
        self._closed = True
        for call in self._calls.values():
            call.stop()
        self._client.waiting.clear()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._backend.close()

    def _take_request(self, request: Request) -> None:
        if request.id in self._client.running:
            raise ProtocolError(INVALID_REQUEST, "a request with this `id` still runs")
        claims, row = self._enter(request)
        wishes = protocol.read_wishes(request.params, self.era)
        params, dropped = kept(request.params, row.params | {"_meta"})
        params.pop("_meta", None)
        for key in dropped:
            self._report("client", "parameter", f"{row.name} {key}", "not in the table of methods")
        for key in wishes.unknown:
            self._report("client", "_meta", key, "not in the table of methods")
        if row.name in self._at_once:
            result = self._at_once[row.name](params)
            self._send(Response(request.id, protocol.for_version(row.name, result, self._claims.version)))
            return
        if sum(not call.waits for call in self._calls.values()) >= MOST_RUNNING:
            raise ProtocolError(INTERNAL_ERROR, f"too many requests at once: at most {MOST_RUNNING}")
        again = params.keys() & {"requestState", "inputResponses"} if row.name in ASKABLE else ()
        if self.era == "2026" and any(params[key] is not None for key in again):
            self._client.waiting.take(request).repeated(request, claims, wishes)
            return
        call = CallerLink(request, claims, wishes, self._client)
        call.task = asyncio.create_task(self._run(call, params))
        self._calls[call.task] = call
        call.task.add_done_callback(self._calls.pop)

    def _enter(self, request: Request) -> tuple[Claims, Method]:
        """The client's claims and the row of a request. The first request that is accepted decides the era."""
        method, params = request.method, request.params
        enveloped = protocol.has_envelope(params) and method != "initialize"
        if self.era == "2025" and enveloped:
            raise ProtocolError(INVALID_REQUEST, "this connection was initialized: it takes no requests of 2026-07-28")
        if self.era == "2025" and method == "initialize":
            raise ProtocolError(INVALID_REQUEST, "this connection was initialized already")
        if self.era == "2026" and method == "initialize":
            raise protocol.unsupported(params.get("protocolVersion"))
        if not self.era and (enveloped or method == "server/discover"):
            self._start("2026", protocol.read_envelope(params, also=HANDSHAKE_VERSIONS))
        elif not self.era and method == "initialize":
            self._start("2025", protocol.read_initialize(params))
        row = find(method, "request", "client", self._claims.version)
        if row is None:
            self._report("client", "request", method, "not in the table of methods: answered -32601")
            raise ProtocolError(METHOD_NOT_FOUND, f"there is no method `{_shortened(method)}`")
        if not self.era and method != "ping":
            raise ProtocolError(INVALID_REQUEST, "expected `initialize` or `server/discover` first")
        if self.era == "2026" and (claims := protocol.read_envelope(params)) != self._claims:
            self._backend.client_is(claims.info, claims.capabilities, claims.version)
            self._claims = claims
        return self._claims, row

    def _start(self, era: Era, claims: Claims) -> None:
        self._catalog = Catalog(self._backend, self._names, claims.version)
        self._backend.client_is(claims.info, claims.capabilities, claims.version)
        self.era = era
        self._claims = claims

    def _take_notification(self, notification: Notification) -> None:
        method = notification.method
        if not self.era or find(method, "notification", "client", self._claims.version) is None:
            self._report("client", "notification", method, "not in the table of methods: dropped")
        elif method == "notifications/cancelled":
            cancelled = notification.params.get("requestId")
            call = self._client.running.get(cancelled) if isinstance(cancelled, int | str) else None
            if call and cancelled is not True:  # which equals 1
                call.stop()
        elif method == "notifications/initialized":
            self._client.questions.start()
            self._subscriptions.start()
        elif method == "notifications/roots/list_changed":
            self._backend.roots_changed()

    # What comes from behind, outside of a call ------------------------------------------------------------------------

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message that belongs to no call. A client of 2026 wants none."""
        if self.era == "2025":
            self._client.log(params, self._client.level)

    def list_changed(self, kind: Changed) -> None:
        """Tell the client that one of its lists is not what it was."""
        self._subscriptions.list_changed(kind)

    def resource_updated(self, server: str, uri: str) -> None:
        """Tell the client that a resource was updated, if it subscribed to it."""
        self._subscriptions.resource_updated(server, uri)

    async def ask(self, request: Request) -> dict[str, Any]:
        """Ask the client something that belongs to no call. Raises `CannotAsk`, for a client of 2026 always."""
        if self.era != "2025":
            raise CannotAsk("the client can be asked only during a call")
        return await self._client.ask(request, self._claims)

    # Calls ------------------------------------------------------------------------------------------------------------

    async def _run(self, call: CallerLink, params: dict[str, Any]) -> None:
        call.end(await self._outcome(call, params))

    async def _outcome(self, call: CallerLink, params: dict[str, Any]) -> Callable[[Id], Message]:
        """How a request is answered. A refusal of a tool call is a result: a protocol error would end some agents."""
        try:
            result = await self._handlers[call.method](call, params)
            return partial(Response, result=result)
        except ProtocolError as error:
            return partial(_failure, error)
        except Refusal as error:
            refusal = error
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            refusal = Refusal("TOOL_NOT_AVAILABLE", "TOOL_NOT_AVAILABLE: the call was cut off", INTERNAL_ERROR)
        except Exception as error:
            failed = self._crash(call.request, error)
            refusal = Refusal("DECISION_FAILED", f"DECISION_FAILED: {failed.message}", failed.code)
        if call.method == "tools/call":
            refused = protocol.for_version(call.method, error_result(refusal.line), call.version)
            return partial(Response, result=refused)
        return partial(_failure, ProtocolError(refusal.code, refusal.line, {"reason": refusal.reason}))

    def _from_server(self, call: CallerLink, result: dict[str, Any]) -> dict[str, Any]:
        shaped, dropped = protocol.from_server(call.method, result, call.version)
        for key in dropped:
            self._report("server", "result key", f"{call.method} {key}", "not in the table of methods")
        return shaped

    async def _list(self, kind: ListKind, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        return protocol.for_version(call.method, self._catalog.page(kind, params.get("cursor")), call.version)

    async def _call_tool(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = _text(params, "name"), _object(params, "arguments")
        tool = self._catalog.tool(name)
        if tool is None:
            # Like most servers: a result, which a model can act on.
            self._report("client", "tool", name, "not shown to this client: refused as UNKNOWN_TOOL")
            await self._backend.unknown(name, arguments, self._catalog.hidden_tool(name))
            raise Refusal("UNKNOWN_TOOL", f"UNKNOWN_TOOL: there is no tool `{_shortened(name)}`")
        return self._from_server(call, await self._backend.call(tool, arguments, call))

    async def _read_resource(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        uri = _text(params, "uri")
        try:
            server = self._catalog.server_of(uri)
        except ProtocolError:
            await self._backend.unknown(call.method, {"uri": uri})
            raise
        return self._from_server(call, await self._backend.read(server, uri, call))

    async def _get_prompt(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        shown, arguments = _text(params, "name"), _object(params, "arguments")
        try:
            server, name = self._catalog.prompt(shown)
        except ProtocolError:
            await self._backend.unknown(call.method, {"name": shown})
            raise
        return self._from_server(call, await self._backend.prompt(server, name, arguments, call))

    async def _complete(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        argument, context = _object(params, "argument"), _object(params, "context")
        match params.get("ref"):
            case {"type": "ref/prompt", "name": str(shown)}:
                server, name = self._catalog.prompt(shown)
                ref = {"type": "ref/prompt", "name": name}
            case {"type": "ref/resource", "uri": str(uri)}:
                server, ref = self._catalog.server_of(uri), {"type": "ref/resource", "uri": uri}
            case _:
                raise ProtocolError(INVALID_PARAMS, "`ref` is neither a prompt nor a resource")
        return self._from_server(call, await self._backend.complete(server, ref, argument, context, call))

    async def _subscribe(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.subscribe(params.get("uri"))
        return {}

    async def _unsubscribe(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.unsubscribe(params.get("uri"))
        return {}

    async def _listen(self, call: CallerLink, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.listen(call.request.id, params.get("notifications"))
        return {}

    # Answers at once --------------------------------------------------------------------------------------------------

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return protocol.initialize_result(self._claims.version, self._offered(), self._backend.instructions())

    def _discover(self, params: dict[str, Any]) -> dict[str, Any]:
        return protocol.discover_result(self._offered(), self._backend.instructions())

    def _offered(self) -> dict[str, Any]:
        return protocol.capabilities(self._catalog.has_resources, self._catalog.has_prompts)

    def _set_level(self, params: dict[str, Any]) -> dict[str, Any]:
        if (level := params.get("level")) not in LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"`level` is none of {', '.join(LEVELS)}")
        self._client.level = str(level)
        self._backend.log_level(self._client.level)
        return {}

    # ------------------------------------------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        if not self._closed:
            self._sink(message)

    def _crash(self, message: Message, error: Exception) -> ProtocolError:
        """Report an error of the gateway itself. The client is told no more than that there was one."""
        name = message.method if isinstance(message, Request | Notification) else str(message.id)
        self._report("client", "message", name, f"the gateway failed: {type(error).__name__}: {error}")
        return ProtocolError(INTERNAL_ERROR, "the gateway failed, and has reported why")

    def _report(self, sender: Sender, kind: str, name: str, reason: str) -> None:
        event = Unforwarded(sender, kind, _shortened(name), _shortened(reason))
        seen = (sender, kind, event.name, event.reason)
        if seen not in self._reported and len(self._reported) < MOST_REPORTS:
            self._reported.add(seen)
            self._backend.reported(event)


def _call_later(seconds: float, action: Callable[[], object]) -> Cancellable:
    return asyncio.get_running_loop().call_later(seconds, action)


def _failure(error: ProtocolError, request_id: Id) -> Failure:
    return Failure(request_id, error.code, error.message, error.data)


def _text(params: dict[str, Any], key: str) -> str:
    if not isinstance(value := params.get(key), str):
        raise ProtocolError(INVALID_PARAMS, f"`{key}` is not a text")
    return value


def _object(params: dict[str, Any], key: str) -> dict[str, Any]:
    value = params.get(key)
    if value is not None and not isinstance(value, dict):
        raise ProtocolError(INVALID_PARAMS, f"`{key}` is not an object")
    return value or {}


def _shortened(text: str) -> str:
    return visible(text[:_LONGEST_NAME])


_MOST_WAITING = 8 << 20  # bytes that wait for the client; progress and log messages are left out beyond this


async def serve_stdio(backend: GovernedBackend, names: Naming, report: Callable[[str], None]) -> None:
    """Serve until the client closes its end."""
    link = StdioLink()
    outbox: asyncio.Queue[Message | None] = asyncio.Queue()
    waiting = 0

    def send(message: Message) -> None:
        if waiting or not outbox.empty() or not link.send_now(write_message(message)):
            outbox.put_nowait(message)

    async def write() -> None:
        nonlocal waiting
        while (message := await outbox.get()) is not None:
            line = write_message(message)
            waiting += len(line)
            await link.send(line)
            waiting -= len(line)

    connection = Connection(
        backend, send, names=names, crowded=lambda: waiting > _MOST_WAITING or outbox.qsize() > 10_000
    )
    backend.front = connection
    writer = asyncio.create_task(write())
    try:
        while line := await link.receive():
            try:
                message = read_message(line)
            except BadMessage as bad:
                report(f"client: {bad}")
                if bad.id is None:
                    continue
                if not bad.is_answer:
                    send(Failure(bad.id, bad.code, str(bad)))
                    continue
                message = Failure(bad.id, bad.code, "a malformed answer")  # so that nothing waits for it
            await connection.receive(message)
            if writer.done():
                break
    except (Gone, Flood) as ended:
        report(f"client: {ended}")
    finally:
        await connection.close()
        outbox.put_nowait(None)
        with suppress(TimeoutError, Gone):
            await asyncio.wait_for(writer, 2.0)
        await link.close()
