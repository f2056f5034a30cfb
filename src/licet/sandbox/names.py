"""Lists of names and keys as bytes of an answer.

A list may be many megabytes. It is written as JSON in short steps, so that the event loop goes on in between, and both
the list and what is written are counted by the meter of the call.
"""

import asyncio
import io
import json
import sys
from collections.abc import Sequence

from licet.guard.meter import Meter

AT_ONCE = 100  # names that are written in one step: at most some tens of kilobytes
_written = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


async def packed_names(names: Sequence[str], meter: Meter) -> bytes:
    """The list as JSON; `Exceeded` if the host may not hold it together with its JSON."""
    with meter.share() as share, io.BytesIO() as written:  # whose value is not copied
        share.take(sum(map(sys.getsizeof, names)))
        written.write(b"[")
        for start in range(0, len(names), AT_ONCE):
            if start:
                written.write(b",")
                await asyncio.sleep(0)
            # A name may hold lone surrogates, for bytes that are no text.
            piece = _written(names[start : start + AT_ONCE])[1:-1].encode("utf-8", "surrogatepass")
            share.take(len(piece))
            written.write(piece)
        written.write(b"]")
        return written.getvalue()


def names_in(data: bytes) -> list[str]:
    """The list that was written so."""
    names: list[str] = json.loads(data)
    return names
