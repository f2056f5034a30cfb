"""The protocol between the host and a worker: frames of JSON with a blob of bytes, and open files for the worker.

A frame is two lengths, a JSON object (the head) and a blob. Nothing is unpickled or evaluated. Whatever exceeds a limit
ends the conversation. Files travel from the host to a worker only: the host never receives the files a worker sends.
"""

import array
import errno
import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from licet.core.decision.request import Reason
from licet.declare.plain_json import is_heavy

_LENGTHS = struct.Struct("<II")
MOST_DEPTH = 100  # of JSON inside JSON
_SHORT_READ, _LONG_READ = 1 << 14, 1 << 18  # bytes of one read: usually, and in the middle of a long frame
_MOST_FILES = 4  # of one frame
_CLOEXEC, _TRUNCATED = getattr(socket, "MSG_CMSG_CLOEXEC", 0), getattr(socket, "MSG_CTRUNC", 0)
_ANCILLARY = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0


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


FROM_WORKER = Sizes(head=4 << 20, blob=32 << 20, units=50_000)  # the arguments of a command may be long
RESULT_BYTES = 16 << 20  # of the result of a tool; a result longer than `limits.output_kb` is cut
FROM_HOST = Sizes(head=16 << 20, blob=300 << 20)  # a response of `ctx.fetch` may be large


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
            return _SHORT_READ
        return min(max(self._wanted - len(self._buffer), _SHORT_READ), _LONG_READ)

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
    if text.count(b"[") + text.count(b"{") > MOST_DEPTH and _deeper(value, MOST_DEPTH):
        raise BrokenWire(f"JSON that is more than {MOST_DEPTH} deep")
    return value


def _deeper(value: Any, most: int) -> bool:
    level = [value]
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
