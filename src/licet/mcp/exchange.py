"""One conversation in JSON-RPC over a link: matches answers with requests, and bounds whatever the other side sends.

It knows no version of MCP, apart from cancellation and progress, which are the same in all of them. Ids are its own
integers from 1. An answer that nobody waits for costs one line; a flood costs the conversation.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode

from licet.core.algebra.scope import visible
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
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
    answered_id,
    read_message,
    write_message,
)
from licet.mcp.limits import (
    CANCEL_SECONDS,
    END_BYTES,
    LONGEST_TEXT,
    MOST_ANSWER_BYTES,
    MOST_ASKS,
    MOST_BAD_LINES,
    MOST_ERROR_DATA_BYTES,
    MOST_NOTIFICATION_BYTES,
    NOTIFICATIONS_A_SECOND,
    NOTIFICATIONS_AT_ONCE,
)
from licet.mcp.link import Flood, Gone, Link, Rate


def quoted(text: str, most: int = 300) -> str:
    """A server's words inside a message of ours: cut, without hidden characters, and unable to end the quotation."""
    return f"`{visible(text[:most]).replace('`', chr(39))}{'…' if len(text) > most else ''}`"


class UpstreamError(Exception):
    """The other side answered with an error."""

    def __init__(self, code: int, message: str, data: object = UNSET) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"{message} ({code})")


class MalformedAnswer(UpstreamError):
    """The answer is no message. `line` is what came, if it may be mended."""

    def __init__(self, reason: str, line: bytes) -> None:
        self.line = line
        super().__init__(INTERNAL_ERROR, f"a malformed answer: {reason}")


class TimedOut(Exception):
    """No answer came in time. The other side was told that nobody waits any more."""


class Answer(Struct, frozen=True):
    """A result: the JSON that came, and the same parsed."""

    text: bytes
    data: dict[str, Any]


# What can be read of an answer that is no message; None if nothing can.
Mend = Callable[[bytes], dict[str, Any] | None]


class Waiting:
    """A request of ours that has no answer yet."""

    def __init__(
        self,
        progress: Callable[[dict[str, Any]], None] | None,
        caller: Id | None,
        most: int = MOST_ANSWER_BYTES,
        *,
        can_be_mended: bool = False,
    ) -> None:
        self.most = most  # bytes of the line with its answer
        self.can_be_mended = can_be_mended
        self.answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.progress = progress
        self.caller = caller
        self._limit: asyncio.Timeout | None = None
        self._left: float | None = None  # seconds, while the clock is stopped
        self._stops = 0

    async def within(self, seconds: float, sending: Coroutine[Any, Any, None]) -> Answer:
        """Send the request, and wait for its answer. Raises `TimeoutError`."""
        async with asyncio.timeout(seconds) as self._limit:
            await sending
            return await self.answered

    def has_answer(self) -> bool:
        """Whether an answer came, or the end of the conversation."""
        if not self.answered.done() or self.answered.cancelled():
            return False
        self.answered.exception()  # asyncio reports errors that nobody has looked at
        return True

    def stop_clock(self) -> None:
        """Do not count the time from now on: the other side waits for our answer."""
        self._stops += 1
        when = self._limit.when() if self._limit is not None else None
        if self._limit is not None and when is not None and not self._limit.expired():
            self._left = when - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def start_clock(self) -> None:
        """Count the time again, if nothing else has stopped the clock."""
        self._stops -= 1
        if self._stops == 0 and self._left is not None and self._limit is not None and not self.answered.done():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None


class Exchange(ABC):
    """Sends requests and notifications over a link. A subclass says what is done with messages that are no answers."""

    def __init__(self, link: Link, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        link.longest = self.longest
        self._last_id = 0
        self._waiting: dict[int, Waiting] = {}
        self._asks: dict[Id, asyncio.Task[None]] = {}  # requests of the other side
        self._sending: set[asyncio.Task[None]] = set()  # what nobody waits for
        self._bad_lines = 0
        self._rate, self._dropped = Rate(NOTIFICATIONS_AT_ONCE, NOTIFICATIONS_A_SECOND, clock), 0
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @abstractmethod
    async def answer(self, request: Request) -> dict[str, Any]:
        """The result of a request of the other side. Raises `ProtocolError`."""

    @abstractmethod
    def notified(self, notification: Notification) -> None:
        """A notification came."""

    @abstractmethod
    def reported(self, text: str) -> None:
        """Something was wrong with what came, and was dropped."""

    @property
    def waiting(self) -> list[Waiting]:
        """The requests that have no answer yet."""
        return list(self._waiting.values())

    def longest(self) -> int:
        """How many bytes a line may have now: no more than somebody waits for is parsed, or searched for secrets."""
        return max((MOST_ANSWER_BYTES, *(waiting.most for waiting in self._waiting.values())))

    async def send_request(
        self,
        method: str,
        params: Callable[[int], dict[str, Any]],
        *,
        seconds: float,
        progress: Callable[[dict[str, Any]], None] | None = None,
        caller: Id | None = None,
        may_cancel: bool = True,
        most: int = MOST_ANSWER_BYTES,
        mend: Mend | None = None,
    ) -> Answer:
        """Send a request and wait for its result, of so many bytes at most. `params` makes its parameters from its id.

        `mend` reads an answer that is no message, in a thread.

        Raises `UpstreamError`, `Gone` or `TimedOut`. If the task is cancelled, the other side is told.
        """
        if self._end.done():
            raise Gone(self._end.result())
        self._last_id += 1
        number = self._last_id
        waiting = self._waiting[number] = Waiting(progress, caller, most, can_be_mended=mend is not None)
        try:
            line = write_message(Request(number, method, params(number)))
            return await waiting.within(seconds, self._link.send(line))
        except MalformedAnswer as error:
            # In a thread: it takes long for what somebody has made for that, and others wait for this loop.
            mended = await asyncio.to_thread(mend, error.line) if mend is not None and error.line else None
            if mended is None:
                raise
            return Answer(error.line, mended)
        except TimeoutError:
            raise TimedOut(f"no answer to `{method}` within {seconds:g} s") from None
        finally:
            del self._waiting[number]
            if may_cancel and not waiting.has_answer():
                self._send_soon(Notification("notifications/cancelled", {"requestId": number}))

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification. Raises `Gone`."""
        await self._link.send(write_message(Notification(method, params)))

    async def ended(self) -> str:
        """Wait until the conversation is over, and say why."""
        return await asyncio.shield(self._end)

    async def close(self) -> None:
        """End the conversation and close the link. Requests that wait raise `Gone`."""
        self._finish("it was closed")
        self._reader.cancel()
        await asyncio.wait([self._reader, *self._sending, *self._asks.values()])
        await self._link.close()

    # What comes -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while line := await self._link.receive():
                try:
                    message = read_message(line)
                except BadMessage as bad:
                    self._take_bad(line, bad)
                else:
                    self._bad_lines = 0
                    self._take(message, len(line))
            self._finish("it closed its output")
        except Flood as flood:
            self._finish(f"it sent {flood}")
        except Exception as wrong:  # of the redactor or a handler
            self._finish(f"an error in the gateway: {type(wrong).__name__}: {wrong}")
        await self._link.close()  # requests that are still being sent wait no longer

    def _take(self, message: Message, size: int) -> None:
        match message:
            case Response(answer_id, text, data):
                waiting = self._find(answer_id)
                if waiting is not None and size > waiting.most:
                    waiting.answered.set_exception(UpstreamError(INTERNAL_ERROR, f"an answer of {size} bytes"))
                elif waiting is not None and isinstance(text, Raw) and isinstance(data, dict):
                    waiting.answered.set_result(Answer(bytes(text), data))
            case Failure(failed_id, code, text, data):
                if failed_id is None:
                    self.reported(f"an error without an id: {text[:LONGEST_TEXT]}")
                elif (waiting := self._find(failed_id)) is not None:
                    waiting.answered.set_exception(_bounded(code, text, data))
            case Request(method=method) | Notification(method=method) if size > _most(message):
                self.reported(f"a message of {size} bytes: `{method[:100]}`")
                if isinstance(message, Request):
                    self._refuse(
                        message.id, INVALID_REQUEST, f"a request of {size} bytes, more than {MOST_ANSWER_BYTES}"
                    )
            case Request():
                self._ask(message)
            case Notification("notifications/cancelled", params):
                asked = params.get("requestId")
                if isinstance(asked, int | str) and asked in self._asks:
                    self._asks[asked].cancel()
            case Notification("notifications/progress", params):
                self._progress(params)
            case Notification():
                if self._is_allowed():
                    self.notified(message)

    def _take_bad(self, line: bytes, bad: BadMessage) -> None:
        is_answer, answer_id = bad.is_answer, bad.id
        if answer_id is None and line.rstrip().endswith(b"}"):  # a whole line, which could not be parsed
            answer_id = answered_id(line[:END_BYTES], line[-END_BYTES:])
            is_answer = answer_id is not None
        waiting = self._waiting.get(_number(answer_id)) if is_answer else None
        if waiting is not None and not waiting.answered.done():
            can_be_mended = waiting.can_be_mended and len(line) <= waiting.most
            waiting.answered.set_exception(MalformedAnswer(bad.reason, line if can_be_mended else b""))
            if can_be_mended:
                return
        elif bad.id is not None and not bad.is_answer:
            self._refuse(bad.id, bad.code, bad.reason)
        self._bad_lines += 1
        if self._bad_lines > MOST_BAD_LINES:
            raise Flood(f"{MOST_BAD_LINES} lines in a row that are no messages")
        if self._bad_lines <= 10:
            self.reported(f"{bad.reason}: {line[:200].decode(errors='replace')}")

    def _find(self, answer_id: Id) -> Waiting | None:
        """The request that an answer belongs to, if it waits for one."""
        number = _number(answer_id)
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.answered.done():
            return waiting
        known = 0 < number <= self._last_id
        self.reported(f"{'a late or repeated answer' if known else 'an answer to no request'}: id {answer_id}")
        return None

    def _progress(self, params: dict[str, Any]) -> None:
        waiting = self._waiting.get(_number(params.get("progressToken")))
        if waiting is None or waiting.progress is None or waiting.answered.done():
            return  # late progress is normal
        step = {key: params[key] for key in ("progress", "total") if type(params.get(key)) in (int, float)}
        if "progress" not in step or not self._is_allowed():
            return
        if isinstance(text := params.get("message"), str):
            step["message"] = text[:LONGEST_TEXT]
        waiting.progress(step)

    def _is_allowed(self) -> bool:
        """Whether one more notification is within the rate."""
        if not self._rate.take():
            if not self._dropped:
                self.reported("too many notifications: some are dropped")
            self._dropped += 1
            return False
        self._dropped = 0
        return True

    # Answers of ours --------------------------------------------------------------------------------------------------

    def _ask(self, request: Request) -> None:
        if request.id in self._asks or len(self._asks) >= MOST_ASKS:
            self.reported(f"a repeated id, or too many requests at once: `{request.method[:100]}`")
            if request.id not in self._asks:
                self._refuse(request.id, INTERNAL_ERROR, f"more than {MOST_ASKS} requests at once")
            return
        task = self._asks[request.id] = asyncio.create_task(self._answer(request))
        task.add_done_callback(lambda _: self._asks.pop(request.id, None))

    async def _answer(self, request: Request) -> None:
        answer: Message
        try:
            answer = Response(request.id, await self.answer(request))
        except ProtocolError as refusal:
            answer = Failure(request.id, refusal.code, refusal.message)
        except Exception:
            self.reported(f"`{request.method[:100]}` could not be answered")
            answer = Failure(request.id, INTERNAL_ERROR, "internal error")
        try:
            await self._link.send(write_message(answer))
        except Gone:
            return

    def _refuse(self, request_id: Id, code: int, text: str) -> None:
        """Answer a request that is not looked at. A side that does not read its answers gets no more of them."""
        if len(self._sending) < MOST_ASKS:
            self._send_soon(Failure(request_id, code, text))

    def _send_soon(self, message: Message) -> None:
        if self._end.done():
            return
        task = asyncio.create_task(self._try_to_send(write_message(message)))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _try_to_send(self, line: bytes) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._link.send(line)
        except (Gone, TimeoutError):
            return

    def _finish(self, reason: str) -> None:
        if self._end.done():
            return
        self._end.set_result(reason)
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(Gone(reason))
        for task in (*self._asks.values(), *self._sending):
            task.cancel()


def not_found(method: str) -> ProtocolError:
    """The refusal of a method that does not exist here."""
    return ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")


def _bounded(code: int, text: str, data: object) -> UpstreamError:
    if data is not UNSET and len(encode(data)) > MOST_ERROR_DATA_BYTES:
        data = UNSET
    error = UpstreamError(code if abs(code) < 1 << 31 else INTERNAL_ERROR, text[:LONGEST_TEXT], data)
    error.args = (f"error {error.code}: {quoted(text)}",)  # in messages of ours
    return error


def _most(message: Message) -> int:
    """The bytes that a message may have which is no answer."""
    return MOST_ANSWER_BYTES if isinstance(message, Request) else MOST_NOTIFICATION_BYTES


def _number(answer_id: object) -> int:
    """An id as one of our numbers; 0 if it is none. Some servers answer "7" to 7, as SDK 2.x accepts."""
    if type(answer_id) is int:
        return answer_id
    if isinstance(answer_id, str) and answer_id.isascii() and answer_id.isdigit() and answer_id[0] != "0":
        return int(answer_id) if len(answer_id) < 16 else 0
    return 0
