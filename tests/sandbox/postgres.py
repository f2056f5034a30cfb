"""As much of a PostgreSQL server as a driver needs to ask one question: a greeting, a password, a row."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from loopback import Server, secured_context, talking

_SSL_REQUEST = 80877103


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(word: str) -> bytes:
    return word.encode() + b"\0"


_READY = _message(b"Z", b"I")
_GREETING = (
    _message(b"R", struct.pack("!i", 0))
    + b"".join(
        _message(b"S", _text(name), _text(value))
        for name, value in {"server_version": "16.0", "client_encoding": "UTF8", "TimeZone": "UTC"}.items()
    )
    + _message(b"K", struct.pack("!ii", 1, 1))
    + _READY
)


def _row(word: str) -> bytes:
    described = _message(b"T", struct.pack("!h", 1), _text("word"), struct.pack("!ihihih", 0, 0, 25, -1, -1, 0))
    row = _message(b"D", struct.pack("!hi", 1, len(word)), word.encode())
    return described + row + _message(b"C", _text("SELECT 1")) + _READY


@contextmanager
def database(word: str, names: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server whose every answer is one word; with names it offers TLS, with a certificate for them."""
    context = secured_context(names) if names else None

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size, code = struct.unpack("!ii", await reader.readexactly(8))
        if code == _SSL_REQUEST:
            writer.write(b"S" if context is not None else b"N")
            await writer.drain()
            if context is not None:
                await writer.start_tls(context)
            size, code = struct.unpack("!ii", await reader.readexactly(8))
        await reader.readexactly(size - 8)
        writer.write(_message(b"R", struct.pack("!i", 3)))  # the password, as it is
        while True:
            kind, size = struct.unpack("!ci", await reader.readexactly(5))
            body = await reader.readexactly(size - 4)
            match kind:
                case b"p" if body == b"secret\0":
                    writer.write(_GREETING)
                case b"Q":
                    writer.write(_row(word) if body == b"select word\0" else _READY)
                case b"X":
                    return
                case _:
                    raise ValueError(f"a message {kind!r} that this server does not know")

    with talking(talk) as server:
        yield server
