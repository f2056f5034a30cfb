"""The only thing that crosses a wall: frames of JSON, bytes beside it, and open files handed inwards.

A frame is two lengths, a JSON object and a blob. Nothing is unpickled or evaluated, and whatever breaks a limit ends
the conversation. Files travel from the host to a child alone: what a child pushes the other way is never received.
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
from typing import Any, NamedTuple

from licet.core.decision.decision import Reason
from licet.declare.plain_json import is_heavy

_LENGTHS = struct.Struct("<II")
MOST_DEPTH = 100  # of JSON inside JSON
# Most frames are short, and memory for a long read is mapped and unmapped each time: only long frames get that.
SHORT_READ, _LONG_READ = 1 << 14, 1 << 18
_MOST_FILES = 4  # of one frame
_CLOEXEC, _CUT = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0)), int(getattr(socket, "MSG_CTRUNC", 0))  # enums are slow
_BESIDE = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


_written = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_scan: Any = vars(json.JSONDecoder(parse_constant=_no_constant))["scan_once"]  # which takes no spaces around a text


class BrokenWire(Exception):
    """What came over the wire is no frame, or more than was agreed on."""


class TooMuch(BrokenWire):
    """A frame that is larger than was agreed on."""


class Overrun(BrokenWire):
    """The other side made this one hold more than a limit of the call allows."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


class Closed(Exception):
    """The other side has gone."""


class Frame(NamedTuple):
    """One message: an object, and bytes that JSON would only make longer."""

    head: dict[str, Any]
    blob: bytes = b""
    size: int = 0  # of the head as text


class Sizes(NamedTuple):
    """How much of each part is taken from the other side."""

    head: int
    blob: int
    units: int = sys.maxsize  # of work to parse a head, see `is_heavy`


FROM_A_CHILD = Sizes(head=4 << 20, blob=32 << 20, units=50_000)  # the words of a command may be long
RESULT_BYTES = 16 << 20  # of what a tool returns; what is longer than `limits.output_kb` is cut
FROM_THE_HOST = Sizes(head=16 << 20, blob=300 << 20)  # an answer of `ctx.fetch` may be large


def packed(head: Mapping[str, Any], blob: bytes = b"") -> bytes:
    """A frame as bytes."""
    return framed(_written(head).encode(), blob)


def packed_head(head: Mapping[str, Any], blob: int) -> bytes:
    """The beginning of a frame, up to a blob of so many bytes that is sent after it."""
    text = _written(head).encode()
    return _LENGTHS.pack(len(text), blob) + text


def framed(text: bytes, blob: bytes = b"") -> bytes:
    """A frame whose head is JSON already."""
    return b"".join((_LENGTHS.pack(len(text), len(blob)), text, blob))


def succeeded(call: int) -> bytes:
    """The head of the frame by which a worker says that a call went well; its blob is the value."""
    return b'{"op":"result","call":%d}' % call


def value_in(data: bytes, call: int) -> bytes | None:
    """The value, where these bytes are that frame and nothing else."""
    head = succeeded(call)
    middle = _LENGTHS.size + len(head)
    if data[:middle] != _LENGTHS.pack(len(head), max(len(data) - middle, 0)) + head:
        return None
    return data[middle:]


def members(head: Mapping[str, Any]) -> bytes:
    """The inside of an object as JSON, to be put into heads that are otherwise the same."""
    return _written(head)[1:-1].encode()


class Unpacker:
    """Turns bytes as they come into frames; it keeps at most one frame that is not whole yet.

    `admit` is called with each head and the size of its blob before the blob is read, and may raise `BrokenWire`.
    """

    __slots__ = ("_admit", "_buffer", "_head", "_size", "_sizes", "_wanted")

    def __init__(self, sizes: Sizes, admit: Callable[[dict[str, Any], int, int], None] | None = None) -> None:
        self._sizes = sizes
        self._admit = admit
        self._buffer = bytearray()
        self._head: dict[str, Any] | None = None  # of the frame whose blob is being read
        self._size = 0  # of that head as text
        self._wanted = _LENGTHS.size

    @property
    def next_read(self) -> int:
        """How much to read at once."""
        if not self._buffer:
            return SHORT_READ
        return min(max(self._wanted - len(self._buffer), SHORT_READ), _LONG_READ)

    @property
    def between(self) -> bool:
        """Whether nothing has come of a frame that is not whole."""
        return not self._buffer and self._head is None

    def feed(self, data: bytes) -> Iterable[Frame]:
        """The frames that are whole now, or `BrokenWire`."""
        if self.between and (text := whole(data, self._sizes)) is not None:  # as most often
            head, blob = self._parsed(text[0], len(text[1])), text[1]
            return (Frame(head, blob, len(text[0])),)
        return self._fed(data)

    def _fed(self, data: bytes) -> Iterator[Frame]:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= self._wanted:
            if self._head is None:
                head, blob = _LENGTHS.unpack_from(buffer)
                if head > self._sizes.head or blob > self._sizes.blob:
                    raise TooMuch(f"a frame of {head} + {blob} bytes, expected at most {self._sizes}")
                self._wanted = _LENGTHS.size + head
                if len(buffer) < self._wanted:
                    return
                text = self._cut(self._wanted)[_LENGTHS.size :]
                self._head, self._size, self._wanted = self._parsed(text, blob), head, blob
            else:
                frame = Frame(self._head, self._cut(self._wanted), self._size)
                self._head, self._wanted = None, _LENGTHS.size
                yield frame

    def _parsed(self, text: bytes, blob: int) -> dict[str, Any]:
        head = parsed(text, self._sizes.units)
        if self._admit is not None:
            self._admit(head, len(text), blob)
        return head

    def _cut(self, size: int) -> bytes:
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[:size]
        return data


def whole(data: bytes, sizes: Sizes) -> tuple[bytes, bytes] | None:
    """The head as text, and the blob, of the frame that these bytes are; None if they are less or more than one."""
    if len(data) < _LENGTHS.size:
        return None
    head, blob = _LENGTHS.unpack_from(data)
    middle = _LENGTHS.size + head
    if middle + blob != len(data) or head > sizes.head or blob > sizes.blob:
        return None
    return data[_LENGTHS.size : middle], data[middle:]


def parsed(text: bytes, units: int = sys.maxsize) -> dict[str, Any]:
    """The object that a text says: strict JSON, and not too deep for whoever walks through it later."""
    if is_heavy(text, units):
        raise BrokenWire("a frame whose head holds too many values")
    try:
        value, end = _scan(said := text.decode(), 0)
    except (ValueError, RecursionError, StopIteration) as wrong:
        raise BrokenWire(f"no JSON: {type(wrong).__name__}") from None
    if end != len(said):
        raise BrokenWire("more than one JSON text")
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
    """One end of a socket pair where waiting is allowed: in the zygote, in a child, and in threads of the host."""

    __slots__ = ("_files", "_frames", "_unpacker", "socket")

    def __init__(self, end: socket.socket, sizes: Sizes) -> None:
        self.socket = end
        self._unpacker = Unpacker(sizes)
        self._frames: deque[Frame] = deque()
        self._files: deque[tuple[int, ...]] = deque()

    def send(self, head: Mapping[str, Any], blob: bytes = b"", files: Sequence[int] = ()) -> None:
        """Send a frame, and files along with its first byte; `Closed` if nobody is there."""
        self.send_packed(packed(head, blob), files)

    def send_packed(self, frame: bytes, files: Sequence[int] = ()) -> None:
        """The same with a frame that is bytes already."""
        try:
            send_all(self.socket, frame, files)
        except OSError as gone:
            raise Closed(str(gone)) from None

    def receive(self) -> Frame:
        """Wait for the next frame; `Closed` if there will be none."""
        while not self._frames:
            self.take()
        return self._frames.popleft()

    def take(self) -> None:
        """Read what is there, at least something, and keep the frames that it completes."""
        try:
            data, beside, flags, _ = self.socket.recvmsg(self._unpacker.next_read, _BESIDE, _CLOEXEC)
        except OSError as gone:
            raise Closed(str(gone)) from None
        if beside or flags & _CUT:  # some may be lost: those that there was no room for
            self._files.append(_files(beside))
        if not data:
            raise Closed("the other side has closed")
        self._frames += self._unpacker.feed(data)

    def frames(self) -> Iterator[Frame]:
        """The frames that have been read already."""
        while self._frames:
            yield self._frames.popleft()

    def files(self, count: int) -> tuple[int, ...]:
        """The files of the next frame that came with some; `OSError` if this process may not open so many."""
        if not self._files:
            raise BrokenWire("a frame should have come with files")
        found = self._files.popleft()
        if len(found) == count:
            return found
        _close(found)
        if len(found) > count:
            raise BrokenWire("a frame came with more files than it says")
        raise OSError(errno.EMFILE, "Too many open files")

    def file(self) -> int:
        """The one file that came along; whoever takes it closes it."""
        (found,) = self.files(1)
        return found

    def drop(self, frame: Frame) -> None:
        """Close the files of a frame that nobody wants."""
        if frame.head.get("files"):
            _close(self._files.popleft())

    def close(self) -> None:
        """Hang up, and close files that nobody took."""
        while self._files:
            _close(self._files.popleft())
        self.socket.close()


def _files(beside: Iterable[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, raw in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
    return tuple(found)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def send_all(end: socket.socket, data: bytes, files: Sequence[int] = ()) -> None:
    """Send all of it on a socket that blocks; files go with the first byte."""
    if files:
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        sent = end.sendmsg([data], beside)
        data = data[sent:]
    if data:
        end.sendall(data)
