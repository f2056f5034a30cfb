"""The host's side of one walled call: it answers the child's questions with the handles of that call.

Every question goes through the same handle as at `native`, so nothing is decided here. A child that floods, stalls,
repeats itself or speaks nonsense ends its own call and nothing else: what it sends is data, files that it pushes are
never received, and at most so many questions are open at once.
"""

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from licet.errors import Refused
from licet.guard.bind import BoundContext
from licet.sandbox.operations import NOW, Answered, Mirrors, Operations, at
from licet.sandbox.programs import Programs
from licet.sandbox.wire import (
    FROM_A_CHILD,
    SHORT_READ,
    BrokenWire,
    Closed,
    Frame,
    Unpacker,
    packed,
    value_in,
)

MOST_OPEN = 32  # questions of one call; a child of ours stops at half of that
MOST_REFUSALS = 2 * MOST_OPEN  # that a tool may still let through; whoever is refused more often has caught the others
MOST_UNSENT = 32 << 20  # bytes of answers that a child has not taken
MOST_ASKED = 32 << 20  # bytes of questions that wait for their answers; the one that passes it is the last for now
_GROWN = 20  # bytes of memory that one of JSON may become
_MOST_SELECTED = 1024  # `select` knows no files beyond these; it alone waits for less than a millisecond
# Seconds for which a quick answer is waited for, which takes less than to have the loop wait for it: from a worker that
# has had calls before, and from one that runs everything for the first time.
MOMENT, FIRST_MOMENT = 0.0002, 0.0005


class Outcome(NamedTuple):
    """What a child says of its call: a value as JSON, or what the tool raised."""

    head: dict[str, Any]
    blob: bytes
    refusal: Refused | None = None  # the host's own, if it is one of those that the tool let through


class Broker:
    """Serves one call over one socket, in the loop that runs it."""

    def __init__(self, end: socket.socket, context: BoundContext, call: int, tool: str, *, direct: bool) -> None:
        self._end, self._fd = end, end.fileno()
        self._call = call
        self._tool = tool
        self._context, self._direct = context, direct
        self._loop = asyncio.get_running_loop()
        self._unpacker = Unpacker(FROM_A_CHILD)
        self._done: asyncio.Future[Outcome] = self._loop.create_future()
        self._open: dict[int, asyncio.Task[None] | None] = {}
        self._last = 0
        self._refusals: dict[int, Refused] = {}
        self._refused = 0
        self._unsent: deque[tuple[bytes, tuple[int, ...], int]] = deque()
        self._unsent_bytes = 0
        self._asked: dict[int, int] = {}  # bytes of a question that has not been answered
        self._last_word = False  # whether something came after the end
        self._writing = self._reading = False
        self._mirrors: Mirrors | None = None
        self._programs: Programs | None = None

    @cached_property
    def _operations(self) -> Operations:
        self._mirrors, self._programs = Mirrors(), Programs(self._context)
        return Operations(self._context, self._mirrors, self._programs, self.answer, direct=self._direct)

    async def serve(self, start: bytes, come: bytes = b"") -> Outcome:
        """Send what starts the call, answer questions until it ends; `BrokenWire` or `Closed` if it does not.

        A call that was given a moment already says what is left to send, and what has come.
        """
        try:
            if start:
                self._send(start, (), 0)
            if come:
                self._take(come)
            self._balance()
            return await self._done
        finally:
            self._read(False)
            if self._writing:
                self._loop.remove_writer(self._fd)
            for _, files, _ in self._unsent:
                _close(files)
            if self._mirrors is not None:
                self._mirrors.finish()
            tasks = [task for task in self._open.values() if task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)
            if self._programs is not None:
                await self._programs.finish()

    @property
    def clean(self) -> bool:
        """Whether nothing is on its way in either direction once the call is over, so that another can follow."""
        return self._unpacker.between and not self._unsent and not self._last_word

    # What comes in -------------------------------------------------------------------------------------------------

    def _read(self, wanted: bool) -> None:
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        try:
            # Not recvmsg: without room for them, the kernel drops whatever files a child sends along.
            data = self._end.recv(self._unpacker.next_read)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as gone:
            self._fail(Closed(str(gone)))
            return
        if not data:
            self._fail(Closed("the other side has closed"))
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            for frame in self._unpacker.feed(data):
                if self._done.done():
                    self._last_word = True
                    raise BrokenWire("something came after the end")  # noqa: TRY301
                self._frame(frame)
        except BrokenWire as wrong:
            self._fail(wrong)
        self._balance()

    def _frame(self, frame: Frame) -> None:
        head = frame.head
        if type(head.get("call")) is not int or head["call"] != self._call:
            raise BrokenWire("a frame of another call")
        op = head.get("op")
        if op == "result":
            self._done.set_result(Outcome(head, frame.blob, self._own(head.get("refused"))))
            return
        number = head.get("id")
        # Numbers only grow: what was asked once cannot be asked again by sending the same bytes.
        if type(number) is not int or number <= self._last:
            raise BrokenWire("a question without a number of its own")
        if len(self._open) >= 2 * MOST_OPEN:
            raise BrokenWire("more questions than were agreed on")
        self._last = number
        operations = self._operations
        if self._mirrors is not None:
            self._mirrors.update()
        if op in NOW:
            self._open[number] = None
            try:
                self.answer(number, NOW[op](operations, head))
            except Exception as error:
                self._wrong(number, error)
            return
        act = operations.find(op)
        self._asked[number] = len(frame.blob) + _GROWN * frame.size
        self._open[number] = self._loop.create_task(self._act(act, number, head, frame.blob))

    async def _act(self, act: Any, number: int, head: Mapping[str, Any], blob: bytes) -> None:
        try:
            answered = await act(number, head, blob)
            if answered is not None:
                self.answer(number, answered)
        except Exception as error:
            self._wrong(*at(number, error))
        finally:
            self._asked.pop(number, None)
            self._open.pop(number, None)  # if it has not been answered, nobody waits for it
            self._balance()

    def _own(self, number: object) -> Refused | None:
        return self._refusals.get(number) if isinstance(number, int) else None

    def _fail(self, wrong: Exception) -> None:
        self._read(False)
        if not self._done.done():
            self._done.set_exception(wrong)

    # What goes out -------------------------------------------------------------------------------------------------

    def answer(self, number: int, answered: Answered) -> None:
        """Answer one question; files are closed here once they are on their way."""
        self._asked.pop(number, None)
        head = {**answered.head, "id": number}
        if answered.files:
            head["files"] = len(answered.files)
        self._send(packed(head, answered.blob), answered.files, number)

    def _wrong(self, number: int, error: Exception) -> None:
        if isinstance(error, BrokenWire):
            self._fail(error)
            return
        head: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
        if isinstance(error, Refused):
            use = "" if error.use is None else str(error.use)
            head = {"refused": self._keep(error), "code": error.code, "text": str(error), "use": use}
            head["tool"] = self._tool
        elif isinstance(error, OSError) and error.errno is not None:
            paths = [path for path in (error.filename, error.filename2) if isinstance(path, str)]
            head |= {"errno": error.errno, "text": error.strerror or "", "paths": paths}
        self.answer(number, Answered(head))

    def _keep(self, refusal: Refused) -> int:
        """Remember a refusal by a number; not how it came about, which holds on to all that was asked."""
        refusal.__traceback__ = refusal.__context__ = refusal.__cause__ = None
        number, self._refused = self._refused, self._refused + 1
        self._refusals[number] = refusal
        self._refusals.pop(number - MOST_REFUSALS, None)
        return number

    def _send(self, data: bytes, files: tuple[int, ...], number: int) -> None:
        if self._done.done():  # nobody listens any more
            _close(files)
            return
        self._unsent.append((data, files, number))
        self._unsent_bytes += len(data)
        if not self._writing:
            self._writable()

    def _writable(self) -> None:
        while self._unsent:
            data, files, number = self._unsent.popleft()
            try:
                sent = _sent(self._end, data, files)
            except (BlockingIOError, InterruptedError):
                sent = -1
            except OSError as gone:
                _close(files)
                self._fail(Closed(str(gone)))
                return
            if sent >= 0:
                _close(files)
                files, self._unsent_bytes = (), self._unsent_bytes - sent
            if sent < len(data):
                self._unsent.appendleft((data[max(sent, 0) :], files, number))
                break
            if number in self._open and self._open[number] is None:
                del self._open[number]
        waiting = bool(self._unsent)
        if waiting != self._writing:
            self._writing = waiting
            if waiting:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)
        self._balance()

    def _balance(self) -> None:
        """Take no more questions than can be answered: whoever floods waits in line."""
        full = len(self._open) >= MOST_OPEN or self._unsent_bytes > MOST_UNSENT
        held = self._asked and sum(self._asked.values()) > MOST_ASKED  # a tool must not make this process large either
        self._read(not full and not held and not self._done.done())


def begun(end: socket.socket, start: bytes) -> bytes:
    """Send what starts a call, and return what there was no room for."""
    try:
        return start[end.send(start, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return start
    except OSError as gone:
        raise Closed(str(gone)) from None


def a_moment(end: socket.socket, call: int, seconds: float) -> tuple[Outcome | None, bytes]:
    """The outcome if a call ends well in a moment, or else what has come: the quickest need nobody who answers."""
    fd = end.fileno()
    if fd >= _MOST_SELECTED or not select.select((fd,), (), (), seconds)[0]:
        return None, b""
    try:
        come = end.recv(SHORT_READ)
    except BlockingIOError:  # what came is an urgent byte, which is no data
        return None, b""
    except OSError as gone:
        raise Closed(str(gone)) from None
    if not come:
        raise Closed("the other side has closed")
    value = value_in(come, call)
    return (None, come) if value is None else (Outcome({}, value), b"")


def _sent(end: socket.socket, data: bytes, files: Sequence[int]) -> int:
    if files:
        return socket.send_fds(end, [data], list(files), socket.MSG_DONTWAIT)
    return end.send(data, socket.MSG_DONTWAIT)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
