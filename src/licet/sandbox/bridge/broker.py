"""The host's side of one walled call: it answers the worker's questions with the handles of that call.

Every question goes through the same handle as at `native`, so nothing is decided here. A worker that floods, stalls,
repeats itself or breaks the protocol ends its own call and nothing else. What it sends is data, files that it sends
are never received, and the number of open questions is limited. The meter of the call counts what the host holds for
it (questions, unsent answers, files) before the host holds it.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from licet.errors import Refused
from licet.guard.bind import BoundContext, parts_of
from licet.guard.meter import Exceeded, Meter
from licet.sandbox.bridge.operations import NOW, Act, CallPrograms, Mirrors, OperationReply, Operations, at
from licet.sandbox.bridge.wire import (
    FROM_WORKER,
    BrokenWire,
    Closed,
    Frame,
    FrameTooLarge,
    Outbox,
    Overrun,
    Unpacker,
    packed_head,
)
from licet.sandbox.limits import MEMORY_OF_A_HEAD, MOST_OPEN_QUESTIONS, MOST_REFUSALS, RESULT_BYTES


class WorkerOutcome(NamedTuple):
    """The result of a call as a worker sends it: a value as JSON, or what the tool raised."""

    head: dict[str, Any]
    blob: bytes
    refusal: Refused | None = None  # the host's own refusal, if the tool let it through


class Broker:
    """Serves one call over one socket, in the running event loop."""

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
        self._unpacker = Unpacker(FROM_WORKER, self._admit)
        self._done: asyncio.Future[WorkerOutcome] = self._loop.create_future()
        self._open: dict[int, asyncio.Task[None] | None] = {}
        self._last = 0
        self._refusals: dict[int, Refused] = {}
        self._refused = 0
        self._outbox = Outbox(end, self._meter, self._sent, self._fail)
        self._asked: dict[int, int] = {}  # bytes of each unanswered question
        self._admitted = 0  # bytes of the frame that is being read
        self._last_word = False  # whether a frame came after the result
        self._all_sent = True
        self._left = False  # whether complete frames wait in the unpacker
        self._reading = False
        self._mirrors: Mirrors | None = None
        self._programs: CallPrograms | None = None

    @cached_property
    def _operations(self) -> Operations:
        self._mirrors, self._programs = Mirrors(self._meter), CallPrograms(self._context)
        return Operations(self._context, self._mirrors, self._programs, self.reply, direct=self._direct)

    async def serve(self, start: bytes) -> WorkerOutcome:
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
                with suppress(BrokenWire):  # the call is over
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
        """Whether nothing is in transit in either direction after the call, so that the worker can serve another."""
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
            # `recv`, not `recvmsg`: the kernel then drops files that a worker sends.
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
                    raise BrokenWire("a frame came after the result")  # noqa: TRY301
                self._frame(frame)
                if self._is_full and not self._done.done():
                    self._left = True  # the frames after it are handled when questions were answered
                    break
        except BrokenWire as wrong:
            self._fail(wrong)
        self._balance()

    def _go_on(self) -> None:
        """Handle frames that waited because too many questions were open."""
        if self._left and self._reading:
            self._left = False
            self._take(b"")

    def _admit(self, head: Mapping[str, Any], size: int, blob: int) -> None:
        """Check the size of a frame before its blob is read."""
        if head.get("op") == "result" and blob > RESULT_BYTES:
            raise FrameTooLarge(f"a result of {blob} bytes, expected at most {RESULT_BYTES}")
        try:
            self._meter.take_memory(blob + MEMORY_OF_A_HEAD * size)
        except Exceeded as over:
            raise Overrun(over.reason, str(over)) from None
        self._admitted = blob + MEMORY_OF_A_HEAD * size

    def _frame(self, frame: Frame) -> None:
        head = frame.head
        admitted, self._admitted = self._admitted, 0
        if type(head.get("call")) is not int or head["call"] != self._call:
            raise BrokenWire("a frame of another call")
        op = head.get("op")
        if op == "result":
            self._done.set_result(WorkerOutcome(head, frame.blob, self._own(head.get("refused"))))
            return
        number = head.get("id")
        # Numbers only grow, so a question cannot be repeated by sending the same bytes.
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
                self.answer(number, operations.answer_now(op, head))
            except Exception as error:
                self._wrong(number, error)
            return
        act = operations.find(op)
        self._asked[number] = admitted
        self._open[number] = self._loop.create_task(self._act(act, number, head, frame.blob))

    async def _act(self, act: Act, number: int, head: Mapping[str, Any], blob: bytes) -> None:
        try:
            answered = await act(number, head, blob)
            if answered is not None:
                await self.reply(number, answered)
        except Exception as error:
            self._wrong(*at(number, error))
        finally:
            self._answered(number)
            self._open.pop(number, None)  # not answered: the call has failed
            self._balance()

    def _own(self, number: object) -> Refused | None:
        return self._refusals.get(number) if isinstance(number, int) else None

    def _fail(self, wrong: Exception) -> None:
        self._read(False)
        if not self._done.done():
            self._done.set_exception(wrong)

    # What goes out -------------------------------------------------------------------------------------------------

    async def reply(self, number: int, answered: OperationReply) -> None:
        """Answer one question, after the worker has read enough of the earlier answers."""
        size = len(answered.blob)
        try:
            self._meter.take_memory(size)
        except Exceeded as over:  # the tool gets a refusal, and may ask for less
            _close(answered.files)
            parts_of(self._context).grant.exceeded(over)
        try:
            await self._outbox.room()
        except BaseException:
            _close(answered.files)
            raise
        finally:
            self._meter.give_memory(size)
        self.answer(number, answered)

    def answer(self, number: int, answered: OperationReply) -> None:
        """Answer one question; files are closed when they are sent."""
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
        """Give back the memory of a question."""
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
        self.answer(number, OperationReply(head))

    def _keep(self, refusal: Refused) -> int:
        """Remember a refusal by a number, without its traceback, which would keep the question in memory."""
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
        """Stop reading while too many questions are open or too much memory is used."""
        # Questions and answers use at most half of the memory: the other half is for the data that they ask for.
        held = sum(self._asked.values()) + self._outbox.held > self._meter.host_memory // 2
        self._read(not self._is_full and not held and not self._done.done())
        if self._left and self._reading:
            self._loop.call_soon(self._go_on)

    @property
    def _is_full(self) -> bool:
        return len(self._open) >= MOST_OPEN_QUESTIONS


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
