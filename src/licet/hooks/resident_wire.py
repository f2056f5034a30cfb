"""The messages between the resident and its clients: a version, a kind, a length, and fields of bytes with lengths.

Nothing is evaluated, and a message that exceeds a limit ends the conversation. It imports nothing but limits: a client
that is called for every event of an agent has no time to load `json` or `struct`.
"""

from licet.hooks.limits import (
    LINE_BYTES,
    MOST_VARIABLES,
    PATH_BYTES,
    PAYLOAD_BYTES,
    PRINTED_BYTES,
    REASON_BYTES,
    VALUES_BYTES,
    WORD_BYTES,
)

VERSION = 1

# What clients send.
HOOK = 1  # agent, event, current directory, payload
LINE = 2  # ticket, text, current directory; with the descriptors 0, 1 and 2 of the client
VALUES = 3  # name, value, name, value …: of the variables that were wanted, those which exist
SIGNAL = 4  # a number: the client has received this signal
STATUS = 5
STOP = 6

# What the resident sends.
ANSWER = 17  # output, errors, exit code
TAKEN = 18  # the line was taken: from here on it may have begun
WANTED = 19  # names of variables
ENDED = 20  # exit code of the line; a negative one is the signal that ended it
REFUSED = 21  # why: the request has no other answer
ALONE = 22  # nothing was done: the client has to work without the resident
LEAVING = 23  # nothing was done, and this resident ends: another one has to be started
STATE = 24  # name, value, name, value …: of the resident

HEAD = 6  # bytes before the body
_LENGTH = 4  # bytes of the length of a body or a field

_FIELDS = 16 * _LENGTH
FROM_CLIENT: dict[int, int] = {  # the longest body of each kind
    HOOK: 2 * WORD_BYTES + PATH_BYTES + PAYLOAD_BYTES + _FIELDS,
    LINE: WORD_BYTES + LINE_BYTES + PATH_BYTES + _FIELDS,
    VALUES: VALUES_BYTES,
    SIGNAL: _FIELDS,
    STATUS: 0,
    STOP: 0,
}
FROM_RESIDENT: dict[int, int] = {
    ANSWER: PRINTED_BYTES + _FIELDS,
    TAKEN: 0,
    WANTED: VALUES_BYTES,
    ENDED: _FIELDS,
    REFUSED: REASON_BYTES + _FIELDS,
    ALONE: 0,
    LEAVING: 0,
    STATE: PATH_BYTES,
}
_MOST_FIELDS = 2 * MOST_VARIABLES


class BadMessage(Exception):
    """The bytes that came are no message, or exceed a limit."""


def packed(kind: int, *fields: bytes) -> bytes:
    """A message as bytes."""
    body = b"".join([len(field).to_bytes(_LENGTH, "big") + field for field in fields])
    return bytes((VERSION, kind)) + len(body).to_bytes(_LENGTH, "big") + body


def number(value: int) -> bytes:
    """A number as a field: an exit code, or a signal."""
    return value.to_bytes(_LENGTH, "big", signed=True)


def number_in(field: bytes) -> int:
    """The number that `number` wrote."""
    if len(field) != _LENGTH:
        raise BadMessage("a number of another length")
    return int.from_bytes(field, "big", signed=True)


class Messages:
    """Turns received bytes into messages. It keeps at most one incomplete message."""

    __slots__ = ("_buffer", "_largest")

    def __init__(self, largest: dict[int, int]) -> None:
        self._buffer = bytearray()
        self._largest = largest

    @property
    def between(self) -> bool:
        """Whether the last message is complete and no byte of another one has come."""
        return not self._buffer

    def feed(self, data: bytes) -> list[tuple[int, list[bytes]]]:
        """The messages that these bytes complete: their kinds and fields. Raises `BadMessage`."""
        buffer, found = self._buffer, []
        buffer += data
        while len(buffer) >= HEAD:
            kind, size = self._head()
            end = HEAD + size
            if len(buffer) < end:
                break
            found.append((kind, _fields(bytes(buffer[HEAD:end]))))
            del buffer[:end]
        return found

    def _head(self) -> tuple[int, int]:
        version, kind = self._buffer[0], self._buffer[1]
        if version != VERSION or kind not in self._largest:
            raise BadMessage("a message of another version or kind")
        size = int.from_bytes(self._buffer[2:HEAD], "big")
        if size > self._largest[kind]:
            raise BadMessage(f"a message of {size} bytes")
        return kind, size


def _fields(body: bytes) -> list[bytes]:
    found: list[bytes] = []
    start = 0
    while start < len(body):
        begin = start + _LENGTH
        start = begin + int.from_bytes(body[begin - _LENGTH : begin], "big")
        if start > len(body) or begin > len(body) or len(found) >= _MOST_FIELDS:
            raise BadMessage("fields that exceed their message")
        found.append(body[begin:start])
    return found
