"""The host's side of one walled call: it answers the child's questions with the handles of that call.

Every question goes through the same handle as at `native`, so nothing is decided here. A child that floods, stalls,
repeats itself or speaks nonsense ends its own call and nothing else: what it sends is data, files that it pushes are
never received, and at most so many questions are open at once. What the host holds for the call (questions, answers
that wait, files on their way) is counted by the meter of the call before it is held.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from licet.errors import Refused
from licet.guard.bind import BoundContext
from licet.guard.meter import Exceeded, Meter
from licet.sandbox.bridge.operations import NOW, Answered, Mirrors, Operations, at
from licet.sandbox.bridge.outbox import Outbox
from licet.sandbox.bridge.programs import Programs
from licet.sandbox.workers.wire import (
    FROM_A_CHILD,
    RESULT_BYTES,
    BrokenWire,
    Closed,
    Frame,
    Overrun,
    TooMuch,
    Unpacker,
    packed_head,
)

MOST_OPEN = 32  # questions of one call; a child of ours stops at half of that
MOST_REFUSALS = 2 * MOST_OPEN  # that a tool may still let through; whoever is refused more often has caught the others
_GROWN = 4  # bytes of memory that one of a head may become: heads hold few values, see `Sizes`


class Outcome(NamedTuple):
    """What a child says of its call: a value as JSON, or what the tool raised."""

    head: dict[str, Any]
    blob: bytes
    refusal: Refused | None = None  # the host's own, if it is one of those that the tool let through


class Broker:
    """Serves one call over one socket, in the loop that runs it."""

    def __init__(
        self,
        end: socket.socket,
        context: BoundContext,
        call: int,
        tool: str,
        *,
        direct: bool,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self._end, self._fd = end, end.fileno()
        self._call = call
        self._tool = tool
        self._context, self._direct = context, direct
        self._loop = asyncio.get_running_loop()
        self._unpacker = Unpacker(FROM_A_CHILD, self._admit)
        self._done: asyncio.Future[Outcome] = self._loop.create_future()
        self._open: dict[int, asyncio.Task[None] | None] = {}
        self._last = 0
        self._refusals: dict[int, Refused] = {}
        self._refused = 0
        self._outbox = Outbox(end, self._meter, self._sent, self._fail)
        self._asked: dict[int, int] = {}  # bytes of a question that has not been answered
        self._admitted = 0  # bytes of the frame that is being read
        self._last_word = False  # whether something came after the end
        self._all_sent = True
        self._left = False  # whether whole frames have come that nobody has looked at
        self._reading = False
        self._mirrors: Mirrors | None = None
        self._programs: Programs | None = None

    @cached_property
    def _operations(self) -> Operations:
        self._mirrors, self._programs = Mirrors(self._meter), Programs(self._context)
        return Operations(self._context, self._mirrors, self._programs, self.reply, direct=self._direct)

    async def serve(self, start: bytes) -> Outcome:
        """Send the frame that starts the call, and answer questions until the call ends.

        Raises `BrokenWire` or `Closed` if there is no result.
        """
        try:
            self._outbox.put(start, b"", (), 0)
            self._balance()
            return await self._done
        finally:
            self._read(False)
            self._all_sent = not len(self._outbox)
            self._outbox.close()
            if self._mirrors is not None:
                with suppress(BrokenWire):  # the call has ended by now
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
        return self._unpacker.between and self._all_sent and not self._last_word

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
                if self._is_full and not self._done.done():
                    self._left = True  # what came after it is looked at when there is room for it
                    break
        except BrokenWire as wrong:
            self._fail(wrong)
        self._balance()

    def _go_on(self) -> None:
        """Look at questions that came along with others, when these were too many."""
        if self._left and self._reading:
            self._left = False
            self._take(b"")

    def _admit(self, head: Mapping[str, Any], size: int, blob: int) -> None:
        """Compare the size of a frame before the rest of it is read."""
        if head.get("op") == "result" and blob > RESULT_BYTES:
            raise TooMuch(f"a result of {blob} bytes, expected at most {RESULT_BYTES}")
        try:
            self._meter.take_memory(blob + _GROWN * size)
        except Exceeded as over:
            raise Overrun(over.reason, str(over)) from None
        self._admitted = blob + _GROWN * size

    def _frame(self, frame: Frame) -> None:
        head = frame.head
        admitted, self._admitted = self._admitted, 0
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
        self._last = number
        operations = self._operations
        if self._mirrors is not None:
            self._mirrors.update()
        if not isinstance(op, str):
            raise BrokenWire("a question that names no operation")
        if op in NOW:
            self._meter.give_memory(admitted)
            self._open[number] = None
            try:
                self.answer(number, NOW[op](operations, head))
            except Exception as error:
                self._wrong(number, error)
            return
        act = operations.find(op)
        self._asked[number] = admitted
        self._open[number] = self._loop.create_task(self._act(act, number, head, frame.blob))

    async def _act(self, act: Any, number: int, head: Mapping[str, Any], blob: bytes) -> None:
        try:
            answered = await act(number, head, blob)
            if answered is not None:
                await self.reply(number, answered)
        except Exception as error:
            self._wrong(*at(number, error))
        finally:
            self._answered(number)
            self._open.pop(number, None)  # if it has not been answered, nobody waits for it
            self._balance()

    def _own(self, number: object) -> Refused | None:
        return self._refusals.get(number) if isinstance(number, int) else None

    def _fail(self, wrong: Exception) -> None:
        self._read(False)
        if not self._done.done():
            self._done.set_exception(wrong)

    # What goes out -------------------------------------------------------------------------------------------------

    async def reply(self, number: int, answered: Answered) -> None:
        """Answer one question, once the child has taken enough of the answers before."""
        size = len(answered.blob)
        try:
            self._meter.take_memory(size)
        except Exceeded as over:  # the child is told, and may ask for less
            _close(answered.files)
            self._context._holding.exceeded(over)
        try:
            await self._outbox.room()
        except BaseException:
            _close(answered.files)
            raise
        finally:
            self._meter.give_memory(size)
        self.answer(number, answered)

    def answer(self, number: int, answered: Answered) -> None:
        """Answer one question; files are closed once they are on their way."""
        self._answered(number)
        head = {**answered.head, "id": number}
        if answered.files:
            head["files"] = len(answered.files)
        try:
            self._outbox.put(packed_head(head, len(answered.blob)), answered.blob, answered.files, number)
        except Overrun as over:
            self._fail(over)
        self._balance()

    def _answered(self, number: int) -> None:
        """What a question held is held no longer."""
        if asked := self._asked.pop(number, 0):
            self._meter.give_memory(asked)

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

    def _sent(self, number: int) -> None:
        if number in self._open and self._open[number] is None:
            del self._open[number]
        self._balance()

    def _balance(self) -> None:
        """Take no more questions than can be answered: whoever floods waits in line."""
        # Questions and answers together take half of what the host may hold: the other half is for what they bring.
        held = sum(self._asked.values()) + self._outbox.held > self._meter.host_memory // 2
        self._read(not self._is_full and not held and not self._done.done())
        if self._left and self._reading:
            self._loop.call_soon(self._go_on)

    @property
    def _is_full(self) -> bool:
        return len(self._open) >= MOST_OPEN


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
