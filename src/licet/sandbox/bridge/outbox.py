"""The queue of answers to a worker, with their files.

A worker that does not read makes the host hold its answers. The meter of the call counts them, and a worker with more
unread answers than an honest one can have ends its call.

`packed_names` writes a long list of names as JSON in short steps, so that the event loop is not blocked.
"""

import asyncio
import io
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from licet.guard.meter import Exceeded, Meter
from licet.sandbox.workers.wire import Closed, Overrun

AT_ONCE = 100  # names that are written in one step: tens of kilobytes at most
_written = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


async def packed_names(names: Sequence[str], meter: Meter) -> bytes:
    """The list as JSON; `Exceeded` if the host may not hold it together with its JSON."""
    with meter.share() as share, io.BytesIO() as written:  # `getvalue` does not copy
        share.take(sum(map(sys.getsizeof, names)))
        written.write(b"[")
        for start in range(0, len(names), AT_ONCE):
            if start:
                written.write(b",")
                await asyncio.sleep(0)
            # A file name that is not UTF-8 holds lone surrogates.
            piece = _written(names[start : start + AT_ONCE])[1:-1].encode("utf-8", "surrogatepass")
            share.take(len(piece))
            written.write(piece)
        written.write(b"]")
        return written.getvalue()


def names_in(data: bytes) -> list[str]:
    """The list that `packed_names` wrote."""
    names: list[str] = json.loads(data)
    return names


if sys.platform != "win32":
    import fcntl
    import termios

# Answers that an honest worker leaves unread: it asks half as many questions at once.
MOST_UNREAD = 32
_EACH = 1 << 10  # bytes of overhead for each answer
_APART = 1 << 16  # a blob of more bytes is not copied behind its head
_OF_A_MESSAGE = 768  # bytes that the kernel counts at least for an unread message
_PAUSE = 0.005  # seconds until the next check whether a worker has read its files


class _Piece(Struct, frozen=True):
    """A part of an answer with its files, and the memory that is given back when it is sent."""

    data: memoryview
    files: tuple[int, ...]
    number: int  # of the question that is answered with it
    held: int  # bytes that the meter counts for it


class Outbox:
    """Sends answers in order, as fast as the worker reads; files are closed when they are sent."""

    def __init__(
        self, end: socket.socket, meter: Meter, sent: Callable[[int], None], failed: Callable[[Exception], None]
    ) -> None:
        self._end, self._meter, self._sent, self._failed = end, meter, sent, failed
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[_Piece] = deque()
        self._files = 0
        self._writing = self._closed = False
        self._drained: asyncio.Future[None] | None = None  # set when the queue is short enough again
        self.held = 0  # bytes of answers that are not sent

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def full(self) -> bool:
        """Whether more bytes than the limit wait behind the answer that is being sent."""
        return bool(self._pieces) and self.held - self._pieces[0].held > self._meter.waiting

    async def room(self) -> None:
        """Wait until the worker has read enough of the earlier answers."""
        while self.full and len(self) <= MOST_UNREAD and not self._closed:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def put(self, head: bytes, blob: bytes, files: tuple[int, ...], number: int) -> None:
        """Queue an answer. Raises `Overrun` if the worker does not read."""
        if self._closed:  # the call is over
            _close(files)
            return
        size, limits = len(head) + len(blob) + _EACH, self._meter
        try:
            if len(self) > MOST_UNREAD and self.full:
                text = f"more than {limits.waiting_kb} kB of answers wait, which the tool's process does not read"
                raise Exceeded("LIMIT_WAITING", "waiting_kb", text)  # noqa: TRY301
            if len(self) > MOST_UNREAD and self._files >= limits.host_files // 2:
                text = f"{self._files} of {limits.host_files} open files wait, which the tool's process does not take"
                raise Exceeded("LIMIT_HOST_FILES", "host_files", text)  # noqa: TRY301
            limits.take_files(len(files))
            limits.take_memory(size)
        except Exceeded as over:
            _close(files)
            raise Overrun(over.reason, str(over)) from None
        self.held += size
        self._files += len(files)
        if len(blob) > _APART:
            self._pieces += (_Piece(memoryview(head), files, -1, 0), _Piece(memoryview(blob), (), number, size))
        else:
            self._pieces.append(_Piece(memoryview(head + blob), files, number, size))
        if not self._writing:
            self._write()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._writing:
            self._loop.remove_writer(self._end)
        for piece in self._pieces:
            _close(piece.files)
        self._pieces.clear()
        self._let_in()

    def _write(self) -> None:
        while self._pieces:
            piece = self._pieces[0]
            if piece.files and _unread(self._end) >= self._meter.host_files * _OF_A_MESSAGE:
                self._pause()
                return
            try:
                sent = _send(self._end, piece.data, piece.files)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as gone:
                self._failed(Closed(str(gone)))
                return
            _close(piece.files)
            self._files -= len(piece.files)
            self._meter.give_files(len(piece.files))
            if sent < len(piece.data):
                self._pieces[0] = replace(piece, data=piece.data[sent:], files=())
                break
            self._pieces.popleft()
            self.held -= piece.held
            self._meter.give_memory(piece.held)
            self._sent(piece.number)
        self._watch(bool(self._pieces))
        if not self.full:
            self._let_in()

    def _watch(self, waiting: bool) -> None:
        if waiting != self._writing:
            self._writing = waiting
            if waiting:
                self._loop.add_writer(self._end, self._write)
            else:
                self._loop.remove_writer(self._end)

    def _pause(self) -> None:
        """Wait until the worker has read some files: the kernel limits unread files for all processes of a user."""
        self._loop.remove_writer(self._end)
        self._writing = True  # nothing is sent until `_go_on`
        self._loop.call_later(_PAUSE, self._go_on)

    def _go_on(self) -> None:
        if not self._closed:
            self._writing = False
            self._write()

    def _let_in(self) -> None:
        if self._drained is not None:
            drained, self._drained = self._drained, None
            drained.set_result(None)


def _unread(end: socket.socket) -> int:
    """Unread bytes in the socket, as the kernel counts them."""
    return int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder)


def _send(end: socket.socket, data: memoryview, files: Sequence[int]) -> int:
    if files:
        return socket.send_fds(end, [data], list(files), socket.MSG_DONTWAIT)
    return end.send(data, socket.MSG_DONTWAIT)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
