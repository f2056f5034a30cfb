"""`Connection`: what one client sends, and what it is answered, whatever carries the messages.

It takes messages (`receive`). It decides nothing: it finds the row of each message in the table of methods, asks the
governed servers, and shapes the answer for the client's protocol version.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from licet.gateway.catalog import Catalog, ListKind, error_result
from licet.gateway.client import FLAGS, Client, ClientCall, Refusal, Resource, Stream, shortened
from licet.gateway.governed_servers import GovernedServers
from licet.gateway.limits import LAST_WORDS_SECONDS, MOST_RUNNING, MOST_SUBSCRIPTIONS, UNREAD_BYTES, UNREAD_MESSAGES
from licet.guard.repeated_calls import ID_FORM, is_call_id
from licet.mcp import protocol
from licet.mcp.content import passed
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
    ProtocolError,
    Request,
    Response,
    asked_id,
    read_message,
    write_message,
)
from licet.mcp.limits import END_BYTES
from licet.mcp.link import Flood, Gone, StdioLink
from licet.mcp.protocol import (
    ASKABLE,
    HANDSHAKE_VERSIONS,
    LEVELS,
    Claims,
    Era,
    Method,
    find,
    kept,
)
from licet.mcp.shown_names import Naming

Handler = Callable[[ClientCall, dict[str, Any]], Awaitable[dict[str, Any]]]


class Connection:
    """One client. Raises `Clash` if two tools or two prompts would be shown under one name."""

    def __init__(self, servers: GovernedServers, send: Callable[[Message], None], *, names: Naming) -> None:
        self._servers, self._client = servers, servers.client
        self._client.send = send
        self._names = names
        servers.renamed = self._use_names
        self._closed = False
        self._catalog = Catalog(servers.lists, names, self._client.claims.version)
        self._subscriptions = Subscriptions(
            self._client, lambda uri: self._catalog.server_of(uri), servers.subscribe, servers.unsubscribe
        )
        self._calls: dict[asyncio.Task[None], ClientCall] = {}  # also those that wait to be repeated
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
                    if not self._client.era:  # the first answer already has the policy that the files have now
                        await self._servers.renew()
                    self._take_request(message)
                case Notification():
                    self._take_notification(message)
                case Response() | Failure():
                    if not self._client.answered(message):
                        self._client.report("client", "answer", str(message.id), "nothing waits for it")
        except Exception as error:
            known = error if isinstance(error, ProtocolError) else self._crash(message, error)
            if isinstance(message, Request):
                self._client.send(_failure(known, message.id))
        await asyncio.sleep(0)  # a burst of messages lets calls begin in between

    async def close(self) -> None:
        """End every call and the backend. Nothing is sent any more."""
        self._closed = True
        self._client.send = lambda message: None
        for call in self._calls.values():
            call.stop()
        self._client.waiting.clear()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._servers.close()

    def _take_request(self, request: Request) -> None:
        if request.id in self._client.running:
            raise ProtocolError(INVALID_REQUEST, "a request with this `id` still runs")
        claims, row = self._enter(request)
        wishes = protocol.read_wishes(request.params, self._client.era)
        params, dropped = kept(request.params, row.params | {"_meta"})
        params.pop("_meta", None)
        for key in dropped:
            self._client.report("client", "parameter", f"{row.name} {key}", "not in the table of methods")
        for key in wishes.unknown:
            self._client.report("client", "_meta", key, "not in the table of methods")
        self._take_words(wishes)
        if row.name in self._at_once:
            result = self._at_once[row.name](params)
            self._client.send(Response(request.id, protocol.for_version(row.name, result, self._client.claims.version)))
            return
        if sum(not call.waits for call in self._calls.values()) >= MOST_RUNNING:
            raise ProtocolError(INTERNAL_ERROR, f"too many requests at once: at most {MOST_RUNNING}")
        again = params.keys() & {"requestState", "inputResponses"} if row.name in ASKABLE else ()
        if self._client.era == "2026" and any(params[key] is not None for key in again):
            self._client.waiting.take(request).repeated(request, claims, wishes)
            return
        call_id = "" if wishes.call_id is None else _call_id(row.name, wishes.call_id)
        call = ClientCall(request, claims, wishes, self._client, call_id)
        call.task = asyncio.create_task(self._run(call, params))
        self._calls[call.task] = call
        call.task.add_done_callback(self._calls.pop)

    def _take_words(self, wishes: protocol.Wishes) -> None:
        """Take what the client says of its conversation, before the request itself: a call is judged by it."""
        if wishes.is_resumed:
            self._servers.resumed()
        if wishes.task is not None and (why := self._servers.said(wishes.task)):
            self._client.report("client", "_meta", protocol.TASK_KEY, why)

    def _enter(self, request: Request) -> tuple[Claims, Method]:
        """The client's claims and the row of a request. The first request that is accepted decides the era."""
        method, params = request.method, request.params
        enveloped = protocol.has_envelope(params) and method != "initialize"
        if self._client.era == "2025" and enveloped:
            raise ProtocolError(INVALID_REQUEST, "this connection was initialized: it takes no requests of 2026-07-28")
        if self._client.era == "2025" and method == "initialize":
            raise ProtocolError(INVALID_REQUEST, "this connection was initialized already")
        if self._client.era == "2026" and method == "initialize":
            raise protocol.unsupported(params.get("protocolVersion"))
        if not self._client.era and (enveloped or method == "server/discover"):
            self._start("2026", protocol.read_envelope(params, also=HANDSHAKE_VERSIONS))
        elif not self._client.era and method == "initialize":
            self._start("2025", protocol.read_initialize(params))
        row = find(method, "request", "client", self._client.claims.version)
        if row is None:
            self._client.report("client", "request", method, "not in the table of methods: answered -32601")
            raise ProtocolError(METHOD_NOT_FOUND, f"there is no method `{shortened(method)}`")
        if not self._client.era and method != "ping":
            raise ProtocolError(INVALID_REQUEST, "expected `initialize` or `server/discover` first")
        if self._client.era == "2026" and (claims := protocol.read_envelope(params)) != self._client.claims:
            self._servers.client_is(claims)
            self._client.claims = claims
        return self._client.claims, row

    def _use_names(self, names: Naming) -> None:
        """Show the lists of another policy. Raises `Clash`."""
        self._catalog, self._names = Catalog(self._servers.lists, names, self._client.claims.version), names

    def _start(self, era: Era, claims: Claims) -> None:
        self._servers.client_is(claims)
        self._catalog = Catalog(self._servers.lists, self._names, claims.version)
        self._client.era, self._client.claims = era, claims

    def _take_notification(self, notification: Notification) -> None:
        method = notification.method
        if not self._client.era or find(method, "notification", "client", self._client.claims.version) is None:
            self._client.report("client", "notification", method, "not in the table of methods: dropped")
        elif method == "notifications/cancelled":
            cancelled = notification.params.get("requestId")
            call = self._client.running.get(cancelled) if isinstance(cancelled, int | str) else None
            if call and cancelled is not True:  # which equals 1
                call.stop()
        elif method == "notifications/initialized":
            self._client.start()
        elif method == "notifications/roots/list_changed":
            self._servers.roots_changed()

    # Calls ------------------------------------------------------------------------------------------------------------

    async def _run(self, call: ClientCall, params: dict[str, Any]) -> None:
        call.end(await self._outcome(call, params))

    async def _outcome(self, call: ClientCall, params: dict[str, Any]) -> Callable[[Id], Message]:
        """How a request is answered. A refusal of a tool call is a result: a protocol error would end some agents."""
        try:
            await self._servers.renew()
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

    def _from_server(self, call: ClientCall, result: dict[str, Any]) -> dict[str, Any]:
        shaped, dropped = protocol.from_server(call.method, result, call.version)
        for key in dropped:
            self._client.report("server", "result key", f"{call.method} {key}", "not in the table of methods")
        return shaped

    async def _list(self, kind: ListKind, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        if kind == "tools":
            await self._servers.renew_tools()
        return protocol.for_version(call.method, self._catalog.page(kind, params.get("cursor")), call.version)

    async def _call_tool(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = _text(params, "name"), _object(params, "arguments")
        tool = self._catalog.tool(name)
        if tool is None:
            # Like most servers: a result, which a model can act on.
            self._client.report("client", "tool", name, "not shown to this client: refused as UNKNOWN_TOOL")
            await self._servers.unknown(name, arguments, self._catalog.hidden_tool(name))
            raise Refusal("UNKNOWN_TOOL", f"UNKNOWN_TOOL: there is no tool `{shortened(name)}`")
        return self._from_server(call, await self._servers.call(tool, arguments, call))

    async def _read_resource(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        uri = _text(params, "uri")
        try:
            server = self._catalog.server_of(uri)
        except ProtocolError:
            await self._servers.unknown(call.method, {"uri": uri})
            raise
        return self._from_server(call, await self._servers.read(server, uri, call))

    async def _get_prompt(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        shown, arguments = _text(params, "name"), _object(params, "arguments")
        try:
            server, name = self._catalog.prompt(shown)
        except ProtocolError:
            await self._servers.unknown(call.method, {"name": shown})
            raise
        return self._from_server(call, await self._servers.prompt(server, name, arguments, call))

    async def _complete(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        argument = passed("argument", _object(params, "argument"))
        context = passed("context", _object(params, "context"))
        match params.get("ref"):
            case {"type": "ref/prompt", "name": str(shown)}:
                server, name = self._catalog.prompt(shown)
                ref = {"type": "ref/prompt", "name": name}
            case {"type": "ref/resource", "uri": str(uri)}:
                server, ref = self._catalog.server_of(uri), {"type": "ref/resource", "uri": uri}
            case _:
                raise ProtocolError(INVALID_PARAMS, "`ref` is neither a prompt nor a resource")
        return self._from_server(call, await self._servers.complete(server, ref, argument, context, call))

    async def _subscribe(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.subscribe(params.get("uri"))
        return {}

    async def _unsubscribe(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.unsubscribe(params.get("uri"))
        return {}

    async def _listen(self, call: ClientCall, params: dict[str, Any]) -> dict[str, Any]:
        await self._subscriptions.listen(call.request.id, params.get("notifications"))
        return {}

    # Answers at once --------------------------------------------------------------------------------------------------

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return protocol.initialize_result(
            self._client.claims.version, self._offered(), self._servers.lists.instructions()
        )

    def _discover(self, params: dict[str, Any]) -> dict[str, Any]:
        return protocol.discover_result(self._offered(), self._servers.lists.instructions())

    def _offered(self) -> dict[str, Any]:
        return protocol.capabilities(self._catalog.has_resources, self._catalog.has_prompts)

    def _set_level(self, params: dict[str, Any]) -> dict[str, Any]:
        if (level := params.get("level")) not in LEVELS:
            raise ProtocolError(INVALID_PARAMS, f"`level` is none of {', '.join(LEVELS)}")
        self._client.level = str(level)
        self._servers.log_level(self._client.level)
        return {}

    # ------------------------------------------------------------------------------------------------------------------

    def _crash(self, message: Message, error: Exception) -> ProtocolError:
        """Report an error of the gateway itself. The client is told no more than that there was one."""
        name = message.method if isinstance(message, Request | Notification) else str(message.id)
        self._client.report("client", "message", name, f"the gateway failed: {type(error).__name__}: {error}")
        return ProtocolError(INTERNAL_ERROR, "the gateway failed, and has reported why")


def _failure(error: ProtocolError, request_id: Id) -> Failure:
    return Failure(request_id, error.code, error.message, error.data)


def _call_id(method: str, given: object) -> str:
    """The id of a tool call. An error where it would have no effect: the client relies on it when it calls again."""
    if method != "tools/call":
        raise ProtocolError(INVALID_PARAMS, f"`{protocol.CALL_ID_KEY}` is for `tools/call` alone")
    if not isinstance(given, str) or not is_call_id(given):
        raise ProtocolError(INVALID_PARAMS, f"expected `{protocol.CALL_ID_KEY}` to be text of {ID_FORM}")
    return given


def _text(params: dict[str, Any], key: str) -> str:
    if not isinstance(value := params.get(key), str):
        raise ProtocolError(INVALID_PARAMS, f"`{key}` is not a text")
    return value


def _object(params: dict[str, Any], key: str) -> dict[str, Any]:
    value = params.get(key)
    if value is not None and not isinstance(value, dict):
        raise ProtocolError(INVALID_PARAMS, f"`{key}` is not an object")
    return value or {}


class Subscriptions:
    """The subscriptions of one client. `watch` asks a server for updates of a resource, and `unwatch` for no more."""

    def __init__(
        self,
        client: Client,
        server_of: Callable[[str], str],
        watch: Callable[[str, str], Awaitable[None]],
        unwatch: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._client, self._server_of, self._watch, self._unwatch = client, server_of, watch, unwatch
        self._streams = client.streams

    async def subscribe(self, uri: object) -> None:
        """For a client of 2025."""
        await self._add(self._streams[0], uri)

    async def unsubscribe(self, uri: object) -> None:
        """For a client of 2025."""
        stream = self._streams[0]
        await self._remove(stream, [resource for resource in stream.resources if resource[1] == uri])

    async def listen(self, request_id: Id, wanted: object) -> None:
        """Serve a stream of a client of 2026 until it is cancelled. The acknowledgement lacks what is refused."""
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "`notifications` is not an object")
        uris = wanted.get("resourceSubscriptions") or []
        if not isinstance(uris, list):
            raise ProtocolError(INVALID_PARAMS, "`resourceSubscriptions` is not a list")
        lists = frozenset(kind for kind, flag in FLAGS.items() if wanted.get(flag) is True)
        stream = Stream(request_id, lists, held={})
        self._streams.append(stream)
        try:
            honored: dict[str, Any] = {FLAGS[kind]: True for kind in FLAGS if kind in lists}
            if accepted := [uri for uri in uris if await self._is_added(stream, uri)]:
                honored["resourceSubscriptions"] = accepted
            self._client.send(
                stream.notification("notifications/subscriptions/acknowledged", {"notifications": honored})
            )
            held, stream.held = stream.held or {}, None
            for notification in held.values():
                self._client.send(notification)
            await asyncio.Event().wait()
        finally:
            self._streams.remove(stream)
            await self._remove(stream, list(stream.resources))

    async def _is_added(self, stream: Stream, uri: object) -> bool:
        try:
            await self._add(stream, uri)
        except (Refusal, ProtocolError):
            return False
        return True

    async def _add(self, stream: Stream, uri: object) -> None:
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "`uri` is not a text")
        if sum(len(each.resources) for each in self._streams) >= MOST_SUBSCRIPTIONS:
            raise ProtocolError(INTERNAL_ERROR, f"too many: at most {MOST_SUBSCRIPTIONS} subscriptions")
        resource = self._server_of(uri), uri
        if resource in stream.resources:
            return
        stream.resources.append(resource)
        try:
            await self._watch(*resource)
        except BaseException:
            stream.resources.remove(resource)
            raise

    async def _remove(self, stream: Stream, resources: Iterable[Resource]) -> None:
        for resource in resources:
            stream.resources.remove(resource)
            if not any(resource in each.resources for each in self._streams):
                await self._unwatch(*resource)


def refused_line(line: bytes, bad: BadMessage) -> Failure | None:
    """The answer to a line of the client that is no message, or what an answer of the client counts as.

    A line that cannot be parsed, such as a call with `NaN` in its arguments, may still show its id at one of its ends.
    """
    if bad.is_answer:
        return Failure(bad.id, bad.code, "a malformed answer") if bad.id is not None else None
    request_id = bad.id
    if request_id is None and line.rstrip().endswith(b"}"):
        request_id = asked_id(line[:END_BYTES], line[-END_BYTES:])
    return Failure(request_id, bad.code, str(bad)) if request_id is not None else None


async def serve_stdio(servers: GovernedServers, names: Naming, report: Callable[[str], None]) -> None:
    """Serve one client over the standard input and output of this process, until it closes its end."""
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

    connection = Connection(servers, send, names=names)
    servers.client.crowded = lambda: waiting > UNREAD_BYTES or outbox.qsize() > UNREAD_MESSAGES
    writer = asyncio.create_task(write())
    try:
        while line := await link.receive():
            try:
                message = read_message(line)
            except BadMessage as bad:
                report(f"client: {bad}")
                refused = refused_line(line, bad)
                if refused is None:
                    continue
                if not bad.is_answer:
                    send(refused)
                    continue
                message = refused  # so that nothing waits for it
            await connection.receive(message)
            if writer.done():
                break
    except (Gone, Flood) as ended:
        report(f"client: {ended}")
    finally:
        await connection.close()
        outbox.put_nowait(None)
        with suppress(TimeoutError, Gone):
            await asyncio.wait_for(writer, LAST_WORDS_SECONDS)
        await link.close()
