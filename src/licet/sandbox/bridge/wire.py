"""The protocol between the host and a worker: frames of JSON with a blob of bytes, and open files for the worker.

A frame is two lengths, a JSON object (the head) and a blob. Nothing is unpickled or evaluated. Whatever exceeds a limit
ends the conversation. Files travel from the host to a worker only: the host never receives the files a worker sends.

The queue of answers to a worker, with their files.

A worker that does not read makes the host hold its answers. The meter of the call counts them, and a worker with more
unread answers than an honest one can have ends its call.

`packed_names` writes a long list of names as JSON in short steps, so that the event loop is not blocked.
"""

import array
import asyncio
import errno
import io
import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.decision.request import Reason
from licet.declare.plain_json import is_heavy
from licet.guard.meter import Exceeded, Meter
from licet.sandbox.limits import (
    ANSWER_OVERHEAD,
    DEEPEST_HEAD,
    LARGEST_ANSWER,
    LARGEST_ANSWERED_BLOB,
    LARGEST_QUESTION,
    LARGEST_SENT_BLOB,
    LONG_READ,
    MOST_HEAD_UNITS,
    MOST_SENT_FILES,
    MOST_UNREAD,
    NAMES_AT_ONCE,
    SENT_APART,
    SHORT_READ,
    UNREAD_MESSAGE,
    UNREAD_SECONDS,
)

_LENGTHS = struct.Struct("<II")
_CLOEXEC, _TRUNCATED = getattr(socket, "MSG_CMSG_CLOEXEC", 0), getattr(socket, "MSG_CTRUNC", 0)
_ANCILLARY = socket.CMSG_SPACE(MOST_SENT_FILES * array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


class BrokenWire(Exception):
    """The bytes that came are not a frame, or exceed a limit of the protocol."""


class FrameTooLarge(BrokenWire):
    """A frame that exceeds the size limits."""


class Overrun(BrokenWire):
    """The other side made this one hold more than a limit of the call allows."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


class Closed(Exception):
    """The other side closed the connection."""


class Frame(Struct, frozen=True):
    """One message: a JSON object, and bytes that would be longer as JSON."""

    head: dict[str, Any]
    blob: bytes = b""
    size: int = 0  # bytes of the head as JSON


class Sizes(Struct, frozen=True):
    """Limits for the parts of a frame."""

    head: int
    blob: int
    units: int = sys.maxsize  # of work to parse a head, see `is_heavy`


FROM_WORKER = Sizes(LARGEST_QUESTION, LARGEST_SENT_BLOB, MOST_HEAD_UNITS)
FROM_HOST = Sizes(LARGEST_ANSWER, LARGEST_ANSWERED_BLOB)


def packed(head: Mapping[str, Any], blob: bytes = b"") -> bytes:
    """A frame as bytes."""
    return packed_head(head, len(blob)) + blob


def packed_head(head: Mapping[str, Any], blob: int) -> bytes:
    """The beginning of a frame whose blob of so many bytes is sent after it."""
    text = _encode(head).encode()
    return _LENGTHS.pack(len(text), blob) + text


class Unpacker:
    """Turns received bytes into frames. It buffers at most one incomplete frame.

    `admit` is called with each head and the size of its blob before the blob is read, and may raise `BrokenWire`.
    """

    __slots__ = ("_admit", "_buffer", "_head", "_size", "_sizes", "_wanted")

    def __init__(self, sizes: Sizes, admit: Callable[[dict[str, Any], int, int], None] | None = None) -> None:
        self._sizes = sizes
        self._admit = admit
        self._buffer = bytearray()
        self._head: dict[str, Any] | None = None  # of the frame whose blob is being read
        self._size = 0  # bytes of that head
        self._wanted = _LENGTHS.size

    @property
    def next_read(self) -> int:
        """How many bytes to read at once."""
        if not self._buffer:
            return SHORT_READ
        return min(max(self._wanted - len(self._buffer), SHORT_READ), LONG_READ)

    @property
    def between(self) -> bool:
        """Whether the last frame is complete and no byte of another one has come."""
        return not self._buffer and self._head is None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete. Raises `BrokenWire`."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= self._wanted:
            if self._head is None:
                size, blob = _LENGTHS.unpack_from(buffer)
                if size > self._sizes.head or blob > self._sizes.blob:
                    raise FrameTooLarge(f"a frame of {size} + {blob} bytes, expected at most {self._sizes}")
                self._wanted = _LENGTHS.size + size
                if len(buffer) < self._wanted:
                    return
                head = parsed(self._cut(self._wanted)[_LENGTHS.size :], self._sizes.units)
                if self._admit is not None:
                    self._admit(head, size, blob)
                self._head, self._size, self._wanted = head, size, blob
            else:
                frame = Frame(self._head, self._cut(self._wanted), self._size)
                self._head, self._wanted = None, _LENGTHS.size
                yield frame

    def _cut(self, size: int) -> bytes:
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[:size]
        return data


def parsed(text: bytes, units: int = sys.maxsize) -> dict[str, Any]:
    """The JSON object in a text: strict JSON, and not too deep for code that walks through it."""
    if is_heavy(text, units):
        raise BrokenWire("a frame whose head holds too many values")
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError) as wrong:
        raise BrokenWire(f"not JSON: {type(wrong).__name__}") from None
    if not isinstance(value, dict):
        raise BrokenWire(f"expected a JSON object, found {type(value).__name__}")
    if text.count(b"[") + text.count(b"{") > DEEPEST_HEAD and _deeper(value, DEEPEST_HEAD):
        raise BrokenWire(f"JSON that is more than {DEEPEST_HEAD} deep")
    return value


def _deeper(value: dict[str, Any], most: int) -> bool:
    level: list[Any] = [value]
    for _ in range(most):
        inner: list[Any] = []
        for item in level:
            inner += item.values() if isinstance(item, dict) else item
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return False
    return True


class Wire:
    """One end of a socket pair for blocking code: in the zygote, in a worker, and in threads of the host."""

    __slots__ = ("_files", "_frames", "_unpacker", "socket")

    def __init__(self, end: socket.socket, sizes: Sizes) -> None:
        self.socket = end
        self._unpacker = Unpacker(sizes)
        self._frames: deque[Frame] = deque()
        self._files: deque[tuple[int, ...]] = deque()

    def send(self, head: Mapping[str, Any], blob: bytes = b"", files: Sequence[int] = ()) -> None:
        """Send a frame, with files attached to its first byte. Raises `Closed`."""
        try:
            send_all(self.socket, packed(head, blob), files)
        except OSError as gone:
            raise Closed(str(gone)) from None

    def receive(self) -> Frame:
        """Wait for the next frame. Raises `Closed`."""
        while not self._frames:
            self.take()
        return self._frames.popleft()

    def take(self) -> None:
        """Wait for some bytes, and keep the frames that they complete."""
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(self._unpacker.next_read, _ANCILLARY, _CLOEXEC)
        except OSError as gone:
            raise Closed(str(gone)) from None
        if ancillary or flags & _TRUNCATED:  # the kernel drops the files that this process may not open
            self._files.append(_files(ancillary))
        if not data:
            raise Closed("the other side has closed")
        self._frames += self._unpacker.feed(data)

    def frames(self) -> Iterator[Frame]:
        """The complete frames that were read."""
        while self._frames:
            yield self._frames.popleft()

    def files(self, count: int) -> tuple[int, ...]:
        """The files of the next frame that has files. Raises `OSError` if this process may not open so many."""
        if not self._files:
            raise BrokenWire("a frame came without its files")
        found = self._files.popleft()
        if len(found) == count:
            return found
        _close(found)
        if len(found) > count:
            raise BrokenWire("a frame came with more files than it says")
        raise OSError(errno.EMFILE, "Too many open files")

    def file(self) -> int:
        """The only file of a frame; the caller closes it."""
        (found,) = self.files(1)
        return found

    def drop(self, frame: Frame) -> None:
        """Close the files of a frame that is not needed."""
        if frame.head.get("files"):
            _close(self._files.popleft())

    def close(self) -> None:
        """Close the connection, and the files that were not taken."""
        while self._files:
            _close(self._files.popleft())
        self.socket.close()


def _files(ancillary: Iterable[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
    return tuple(found)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def send_all(end: socket.socket, data: bytes, files: Sequence[int] = ()) -> None:
    """Send everything on a blocking socket; files are attached to the first byte."""
    if files:
        sent = end.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        data = data[sent:]
    if data:
        end.sendall(data)


_written = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


async def packed_names(names: Sequence[str], meter: Meter) -> bytes:
    """The list as JSON; `Exceeded` if the host may not hold it together with its JSON."""
    with meter.share() as share, io.BytesIO() as written:  # `getvalue` does not copy
        share.take(sum(map(sys.getsizeof, names)))
        written.write(b"[")
        for start in range(0, len(names), NAMES_AT_ONCE):
            if start:
                written.write(b",")
                await asyncio.sleep(0)
            # A file name that is not UTF-8 holds lone surrogates.
            piece = _written(names[start : start + NAMES_AT_ONCE])[1:-1].encode("utf-8", "surrogatepass")
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
            _close_files(files)
            return
        size, limits = len(head) + len(blob) + ANSWER_OVERHEAD, self._meter
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
            _close_files(files)
            raise Overrun(over.reason, str(over)) from None
        self.held += size
        self._files += len(files)
        if len(blob) > SENT_APART:
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
            _close_files(piece.files)
        self._pieces.clear()
        self._let_in()

    def _write(self) -> None:
        while self._pieces:
            piece = self._pieces[0]
            if piece.files and _unread(self._end) >= self._meter.host_files * UNREAD_MESSAGE:
                self._pause()
                return
            try:
                sent = _send(self._end, piece.data, piece.files)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as gone:
                self._failed(Closed(str(gone)))
                return
            _close_files(piece.files)
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
        self._loop.call_later(UNREAD_SECONDS, self._go_on)

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


def _close_files(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
