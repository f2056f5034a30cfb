"""Carries lines to a remote MCP server over streamable HTTP, in both eras. Each message that is sent is a POST.

Until 2025-11-25 a server has sessions, may send messages of its own over a GET stream, and may continue the answer to a
call on another connection. Since 2026-07-28 each POST is independent, and closing it cancels its request. A request
that fails costs only itself; only the end of a session ends the link.

Connects to a server that has a `url`: policy first, then secrets, then the link. The gateway and the lock use it.

The address of a remote server: sends HTTP requests there, and nowhere else.

The rules are those of `ctx.fetch`: the name is resolved once for each request, every address must be allowed, and the
connection goes to a checked one. A redirect is followed only within the origin, and if the method stays.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from licet.assemble.server_process import ServerError, header_secrets, server_grant
from licet.core.algebra.rules import Destination, InvalidUse, destination, redirected
from licet.core.algebra.scope import visible
from licet.core.decision.foreseen import remote_misfits
from licet.core.decision.reach import Reach
from licet.core.decision.request import Ground
from licet.core.policy.servers import Server
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import FetchLimits, first_reply
from licet.guard.handles.messages import Headers, Outgoing, Pairs
from licet.guard.meter import Exceeded
from licet.guard.ports import Http, Ports, Reply, Unconnected
from licet.guard.redaction.redact import Redactor, in_turn
from licet.mcp.http_messages import (
    BadHeaders,
    Events,
    content_type,
    event_data,
    modern_headers,
    modern_version,
    new_meter,
    whole_body,
)
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Failure,
    Id,
    Notification,
    answered_id,
    write_message,
)
from licet.mcp.limits import (
    CLOSE_SECONDS,
    DRAIN_BYTES,
    DRAIN_SECONDS,
    END_BYTES,
    LASTING_SECONDS,
    LONGEST_TEXT,
    MOST_CALLS,
    MOST_ERROR_BYTES,
    MOST_LINE_BYTES,
    MOST_NOTES,
    MOST_RESUMED,
    NOTE_SECONDS,
    QUIET_SECONDS,
    SILENT_SECONDS,
    STREAM_PAUSES,
)
from licet.mcp.link import Gone
from licet.mcp.protocol import SUBSCRIPTION_KEY

_LIMITS = FetchLimits()
_REDIRECTS = (301, 302, 303, 307, 308)
_KEEP_METHOD = (307, 308)


class Endpoint:
    """Where a remote server is, and which headers with secrets it gets.

    The POST that carries a call is no effect of the tool: policy is asked whether the host may be reached at all, which
    is `network:…:get@HOST`.
    """

    def __init__(
        self,
        url: str,
        grant: Grant,
        http: Http,
        *,
        headers: Pairs = (),
        redactor: Redactor | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._there = destination("GET", url)
        self._grant, self._http = grant, http
        self._headers, self._report = headers, report
        self.redactor = redactor or Redactor()
        self._told: set[str] = set()

    async def open(self, stack: AsyncExitStack, method: str, headers: Pairs, body: bytes, seconds: float) -> Reply:
        """Send a request, and return the head of the answer. `seconds` is for each wait. Raises `Gone`."""
        there = Destination(self._there.use, method, self._there.url)
        message = Outgoing((*headers, *self._headers), body)
        for _ in range(_LIMITS.redirects + 1):
            async with AsyncExitStack() as attempt:
                try:
                    self._grant.require(there.use)
                    reply = await first_reply(attempt, self._grant, self._http, there, message, seconds, _LIMITS)
                except Refused as refusal:
                    self.tell(refusal.explain())
                    raise Gone(self.redactor.text(str(refusal))) from None
                known = Headers(reply.headers)
                if reply.status not in _REDIRECTS or "location" not in known:
                    stack.push_async_exit(attempt.pop_all())
                    return reply
            there = self._followed(there, reply.status, known.all("location")[0])
        raise Gone(f"it redirects more than {_LIMITS.redirects} times")

    def _followed(self, there: Destination, status: int, location: str) -> Destination:
        """The target of a redirect within the origin. Anything else would send the secrets elsewhere."""
        try:
            target = redirected(there.method, there.url, location.encode("latin-1", "replace").decode(errors="replace"))
        except InvalidUse:
            raise Gone("it redirects to an address that is none") from None
        if target.origin != there.origin:
            self.tell(f"it redirects to {target.url}: if that is the server, write it as its `url`")
            raise Gone("it redirects to another origin, which is not followed")
        if there.method != "GET" and status not in _KEEP_METHOD:
            raise Gone(f"it redirects with status {status}, which does not keep the method")
        return Destination(there.use, there.method, target.url)

    def tell(self, text: str) -> None:
        """Report something to the operator, once."""
        one_line = " ".join(map(str.strip, self.redactor.text(text).split("\n")))  # a refusal has several
        clean = visible(one_line)[:2_000]
        if clean not in self._told and len(self._told) < 100:
            self._told.add(clean)
            self._report(clean)


_JSON, _EVENTS = "application/json", "text/event-stream"
_ACCEPT = (("accept", f"{_JSON}, {_EVENTS}"), ("content-type", _JSON))
_SESSION = re.compile(r"[\x21-\x7e]{1,1024}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CHANGED = "notifications/tools/list_changed"


class _Head(Struct, frozen=True):
    """What decides how a message is sent, or whether it is the answer to a request."""

    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET


class _Sent(_Head, frozen=True):
    params: dict[str, Any] = {}


class _Version(Struct, frozen=True):
    protocolVersion: str = ""  # noqa: N815 - as it is on the wire


class _Opened(Struct, frozen=True):
    result: _Version = _Version()


class _Error(Struct, frozen=True):
    error: dict[str, Any]


_head = msgspec.json.Decoder(_Head).decode
_sent = msgspec.json.Decoder(_Sent).decode
_opened = msgspec.json.Decoder(_Opened).decode
_error = msgspec.json.Decoder(_Error).decode


class HttpLink:
    """Lines to and from a remote server. `schema_of` has the locked argument schema of each tool by its name.

    Secrets in the headers are redacted from everything that the server sends.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, schema_of: Callable[[str], Mapping[str, Any]] = lambda _: {}
    ) -> None:
        self._name, self._endpoint, self._schema_of = name, endpoint, schema_of
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue(16)
        self._meter = new_meter()
        self.longest: Callable[[], int] = lambda: MOST_LINE_BYTES
        self._calls, self._notes = asyncio.Semaphore(MOST_CALLS), asyncio.Semaphore(MOST_NOTES)
        self._sending: set[asyncio.Task[None]] = set()
        self._hearing: asyncio.Task[None] | None = None
        self._session = self._version = ""  # the session's id and the agreed version, of servers up to 2025-11-25
        self._is_modern = False  # the last request was of 2026-07-28
        self._ended = ""  # why no more is sent or received

    # The link ---------------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """One message; no bytes when the session has ended."""
        if self._ended and self._inbox.empty():
            return b""
        message = await self._inbox.get()
        self._meter.give_memory(len(message))
        return message

    async def send(self, line: bytes) -> None:
        """Send a message, and receive all that the server answers it with. Raises `Gone`, which is for it alone."""
        if self._ended:
            raise Gone(self._ended)
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._deliver(line.rstrip(b"\n"), taken))
        self._sending.add(task)
        task.add_done_callback(lambda ended: self._delivered(ended, taken))
        try:
            await taken
        except asyncio.CancelledError:
            task.cancel()  # since 2026-07-28 this tells the server, too
            raise

    def _delivered(self, task: asyncio.Task[None], taken: asyncio.Future[None]) -> None:
        self._sending.discard(task)
        wrong = Gone(self._ended) if task.cancelled() else task.exception()
        if taken.done():
            return
        if wrong is None:
            taken.set_result(None)
        else:
            taken.set_exception(wrong)

    async def close(self) -> None:
        """End every stream, and the session."""
        self._end("it was closed")
        tasks = [*self._sending, *([self._hearing] if self._hearing is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        headers, self._session = self._headers(), ""
        if any(name == "Mcp-Session-Id" for name, _ in headers):
            with suppress(Gone, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS), AsyncExitStack() as stack:
                    await self._endpoint.open(stack, "DELETE", headers, b"", CLOSE_SECONDS)

    def _end(self, why: str) -> None:
        if self._ended:
            return
        self._ended = why
        while not self._inbox.empty():
            self._meter.give_memory(len(self._inbox.get_nowait()))
        self._inbox.put_nowait(b"")

    def _lost(self) -> Gone:
        """End the link: the server does not know the session any more, and a new one needs a new link."""
        self._endpoint.tell("its session has ended; a new one is opened")
        self._end("its session has ended")
        return Gone("its session has ended")

    # Sending ----------------------------------------------------------------------------------------------------------

    async def _deliver(self, line: bytes, taken: asyncio.Future[None]) -> None:
        message = _sent(line)
        if isinstance(message.method, str) and isinstance(message.id, int | str):
            async with self._calls:
                await self._ask(message.id, message.method, message.params, line, taken)
        elif not self._is_modern:  # since 2026-07-28 clients send neither notifications nor answers
            async with self._notes:
                await self._tell(message, line)

    async def _tell(self, message: _Sent, line: bytes) -> None:
        """Send what is not answered."""
        try:
            async with asyncio.timeout(NOTE_SECONDS), AsyncExitStack() as stack:
                reply = await self._endpoint.open(stack, "POST", self._headers(), line, NOTE_SECONDS)
                if reply.status == 404 and self._session:
                    raise self._lost()
                if reply.status >= 400:
                    self._endpoint.tell(f"it refused a message with status {reply.status}")
                await _drain(reply)
        except TimeoutError:
            raise Gone(f"it did not take a message within {NOTE_SECONDS:g} s") from None
        if message.method == "notifications/initialized" and self._session and self._hearing is None:
            self._hearing = asyncio.create_task(self._hear())

    async def _ask(
        self, number: Id, method: str, params: dict[str, Any], line: bytes, taken: asyncio.Future[None]
    ) -> None:
        """Send a request, and pass on all messages until its answer."""
        version = modern_version(params)
        self._is_modern = bool(version)
        try:
            schema = self._schema_of(str(params.get("name"))) if method == "tools/call" else {}
            headers = (*_ACCEPT, *modern_headers(method, params, schema)) if version else self._headers()
        except BadHeaders as bad:
            await self._fail(number, INVALID_REQUEST, str(bad))
            return
        if method == "subscriptions/listen":
            await self._listen(number, headers, line)
            return
        events = self._events()
        async with AsyncExitStack() as stack:
            reply = await self._endpoint.open(stack, "POST", headers, line, SILENT_SECONDS)
            if await self._take(reply, number, events, is_first=method == "initialize"):
                if not taken.done():
                    taken.set_result(None)
                await _drain(reply)
                return
        if version or not events.last_id:
            raise Gone("it ended its answer too early")
        await self._resume(number, events)

    def _headers(self) -> Pairs:
        """The headers of a message until 2025-11-25."""
        session = (("Mcp-Session-Id", self._session),) if self._session else ()
        return (*_ACCEPT, *session, *((("MCP-Protocol-Version", self._version),) if self._version else ()))

    async def _resume(self, number: Id, events: Events) -> None:
        """Continue an answer that the server has broken off: until 2025-11-25 it may let its clients come back."""
        tries, last = 0, events.last_id
        while tries < MOST_RESUMED:
            await asyncio.sleep(_pause(events.retry))
            async with AsyncExitStack() as stack:
                headers = (*self._headers(), ("Last-Event-ID", events.last_id))
                reply = await self._endpoint.open(stack, "GET", headers, b"", SILENT_SECONDS)
                with suppress(Gone):  # the connection broke: come back again
                    if await self._take(reply, number, events):
                        return
            tries, last = (tries + 1 if last == events.last_id else 0), events.last_id
        raise Gone("it ended its answer too early")

    # Answers ----------------------------------------------------------------------------------------------------------

    async def _take(self, reply: Reply, number: Id, events: Events, *, is_first: bool = False) -> bool:
        """Pass on the messages of an answer; whether the one that answers the request was among them."""
        headers = Headers(reply.headers)
        if reply.status != 200:
            await self._take_error(reply, number)
            return True
        if is_first:
            self._begin(headers)
        match content_type(headers):
            case "application/json":
                body = await whole_body(reply, self._meter, self.longest())
                if not await self._pass_on(body, number, is_first=is_first):
                    raise Gone("its answer is not one to the request")
                return True
            case "text/event-stream":
                async with aclosing(event_data(reply, events, self._meter)) as messages:
                    async for message in messages:
                        if await self._pass_on(message, number, is_first=is_first):
                            return True
                return False
        await self._fail(number, INTERNAL_ERROR, "it answered with neither JSON nor a stream of events")
        return True

    async def _take_error(self, reply: Reply, number: Id) -> None:
        """Answer a request in place of a server that answered with an HTTP status."""
        status = reply.status
        if status == 404 and self._session and not self._is_modern:
            raise self._lost()
        if status == 401:
            token = f"a token can be set as a secret under `servers.{self._name}.headers`"
            text = f"the server wants a login (HTTP status 401): OAuth comes in a later version of licet, but {token}"
            self._endpoint.tell(text)
            await self._fail(number, INVALID_REQUEST, text)
            return
        if status >= 400 and content_type(Headers(reply.headers)) == _JSON:
            with suppress(msgspec.MsgspecError, RecursionError):
                error = _error(await self._clean(await whole_body(reply, self._meter, MOST_ERROR_BYTES))).error
                code, message = error.get("code"), error.get("message")
                if type(code) is int and isinstance(message, str):
                    await self._fail(number, code, message, error.get("data", UNSET))
                    return
        code = METHOD_NOT_FOUND if status == 404 else INVALID_REQUEST if status < 400 else INTERNAL_ERROR
        await self._fail(number, code, f"it answered with HTTP status {status}")

    def _begin(self, headers: Headers) -> None:
        session = headers.get("mcp-session-id", "")
        if session and not _SESSION.fullmatch(session):
            raise Gone("the id of its session has other characters than visible ASCII")
        self._session = session

    async def _pass_on(self, message: bytes, number: Id | None, *, is_first: bool = False) -> bool:
        """Pass on a message; whether it answers the request."""
        clean = await self._clean(message)
        try:
            head = _head(clean)
        except (msgspec.MsgspecError, RecursionError):  # the receiver reports what is wrong with it
            head = _Head(id=answered_id(clean[:END_BYTES], clean[-END_BYTES:]))
        is_answer = number is not None and head.method is UNSET and str(head.id) == str(number)
        if is_answer and is_first:
            with suppress(msgspec.MsgspecError):
                version = _opened(clean).result.protocolVersion
                self._version = version if _DATE.fullmatch(version) else ""
        await self._put(clean)
        return is_answer

    async def _put(self, message: bytes) -> None:
        """Let a message be received. It counts until it is: a server could fill the memory with those that wait."""
        try:
            self._meter.take_memory(len(message))
        except Exceeded:
            raise Gone("it sent too much at once") from None
        try:
            await self._inbox.put(message)
        except BaseException:
            self._meter.give_memory(len(message))
            raise

    def _events(self) -> Events:
        return Events(lambda: self.longest())

    async def _clean(self, message: bytes) -> bytes:
        return await in_turn(self._endpoint.redactor.work(message, as_json=True))

    async def _fail(self, number: Id, code: int, text: str, data: object = UNSET) -> None:
        await self._put(write_message(Failure(number, code, text[:LONGEST_TEXT], data)).rstrip(b"\n"))

    # Streams of changes -----------------------------------------------------------------------------------------------

    async def _listen(self, number: Id, headers: Pairs, line: bytes) -> None:
        """Keep a stream of changes open, as `subscriptions/listen` asks for since 2026-07-28."""

        async def once() -> bool:
            async with AsyncExitStack() as stack:
                reply = await self._endpoint.open(stack, "POST", headers, line, QUIET_SECONDS)
                if reply.status != 200 or content_type(Headers(reply.headers)) != _EVENTS:
                    return await self._take(reply, number, self._events())
                async with aclosing(event_data(reply, self._events(), self._meter)) as messages:
                    async for message in messages:
                        if _is_result(message, number):
                            return False  # the server ends the stream: it is asked for a new one
                        if await self._pass_on(message, number):
                            return True
                return False

        missed = {"_meta": {SUBSCRIPTION_KEY: number}}
        await self._keep_open(once, missed)

    async def _hear(self) -> None:
        """Keep the GET stream open, over which servers until 2025-11-25 send messages of their own."""
        events = self._events()

        async def once() -> bool:
            async with AsyncExitStack() as stack:
                resumed = (("Last-Event-ID", events.last_id),) if events.last_id else ()
                reply = await self._endpoint.open(stack, "GET", (*self._headers(), *resumed), b"", QUIET_SECONDS)
                if reply.status == 404:
                    raise self._lost()
                if reply.status != 200 or content_type(Headers(reply.headers)) != _EVENTS:
                    return reply.status < 500  # the server has no such stream
                async with aclosing(event_data(reply, events, self._meter)) as messages:
                    async for message in messages:
                        await self._pass_on(message, None)
                return False

        await self._keep_open(once, {})

    async def _keep_open(self, once: Callable[[], Any], missed: dict[str, Any]) -> None:
        """Open a stream again and again, until it says that it is done. What changed in between may be missed."""
        clock, tries = asyncio.get_running_loop().time, 0
        while not self._ended:
            began = clock()
            with suppress(Gone):
                if await once():
                    return
            lasted = clock() - began > LASTING_SECONDS
            tries = 0 if lasted else tries + 1
            await asyncio.sleep(STREAM_PAUSES[min(tries, len(STREAM_PAUSES) - 1)])
            if lasted:
                await self._put(write_message(Notification(_CHANGED, missed)).rstrip(b"\n"))


def _is_result(message: bytes, number: Id) -> bool:
    """Whether a message is the result of a request."""
    try:
        head = _head(message)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return head.result is not UNSET and str(head.id) == str(number)


async def _drain(reply: Reply) -> None:
    """Read the rest of an answer, if it is little and comes soon: then the next request can use the connection."""
    size = 0
    with suppress(Unconnected, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for piece in reply.body:
                size += len(piece)
                if size > DRAIN_BYTES:
                    return


def _pause(retry: float | None) -> float:
    return STREAM_PAUSES[0] if retry is None else min(max(retry, 0.05), STREAM_PAUSES[-1])


@asynccontextmanager
async def remote_link(
    server: Server,
    reach: Reach,
    ports: Ports,
    *,
    report: Callable[[str], None],
    schema_of: Callable[[str], Mapping[str, Any]] = lambda _: {},
) -> AsyncIterator[HttpLink]:
    """A link to a remote server. `reach` is what `process_reach` says. Raises `ServerError`.

    `schema_of` has the locked argument schema of each tool; it is needed for calls alone.
    """
    if missing := remote_misfits(server, reach):
        raise ServerError(f"the server `{server.name}` is not connected to: {'; '.join(map(_text, missing))}")
    if ports.http is None:
        raise ServerError("remote servers need a backend for the network: use `Backends.local()`")
    headers, redactor = await header_secrets(server, reach, ports)
    endpoint = Endpoint(
        server.url, server_grant(server, reach), ports.http, headers=headers, redactor=redactor, report=report
    )
    link = HttpLink(server.name, endpoint, schema_of)
    try:
        yield link
    finally:
        await link.close()


def _text(ground: Ground) -> str:
    return f"{ground}; to allow it: {ground.fix}" if ground.fix else str(ground)
