"""The worker's connection to the host: numbered questions, answers in any order, refusals as exceptions.

One thread of a tool may ask from an event loop, and others may block for answers. While a question is sent, answers are
received, so that two large messages cannot block each other.
"""

import asyncio
import builtins
import contextlib
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from licet.core.algebra.use import InvalidUse, Use
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground, Request
from licet.errors import Refused
from licet.sandbox.workers.wire import FROM_HOST, Closed, Frame, Wire, packed

MOST_AT_ONCE = 16


class HostReply:
    """The host's answer to one question."""

    __slots__ = ("blob", "files", "head")

    def __init__(self, head: dict[str, Any], blob: bytes, files: tuple[int, ...]) -> None:
        self.head, self.blob, self.files = head, blob, files

    def file(self) -> int:
        """The only file of the answer."""
        (found,) = self.files
        return found


class HostClient:
    """The worker's end of the wire during a call."""

    def __init__(self, end: socket.socket) -> None:
        self.wire = Wire(end, FROM_HOST)
        self.call = 0
        self._next = 0
        self._answers: dict[int, HostReply] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: asyncio.Semaphore | None = None
        self._thread = 0
        self._reading = False

    def begin(self, call: int, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start a call; with a loop, answers are received by it."""
        self.call, self._loop, self._thread = call, loop, threading.get_ident()
        self._answers, self._waiting = {}, {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE) if loop is not None else None
        self._reading = False

    def finish(self) -> None:
        """End the call: tasks that the tool left running get no answers."""
        self.call = 0
        if self._loop is not None and self._reading:
            self._loop.remove_reader(self.wire.socket)

    async def ask(self, op: str, blob: bytes = b"", **fields: Any) -> HostReply:
        """Ask, and wait for the answer: in the loop if there is one, otherwise by blocking."""
        if self._loop is None or self._room is None:
            return self.ask_now(op, blob, **fields)
        if not self._reading:
            self._loop.add_reader(self.wire.socket, self._taken_in)
            self._reading = True
        async with self._room:
            number = self._sent(op, blob, fields)
            if number not in self._answers:
                arrived = self._waiting[number] = self._loop.create_future()
                await arrived
            return _checked(self._answers.pop(number))

    def ask_now(self, op: str, blob: bytes = b"", **fields: Any) -> HostReply:
        """Ask, and block until the answer is there."""
        if not self.call:
            raise RuntimeError("no call is running, so the host cannot be asked")
        with self._lock:
            number = self._sent(op, blob, fields)
            while number not in self._answers:
                self._take()
            return _checked(self._answers.pop(number))

    def _sent(self, op: str, blob: bytes, fields: Mapping[str, Any]) -> int:
        with self._lock:
            number = self._next = self._next + 1
            data = memoryview(packed({**fields, "op": op, "id": number, "call": self.call}, blob))
            end = self.wire.socket
            while data:
                try:
                    data = data[end.send(data, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(end, select.POLLIN | select.POLLOUT)
                    if any(event & select.POLLIN for _, event in poll.poll()):
                        self._take()
            return number

    def _taken_in(self) -> None:
        # Another thread that blocks for its own answer receives this one too.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._take()
        except Closed:  # the host has ended the call
            raise SystemExit from None
        finally:
            self._lock.release()

    def _take(self) -> None:
        self.wire.take()
        for frame in self.wire.frames():
            number = frame.head["id"]
            self._answers[number] = self._whole(frame)
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                continue
            if threading.get_ident() == self._thread:
                _arrived(waiting)
            elif self._loop is not None:
                self._loop.call_soon_threadsafe(_arrived, waiting)

    def _whole(self, frame: Frame) -> HostReply:
        """An answer with its files; an error if this process may not open so many."""
        count = frame.head.get("files", 0)
        try:
            files = self.wire.files(count) if count else ()
        except OSError as wrong:
            return HostReply({"error": "OSError", "errno": wrong.errno, "text": wrong.strerror, "paths": ()}, b"", ())
        return HostReply(frame.head, frame.blob, files)


def _arrived(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _checked(answer: HostReply) -> HostReply:
    head = answer.head
    if "refused" in head:
        raise _refused(head)
    if "error" in head:
        raise _error(head)
    return answer


def _refused(head: Mapping[str, Any]) -> Refused:
    """A refusal with the host's code and text. The rules behind it are not sent: they are for the operator."""
    use = None
    with contextlib.suppress(InvalidUse):
        use = Use(head["use"]) if head["use"] else None
    refusal = Refused(Deny(Request(head["tool"]), (Ground(head["code"], head["text"]),), use))
    refusal.code = head["code"]
    refusal.args = (head["text"],)
    vars(refusal)["licet_number"] = head["refused"]  # the host recognizes it by this number if the tool lets it through
    return refusal


_KNOWN: dict[str, Callable[..., BaseException]] = {
    name: kind
    for name in (
        "TypeError",
        "ValueError",
        "KeyError",
        "LookupError",
        "RuntimeError",
        "TimeoutError",
        "NotImplementedError",
    )
    if isinstance(kind := getattr(builtins, name), type)
}


def _error(head: Mapping[str, Any]) -> BaseException:
    if head.get("errno") is not None:
        first, second = (*head["paths"], None, None)[:2]
        return OSError(head["errno"], head["text"], first, None, second)
    kind = _KNOWN.get(head["error"])
    return kind(head["text"]) if kind else RuntimeError(f"{head['error']}: {head['text']}")
