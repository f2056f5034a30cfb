"""`ctx.fetch`: HTTP requests. Every hop of a redirect is checked anew.

For each hop, the use must be granted. The name is resolved once, and every address must be allowed. The connection goes
to one of these addresses: the name is not resolved again, because a second answer could be different.
"""

import asyncio
import json as json_text
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from licet.core.algebra.rules import Destination, InvalidUse, Use, destination, redirected
from licet.core.decision.decision import Deny, address_grounds
from licet.core.policy.layer import seconds
from licet.errors import Refused
from licet.guard.deadlines import Deadline
from licet.guard.grant import Grant
from licet.guard.handles.messages import (
    BadRequest,
    BodyTooLarge,
    Corrupt,
    Decoder,
    Headers,
    Outgoing,
    Response,
    check_may_have_body,
    checked_value,
    outgoing,
)
from licet.guard.handles.secrets_and_kv import Placeholders, redacted_refusal
from licet.guard.limits import BODY_BLOCK, DRAINED, MOST_ADDRESSES, REDACTION_GROWTH
from licet.guard.meter import Exceeded
from licet.guard.ports import LOOKED_UP_FOR, Exchange, Http, Reply, Unconnected, Unreached, Unresolved
from licet.guard.redaction.redact import Redactor, in_turn


async def addresses_of(grant: Grant, http: Http, use: Use) -> tuple[str, ...]:
    """Resolve the host of a use: all addresses, whether they are allowed or not. Raises `Unresolved`."""
    before = LOOKED_UP_FOR.set(f"{grant.request.session}@{grant.reach.manifest.agent}")
    try:
        addresses = tuple(map(str, await http.resolve(use.target, use.port or 0)))
    except Unresolved:
        raise
    except Exception as error:
        raise Unresolved(f"the backend failed: {type(error).__name__}") from error
    finally:
        LOOKED_UP_FOR.reset(before)
    if not addresses:
        raise Unresolved("the name has no address")
    return addresses


async def checked_addresses(grant: Grant, http: Http, use: Use) -> tuple[str, ...]:
    """Resolve the host of a use, and return the addresses to try; `Refused` if any address is not allowed."""
    try:
        addresses = await addresses_of(grant, http, use)
    except Unresolved as unknown:
        grant.refuse("RESOLVE_FAILED", str(unknown), use)
    grounds = address_grounds(use, addresses, grant.reach)
    if grounds:
        grant.deny(Deny(grant.request, grounds, use))
    return addresses[:MOST_ADDRESSES]


_Sent = TypeVar("_Sent")


async def at_first_address(
    grant: Grant, use: Use, addresses: Iterable[str], send: Callable[[str], Awaitable[_Sent]]
) -> _Sent:
    """What `send` returns for the first address that can be connected to; `Refused` if none can, or if that breaks."""
    text = "no connection"
    for address in addresses:
        try:
            return await send(address)
        except Unreached as failed:
            text = str(failed)
        except Unconnected as broken:
            grant.refuse("CONNECT_FAILED", str(broken), use)
    grant.refuse("CONNECT_FAILED", text, use)


class FetchLimits(Struct, frozen=True):
    """The limits of one request. A caller may set `seconds`, and `body_bytes` up to `most_body_bytes`."""

    seconds: float = 30.0  # in total, with redirects and body
    body_bytes: int = 10 * 1024 * 1024  # after decoding
    header_bytes: int = 64 * 1024
    header_lines: int = 256
    redirects: int = 5
    most_body_bytes: int = 256 * 1024 * 1024


async def first_reply(
    stack: AsyncExitStack,
    grant: Grant,
    http: Http,
    there: Destination,
    message: Outgoing,
    seconds: float,
    limits: FetchLimits,
) -> Reply:
    """Send a request to the first checked address that can be connected to, and return the head of the answer.

    `seconds` is for each wait. The use in `there` decides which addresses are allowed; whether it is granted was
    checked before. The connection is released with `stack`.
    """
    use = there.use

    async def send(address: str) -> Reply:
        exchange = Exchange(
            there.method, there.url, use.target, use.port or 0, address, message.lines, message.body, seconds
        )
        try:
            return await stack.enter_async_context(http.send(exchange))
        except (Unreached, Unconnected):
            raise
        except Exception as error:  # its text may contain anything, so only the type is shown
            grant.refuse("CONNECT_FAILED", f"the backend failed: {type(error).__name__}", use)

    reply = await at_first_address(grant, use, await checked_addresses(grant, http, use), send)
    _measure(grant, reply, use, limits)
    return reply


def _measure(grant: Grant, reply: Reply, use: Use, limits: FetchLimits) -> None:
    """Refuse an answer with too many or too long headers."""
    if len(reply.headers) > limits.header_lines:
        grant.refuse("LIMIT_SIZE", f"the answer has more than {limits.header_lines} headers", use)
    if sum(len(name) + len(value) for name, value in reply.headers) > limits.header_bytes:
        grant.refuse("LIMIT_SIZE", f"the answer has more than {limits.header_bytes} bytes of headers", use)


_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Streamed:
    """An answer whose body is still being received: iterate over it, or `read` all of it."""

    __slots__ = ("_grant", "_pieces", "_use", "closed", "headers", "status", "url")

    def __init__(
        self, status: int, url: str, headers: Headers, pieces: AsyncIterator[bytes], grant: Grant, use: Use
    ) -> None:
        self._grant, self._use = grant, use
        self.status = status
        self.url = url
        self.headers = headers
        self.closed = False
        self._pieces = pieces

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self.closed:  # otherwise the body would seem empty
            raise RuntimeError("the answer is closed: read it inside `async with`")
        return self._pieces

    async def read(self) -> bytes:
        """The rest of the body. It counts as memory of the call while it is read."""
        return await _gathered(self, self._grant, self._use)


async def _gathered(pieces: AsyncIterable[bytes], grant: Grant, use: Use) -> bytes:
    """Join all pieces, and count them on the meter of the call meanwhile."""
    blocks: list[bytes] = []
    last = bytearray()  # joins small pieces, because each object takes more memory than its bytes
    with grant.meter.share() as share:
        try:
            async for piece in pieces:
                share.take(len(piece))
                if len(piece) >= BODY_BLOCK and not last:
                    blocks.append(piece)
                    continue
                last += piece
                if len(last) >= BODY_BLOCK:
                    blocks.append(bytes(last))
                    last.clear()
            if not blocks or (len(blocks) == 1 and not last):
                return blocks[0] if blocks else bytes(last)
            share.take(sum(map(len, blocks)))  # joining needs all of it twice for a moment
        except Exceeded as over:
            grant.exceeded(over, use)
        return b"".join((*blocks, last))


class ScopedFetch:
    """`ctx.fetch` of one call. It keeps no cookies, and reads no settings from the environment."""

    __slots__ = ("_grant", "_http", "_limits", "_placeholders")

    def __init__(
        self,
        grant: Grant,
        http: Http | None,
        placeholders: Placeholders | None = None,
        limits: FetchLimits = FetchLimits(),  # noqa: B008 (frozen)
    ) -> None:
        self._grant = grant
        self._http = http
        self._placeholders = placeholders
        self._limits = limits

    async def __call__(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: object = None,
        json: object = None,
        body: bytes | str | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> Response:
        """Send a request, follow its redirects, and read the complete answer; or raise `Refused`.

        With `redirects=False` a redirect is an answer like any other: its status, and `location` in its headers.
        """
        message, bounds = (headers, json, body), (timeout, max_bytes, redirects)
        async with self._answered(url, method, message, bounds, complete=True) as answer:
            content = await answer.read()
        return Response(answer.status, answer.url, answer.headers, content)

    @asynccontextmanager
    async def stream(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: object = None,
        json: object = None,
        body: bytes | str | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> AsyncGenerator[Streamed]:
        """Send a request, follow its redirects, and read the answer while it is received."""
        message, bounds = (headers, json, body), (timeout, max_bytes, redirects)
        async with self._answered(url, method, message, bounds, complete=False) as answer:
            yield answer

    @asynccontextmanager
    async def _answered(
        self, url: str, method: str, parts: tuple[Any, Any, Any], bounds: tuple[Any, Any, Any], *, complete: bool
    ) -> AsyncGenerator[Streamed]:
        """The answer without the secrets that this call placed in requests: a server may echo them."""
        placed = Redactor() if self._placeholders is None else self._placeholders.placed
        try:
            async with self._received(url, method, parts, bounds) as (reply, where, known, use, most):
                shown = _clean_headers(placed, known) if placed else known
                async with (
                    aclosing(self._pieces(reply, known, use, most)) as pieces,
                    aclosing(self._redacted(pieces, placed, known, use, most, complete=complete)) as clean,
                ):
                    answer = Streamed(reply.status, placed.text(where), shown, clean, self._grant, use)
                    yield answer
                    answer.closed = True
        except Refused as refusal:  # it may name the target of a redirect
            if not placed or (clean_refusal := redacted_refusal(placed, refusal)) is refusal:
                raise
            raise clean_refusal from None

    @asynccontextmanager
    async def _received(
        self, url: str, method: str, parts: tuple[Any, Any, Any], bounds: tuple[Any, Any, Any]
    ) -> AsyncGenerator[tuple[Reply, str, Headers, Use, int]]:
        """Send the request and follow redirects: the raw answer, its URL, headers, use and limit of the body."""
        try:
            there = destination(method, url)
        except InvalidUse as wrong:
            self._grant.invalid("HOST_NOT_ALLOWED", wrong)
        use = there.use
        self._grant.require(use)
        http = self._grant.backend(self._http, use)
        try:
            message = outgoing(*parts, self._grant.meter)
            if message.body:
                check_may_have_body(there.method)
            waited, most, follow = self._bounds(*bounds)
        except BadRequest as wrong:
            self._grant.refuse("INPUT_INVALID", str(wrong), use)
        except Exceeded as over:
            self._grant.exceeded(over, use)
        clock = Deadline(waited)
        try:
            with clock:
                for hop in range(self._limits.redirects + 1):
                    use = there.use
                    await self._permit(use, clock)
                    if not hop and self._placeholders is not None:
                        message = await self._revealed(message, use)
                    async with AsyncExitStack() as stack:
                        reply = await self._open(stack, http, there, message, waited)
                        known = Headers(reply.headers)
                        if not follow or reply.status not in _REDIRECTS or "location" not in known:
                            yield reply, there.url, known, use, most
                            return
                        await self._drain(reply)
                    there, message = self._follow(there, message, reply.status, known.all("location")[0])
                self._grant.refuse("LIMIT_REDIRECTS", f"more than {self._limits.redirects} redirects", use)
        except TimeoutError:
            if not clock.expired:
                raise
            self._grant.refuse("LIMIT_TIME", f"no complete answer within {waited:g} seconds", use)

    def _bounds(self, timeout: object, max_bytes: object, redirects: object) -> tuple[float, int, bool]:
        limits = self._limits
        try:
            waited = limits.seconds if timeout is None else seconds(timeout, "timeout")
        except ValueError as wrong:
            raise BadRequest(str(wrong)) from None
        most = limits.body_bytes if max_bytes is None else max_bytes
        if not isinstance(most, int) or most < 0:
            raise BadRequest("expected `max_bytes` to be a number of bytes, 0 or more")
        if not isinstance(redirects, bool):
            raise BadRequest("expected `redirects` to be True or False")
        return waited, min(int(most), limits.most_body_bytes), redirects

    async def _permit(self, use: Use, clock: Deadline) -> None:
        if use.effect != "delete":
            self._grant.check(use)
            return
        clock.pause()  # a person may be asked
        await self._grant.permit(use)
        clock.resume()

    async def _revealed(self, message: Outgoing, use: Use) -> Outgoing:
        """Replace the placeholders of a message by secrets, after its destination was checked."""
        if self._placeholders is None or message == Outgoing():
            return message
        resolve = self._placeholders.resolve
        headers = [(name, await resolve(value)) for name, value in message.headers]
        escape = _inside_json if message.is_json else str
        body = await self._placeholders.resolve_bytes(message.body, escape) if message.body else b""
        try:
            lines = tuple((name, checked_value(name, value)) for name, value in headers)
        except BadRequest as wrong:
            self._grant.refuse("INPUT_INVALID", str(wrong), use)
        return Outgoing(lines, body, message.is_json)

    async def _open(
        self, stack: AsyncExitStack, http: Http, there: Destination, message: Outgoing, seconds: float
    ) -> Reply:
        """Send a request to the first address that can be connected to, and return the head of the answer."""
        try:
            await stack.enter_async_context(self._grant.meter.files(1))
        except Exceeded as over:
            self._grant.exceeded(over, there.use)
        # The deadline of the request ends before the one of the connection.
        return await first_reply(stack, self._grant, http, there, message, seconds + 1, self._limits)

    def _follow(
        self, there: Destination, message: Outgoing, status: int, location: str
    ) -> tuple[Destination, Outgoing]:
        """The target of a redirect, and the part of the message that is sent there."""
        method = there.method
        if (status == 303 and method not in ("GET", "HEAD")) or (status in (301, 302) and method == "POST"):
            method, message = "GET", message.without_body()
        try:
            # HTTP headers are Latin-1, but servers write other letters in UTF-8.
            following = redirected(method, there.url, location.encode("latin-1", "replace").decode("utf-8", "replace"))
        except InvalidUse as wrong:
            self._grant.invalid("HOST_NOT_ALLOWED", wrong)
        if following.origin == there.origin:
            return following, message
        if message.body:
            text = f"a redirect from {there.use.target} would send the body to another origin"
            self._grant.refuse("LIMIT_REDIRECTS", text, following.use)
        # Any header may be a credential, which the caller meant for the first origin only.
        return following, Outgoing()

    async def _drain(self, reply: Reply) -> None:
        read = 0
        try:
            async for piece in reply.body:
                read += len(piece)
                if read > DRAINED:
                    return
        except Unconnected:
            return  # the redirect itself has arrived

    async def _redacted(
        self, pieces: AsyncIterator[bytes], placed: Redactor, headers: Headers, use: Use, most: int, *, complete: bool
    ) -> AsyncGenerator[bytes]:
        """The content without the placed secrets. A complete answer that is JSON stays valid JSON."""
        if complete:
            content = await _gathered(pieces, self._grant, use)
            yield await in_turn(placed.work(content, as_json=_may_be_json(headers, content)))
            return
        stream, size = placed.stream(), 0
        async for piece in pieces:
            clean = await in_turn(stream.work(piece))
            size += len(clean)
            if size > 2 * most + REDACTION_GROWTH:  # a label may be longer than its secret
                self._too_large(use, most)
            if clean:
                yield clean
        if clean := stream.finish():
            yield clean

    def _too_large(self, use: Use, most: int) -> NoReturn:
        self._grant.refuse("LIMIT_SIZE", f"the body has more than {most} bytes", use)

    async def _pieces(self, reply: Reply, headers: Headers, use: Use, most: int) -> AsyncGenerator[bytes]:
        grant, decoder = self._grant, Decoder(headers.get("content-encoding", ""), most)
        try:
            async for raw in reply.body:
                if grant.over:
                    grant.refuse_over(use)
                for number, piece in enumerate(decoder.feed(raw)):
                    if number:  # a few bytes may decompress to many: let other tasks run
                        await asyncio.sleep(0)
                    if piece:
                        yield piece
            decoder.finish()
        except BodyTooLarge:
            self._too_large(use, most)
        except (Corrupt, Unconnected) as broken:
            grant.refuse("CONNECT_FAILED", str(broken), use)


def _clean_headers(placed: Redactor, headers: Headers) -> Headers:
    text = "\n".join(f"{name}: {value}" for name, value in headers.pairs)
    if placed.text(text) == text:
        return headers
    return Headers((placed.text(name), placed.text(value)) for name, value in headers.pairs)


def _may_be_json(headers: Headers, content: bytes) -> bool:
    return "json" in headers.get("content-type", "").lower() or content[:64].lstrip()[:1] in (b"{", b"[")


def _inside_json(value: str) -> str:
    return json_text.dumps(value, ensure_ascii=False)[1:-1]
