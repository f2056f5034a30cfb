"""What happens to the keys of a run in one request of a program, and in its answer?

Nothing is placed or searched here: `stand_ins` does that. Here is when it is asked, what a receipt says of it, and that
the first use of a key is on disk before the key leaves.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import KeyKept, KeyPlaced
from licet.core.policy.inspection import Inspection, is_inspected, place_with_port
from licet.guard.grant import Grant
from licet.guard.handles.messages import CODINGS, BodyTooLarge, Corrupt, Decoder, Pairs, codings_of
from licet.guard.ports import Reply, Unconnected
from licet.sandbox.inspection.stand_ins import CannotCheck, KeySentAway
from licet.sandbox.limits import CHUNK, HELD_BACK_SECONDS, MOST_DECODED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from licet.sandbox.inspection.stand_ins import KeysInAnswer, KeysOfRequest, StandIns

_EXTENSIONS = "sec-websocket-extensions"
# What lets a server answer so that a key cannot be found: compressed, or a part of it in each of several answers.
_NOT_ASKED = frozenset({"accept-encoding", "range", "if-range", "request-range", "x-ms-range", _EXTENSIONS})


class KeyChecks:
    """The keys of one run, for all of its requests."""

    def __init__(self, grant: Grant, inspection: Inspection, keys: "StandIns") -> None:
        self.grant, self._keys = grant, keys
        self._secrets = {one.name: one.secret or one.name for one in inspection.stand_ins}
        # A host that has a key may show it at any of its ports.
        hosts = {place_with_port(host).rpartition(":")[0] for one in inspection.stand_ins for host in one.hosts}
        self._hosts = CapabilitySet(f"network:tcp:{host}" for host in hosts)
        self._noted: set[str] = set()
        self._noting = asyncio.Lock()

    def of_request(self, use: Use, *, secure: bool) -> "RequestKeys":
        """The keys of one request; `secure` if it goes on over verified TLS."""
        return RequestKeys(self, self._keys.request(use.target, use.port or 0, secure=secure), use)

    def answer(self) -> "KeysInAnswer | None":
        """What takes the keys out of one answer; None if the run has none.

        Of every answer: a host may show what another one got, from another run or later than this answer began.
        """
        return self._keys.answer(always=True)

    def shown(self, text: str) -> str:
        """A text about a request, for a receipt: without keys."""
        answer = self.answer()
        return text if answer is None else answer.text(text)

    def capability(self, name: str) -> str:
        """How a receipt names a key."""
        return f"secret:read:{self._secrets.get(name, name)}"

    async def note_placed(self, names: tuple[str, ...], host: str) -> None:
        """Record the first use of each key; returns once that is on disk, and refuses if it cannot be."""
        if self._noted.issuperset(names):
            return
        async with self._noting:
            for name in names:
                if name not in self._noted:
                    await self.grant.note_durably(KeyPlaced, self.capability(name), rule=host)
                    self._noted.add(name)

    def refuse(self, sent: KeySentAway, use: Use) -> None:
        """Refuse a request with a stand-in for a host that the key is not for, or without TLS."""
        key, plain = self._secrets.get(sent.name, sent.name), str(use).startswith("network:http:")
        self.grant.refuse_key(key, use, plain=plain and is_inspected(self._hosts, use.target, use.port or 0))


class RequestKeys:
    """The keys of one request and its answer. Every method may raise `Refused`."""

    def __init__(self, run: KeyChecks, keys: "KeysOfRequest", use: Use) -> None:
        self._run, self._keys, self._use = run, keys, use

    def head(self, target: str, headers: Pairs) -> tuple[str, Pairs]:
        """The target and the headers as they are sent on."""
        with self._refused():
            target, headers = self._keys.target(target), self._keys.headers(headers)
        # So that what comes back can be read while it arrives.
        headers = tuple(pair for pair in headers if pair[0].lower() not in _NOT_ASKED)
        return target, (*headers, ("Accept-Encoding", "identity"))

    @property
    def wants_body(self) -> int:
        """The bytes of the body that must be known as a whole; 0 if it may stream."""
        return self._keys.wants_body

    async def whole_body(self, body: bytes, content_type: str) -> bytes:
        """A complete body as it is sent on."""
        parts: list[bytes] = []
        with self._refused():
            for part in self._keys.whole_body(body, content_type):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts)

    async def streamed(self, body: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        """A body as it is sent on, while it arrives."""
        async for piece in body:
            with self._refused():
                for checked in self._keys.feed(piece):
                    if checked:
                        yield checked
                    await asyncio.sleep(0)
        with self._refused():
            last = self._keys.finish()
        if last:
            yield last

    async def check_body(self, body: bytes) -> None:
        """Check a complete body in which no key is placed."""
        async for _ in self.streamed(_cut(body)):
            pass

    async def note_placed(self) -> None:
        """Record the keys that were placed in the request; returns once a first use is on disk."""
        await self._run.note_placed(self._keys.placed, self._use.target)

    def note_kept(self) -> None:
        """Record the stand-ins that went on as they are."""
        for name, where in self._keys.left:
            self._run.grant.note_about(KeyKept, self._run.capability(name), rule=f"{where}, to {self._use.target}")

    def shown(self, text: str) -> str:
        """A text about the request, for a receipt: without keys."""
        return self._run.shown(text)

    def clean(self, reply: Reply, method: str) -> Reply:
        """An answer without the keys of this run. Raises `Unconnected` for one that cannot be looked into."""
        answer = self._run.answer()
        if answer is None:
            return reply
        headers = reply.headers
        if reply.status == 101 and any(name.lower() == _EXTENSIONS for name, _ in headers):  # nobody asked for one
            raise Unconnected("the server agrees to an extension in which keys cannot be looked for")
        has_body = method != "HEAD" and reply.status not in (101, 204, 304)
        codings = codings_of(headers) if has_body else ()
        decoder = _decoder(codings) if codings else None
        if decoder is not None:
            dropped = ("content-encoding", "content-length")
            headers = tuple(pair for pair in headers if pair[0].lower() not in dropped)
        headers = tuple((shown, answer.text(value)) for name, value in headers if (shown := answer.name(name)))
        return replace(reply, headers=headers, body=self._pieces(reply.body, decoder, answer))

    async def _pieces(
        self, body: AsyncIterator[bytes], decoder: Decoder | None, answer: "KeysInAnswer"
    ) -> AsyncGenerator[bytes]:
        try:
            async for raw in body:
                for piece in (raw,) if decoder is None else decoder.feed(raw):
                    for part in answer.steps(piece):
                        if part:
                            yield part
                        await asyncio.sleep(0)  # a few bytes may be slow to search: let other tasks run
                    if not piece:
                        await asyncio.sleep(0)
            if decoder is not None:
                decoder.finish()
        except (BodyTooLarge, Corrupt):
            raise Unconnected("the answer is compressed, and cannot be looked into for keys") from None
        if last := answer.finish():
            yield last

    async def carried(self, read: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
        """What a server sends after an upgrade, without the keys of this run.

        Such bytes have no end that is known, and both sides may wait for each other: what may begin a key is held back
        until more follows, or until nothing does for a while.
        """
        answer: KeysInAnswer | None = None
        reading = asyncio.ensure_future(read())
        try:
            while True:
                if not (await asyncio.wait([reading], timeout=None if answer is None else HELD_BACK_SECONDS))[0]:
                    rest, answer = b"" if answer is None else answer.finish(), None
                elif data := reading.result():
                    reading = asyncio.ensure_future(read())
                    answer = self._run.answer() if answer is None else answer
                    for part in (data,) if answer is None else answer.steps(data):
                        if part:
                            yield part
                        await asyncio.sleep(0)
                    continue
                else:
                    break
                if rest:
                    yield rest
            if answer is not None and (rest := answer.finish()):
                yield rest
        finally:
            reading.cancel()

    @contextmanager
    def _refused(self) -> "Iterator[None]":
        try:
            yield
        except KeySentAway as sent:
            self._run.refuse(sent, self._use)
        except CannotCheck as wrong:
            self._run.grant.refuse("INPUT_INVALID", str(wrong), self._use)


def _decoder(codings: tuple[str, ...]) -> Decoder:
    if len(codings) != 1 or codings[0] not in CODINGS:
        raise Unconnected("the answer is compressed in a way that cannot be looked into for keys")
    return Decoder(codings[0], MOST_DECODED)


async def _cut(body: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]
