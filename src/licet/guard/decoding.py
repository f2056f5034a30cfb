"""Bodies as they arrive, decoded piece by piece and counted: what unpacks to too much stops while it unpacks."""

import zlib
from collections.abc import Iterator
from typing import Any

_SLICE = 64 * 1024  # compressed bytes taken at once
_STEP = 256 * 1024  # decoded bytes made at once
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_CODINGS = {"": "", "identity": "", "gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class TooLarge(Exception):
    """A body that is larger than it may be."""


class Corrupt(Exception):
    """A body that is not what its headers say."""


class Decoder:
    """Turns the pieces of one body into content. A coding that it does not know passes through as it is."""

    __slots__ = ("_coding", "_decoded", "_ended", "_head", "_most", "_raw", "_unpack")

    def __init__(self, coding: str, most: int) -> None:
        self._coding = _CODINGS.get(coding.strip().lower(), "")
        self._most = most
        self._raw = self._decoded = 0
        self._head = b""  # a first byte that waits for the second
        self._ended = False  # a whole stream has been read
        self._unpack: Any = None  # the stream that is being read

    def feed(self, raw: bytes) -> Iterator[bytes]:
        """The content that these bytes give; `TooLarge` or `Corrupt` if it goes wrong."""
        # What arrives counts as well: members that unpack to nothing could go on for ever.
        self._raw += len(raw)
        if self._raw > self._most:
            raise TooLarge
        if not self._coding:
            yield raw
            return
        for start in range(0, len(raw), _SLICE):
            yield from self._decode(raw[start : start + _SLICE])

    def finish(self) -> None:
        """Say that nothing more comes; `Corrupt` if something is missing."""
        if self._head or self._unpack is not None:
            raise Corrupt(f"the body ends in the middle of its {self._coding} data")

    def _decode(self, raw: bytes) -> Iterator[bytes]:
        while raw:
            if self._unpack is None:
                raw = self._begin(raw)
                continue
            try:
                piece = self._unpack.decompress(raw, min(_STEP, self._most - self._decoded + 1))
            except zlib.error as wrong:
                raise Corrupt(f"the body is not {self._coding} data") from wrong
            self._decoded += len(piece)
            if self._decoded > self._most:
                raise TooLarge
            if piece:
                yield piece
            raw = self._unpack.unconsumed_tail
            if self._unpack.eof:
                raw, self._unpack, self._ended = self._unpack.unused_data, None, True

    def _begin(self, raw: bytes) -> bytes:
        """Start the next stream, if what comes is one; what is left to read of it."""
        if self._ended:
            # Another member of gzip, or padding, which nobody reads.
            if self._coding != "gzip" or raw[:1] != b"\x1f":
                return b""
            self._unpack = zlib.decompressobj(_GZIP)
            return raw
        raw, self._head = self._head + raw, b""
        if len(raw) < 2:
            self._head = raw
            return b""
        form = _GZIP
        if self._coding == "deflate":  # the standard means zlib, and some send the bare stream
            form = _ZLIB if raw[0] & 0x0F == 8 and int.from_bytes(raw[:2]) % 31 == 0 else _RAW
        self._unpack = zlib.decompressobj(form)
        return raw
