"""Streams of server-sent events: every way to cut and to end lines gives the same messages."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.backends.http import Pace
from licet.guard.handles.messages import Decoder
from licet.guard.ports import Reply
from licet.mcp.http_messages import Events, event_data, new_meter
from licet.mcp.limits import LONGEST_EVENT_ID
from licet.mcp.link import Flood

STREAMS: dict[str, tuple[bytes, list[bytes], str, float | None]] = {
    "one event": (b"data: a\n\n", [b"a"], "", None),
    "without a space": (b"data:a\n\n", [b"a"], "", None),
    "two spaces": (b"data:  a\n\n", [b" a"], "", None),
    "two events": (b"data: a\n\ndata: b\n\n", [b"a", b"b"], "", None),
    "carriage returns": (b"data: a\r\rdata: b\r\r", [b"a", b"b"], "", None),
    "both": (b"event: message\r\ndata: a\r\n\r\n", [b"a"], "", None),
    "several lines": (b"data: {\ndata: }\n\n", [b"{\n}"], "", None),
    "several lines that end with both": (b"data: {\r\ndata: }\r\n\r\n", [b"{\n}"], "", None),
    "a comment": (b": ping\n\ndata: a\n\n", [b"a"], "", None),
    "another kind of event": (b"event: other\ndata: a\n\ndata: b\n\n", [b"b"], "", None),
    "an id": (b"id: 7\ndata: a\n\n", [b"a"], "7", None),
    "an id without data": (b"id: 7\ndata:\n\n", [], "7", None),
    "an id stays": (b"id: 7\ndata: a\n\ndata: b\n\n", [b"a", b"b"], "7", None),
    "an unfinished id": (b"data: a\n\nid: 7\ndata: b\n", [b"a"], "", None),
    "an id that is no header": (b"id: a b\ndata: a\n\nid: \xc3\xbc\ndata: b\n\n", [b"a", b"b"], "", None),
    "a long id": (b"id: " + b"x" * (LONGEST_EVENT_ID + 1) + b"\ndata: a\n\n", [b"a"], "", None),
    "a pause": (b"retry: 250\ndata: a\n\n", [b"a"], "", 0.25),
    "no pause": (b"retry: soon\nretry: -1\nretry: 1e9\ndata: a\n\n", [b"a"], "", None),
    "unknown fields": (b"data\nfoo: a\ndata: b\n\n", [b"\nb"], "", None),
    "unfinished": (b"data: a\n\ndata: b", [b"a"], "", None),
    "nothing": (b"\n\n\n", [], "", None),
}


def read(pieces: list[bytes], events: Events | None = None) -> tuple[list[bytes], str, float | None]:
    events = events or Events()
    found = [data for piece in pieces for data in events.feed(piece)]
    return found, events.last_id, events.retry


@pytest.mark.parametrize("case", STREAMS)
def test_events_are_read_however_they_are_cut(case: str) -> None:
    raw, *expected = STREAMS[case]
    assert list(read([raw])) == expected
    assert list(read([raw[at : at + 1] for at in range(len(raw))])) == expected
    for at in range(len(raw)):
        assert list(read([raw[:at], b"", raw[at:]])) == expected


@given(
    st.lists(st.text(alphabet="abc:{ü", min_size=1), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_cuts_and_line_ends_change_nothing(messages: list[str], end: str, cuts: list[int]) -> None:
    raw = "".join(f"data: {message}{end}{end}" for message in messages).encode()
    places = [0, *sorted(cuts), len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(places)]
    assert read(pieces)[0] == [message.encode() for message in messages]


@pytest.mark.parametrize("piece", [b"data: xxxx", b"data: x\n", b"data\n", b"x", b": a comment", b"id: "])
def test_what_is_unfinished_has_a_limit(piece: bytes) -> None:
    with pytest.raises(Flood, match="more than 100 bytes"):
        read([piece] * 200, Events(lambda: 100))


def test_a_stream_may_be_longer_than_the_limit_of_one_message() -> None:
    events = Events(lambda: 100)
    assert sum(len(list(events.feed(b"data: 12345\n\n"))) for _ in range(1000)) == 1000
    assert events.held == 0


def test_members_that_decompress_to_nothing_are_steps_too() -> None:
    assert len([*Decoder("gzip", 1 << 20).feed(gzip.compress(b"") * 500)]) == 500


COSTLY = {"ends of lines": ("", b"\n" * (1 << 16)), "empty members": ("gzip", gzip.compress(b"") * 1000)}


@pytest.mark.parametrize("case", COSTLY)
def test_a_stream_of_nothing_may_rest_after_every_few_bytes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coding, sent = COSTLY[case]
    kept = 0

    async def count(pace: Pace) -> None:
        nonlocal kept
        kept += 1

    async def body() -> AsyncIterator[bytes]:
        yield sent

    async def work() -> list[bytes]:
        reply = Reply(200, (("content-encoding", coding),), body(), "HTTP/1.1")
        return [data async for data in event_data(reply, Events(), new_meter())]

    monkeypatch.setattr(Pace, "keep", count)
    assert asyncio.run(work()) == []
    assert kept >= len(sent) // 4096
