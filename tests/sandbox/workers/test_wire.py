"""Frames: what goes in comes out, in whatever pieces; what breaks a limit ends the conversation."""

import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.sandbox.bridge.wire import FROM_WORKER, BrokenWire, Closed, Frame, Sizes, Unpacker, Wire, packed

SMALL = Sizes(head=2000, blob=100)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    one, two = socket.socketpair()
    wires = Wire(one, FROM_WORKER), Wire(two, FROM_WORKER)
    yield wires
    for wire in wires:
        wire.close()


def raw(text: bytes, blob: bytes = b"") -> bytes:
    return struct.pack("<II", len(text), len(blob)) + text + blob


@given(
    st.lists(st.tuples(st.dictionaries(st.text(max_size=4), DATA, max_size=3), st.binary(max_size=40)), max_size=4),
    st.integers(1, 50),
)
def test_frames_arrive_as_they_were_sent_in_pieces_of_any_size(
    sent: list[tuple[dict[str, Any], bytes]], n: int
) -> None:
    unpacker, stream = Unpacker(FROM_WORKER), b"".join(packed(*each) for each in sent)
    pieces = [stream[start : start + n] for start in range(0, len(stream), n)]
    frames = [frame for piece in pieces for frame in unpacker.feed(piece)]
    assert frames == [Frame(head, blob, len(packed(head)) - 8) for head, blob in sent]
    assert unpacker.between


BROKEN = {
    "a head over its limit": struct.pack("<II", SMALL.head + 1, 0),
    "a blob over its limit": struct.pack("<II", 2, SMALL.blob + 1),
    "lengths that are all ones": b"\xff" * 8,
    "no JSON": raw(b"{]"),
    "not UTF-8": raw(b'{"a":"\xff"}'),
    "a list": raw(b"[]"),
    "a number": raw(b"1"),
    "nothing": raw(b""),
    "NaN": raw(b'{"a":NaN}'),
    "infinity": raw(b'{"a":-Infinity}'),
    "two objects": raw(b"{}{}"),
    "deep lists": raw(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"),
    "deep objects": raw(b'{"a":' * 200 + b"1" + b"}" * 200),
    "a pickle": raw(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94."),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_no_frame_ends_the_conversation(data: bytes) -> None:
    with pytest.raises(BrokenWire):
        list(Unpacker(SMALL).feed(data))


def test_json_so_deep_that_the_parser_gives_up_is_no_frame() -> None:
    with pytest.raises(BrokenWire):
        list(Unpacker(FROM_WORKER).feed(raw(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")))


def test_a_number_of_many_digits_is_no_frame() -> None:
    with pytest.raises(BrokenWire):
        list(Unpacker(FROM_WORKER).feed(raw(b'{"a":' + b"9" * 10_000 + b"}")))


def test_json_within_the_limits_passes_however_wide() -> None:
    head = {"a": [[1]] * 200, "deep": json.loads("[" * 90 + "]" * 90)}
    assert list(Unpacker(FROM_WORKER).feed(packed(head))) == [Frame(head, b"", len(packed(head)) - 8)]


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_kept() -> None:
    unpacker = Unpacker(SMALL)
    with pytest.raises(BrokenWire):
        list(unpacker.feed(struct.pack("<II", 1 << 31, 1 << 31)))
    assert len(unpacker._buffer) == 8


def test_files_go_with_their_frames(ends: tuple[Wire, Wire]) -> None:
    one, two = ends
    reads = []
    for word in (b"first", b"second"):
        read, write = os.pipe()
        os.write(write, word)
        os.close(write)
        reads.append(read)
    one.send({"n": 0})
    one.send({"n": 1}, b"blob", [reads[0]])
    one.send({"n": 2}, files=[reads[1]])
    for read in reads:
        os.close(read)
    assert two.receive() == Frame({"n": 0}, b"", 7)
    assert two.receive() == Frame({"n": 1}, b"blob", 7)
    first = two.file()
    assert two.receive() == Frame({"n": 2}, b"", 7)
    second = two.file()
    assert (os.read(first, 9), os.read(second, 9)) == (b"first", b"second")
    assert not os.get_inheritable(first)
    with pytest.raises(BrokenWire):
        two.file()
    os.close(first)
    os.close(second)


def test_files_that_nobody_took_are_closed_with_the_wire(ends: tuple[Wire, Wire]) -> None:
    one, two = ends
    read, write = os.pipe()
    one.send({}, files=[write])
    os.close(write)
    two.receive()
    two.close()
    assert os.read(read, 1) == b""  # every writing end is gone
    os.close(read)


@pytest.mark.parametrize(("sent", "said", "wrong"), [(5, 5, OSError), (3, 4, OSError), (2, 1, BrokenWire)])
def test_files_that_are_not_what_was_said_are_closed(
    ends: tuple[Wire, Wire], sent: int, said: int, wrong: type[Exception]
) -> None:
    one, two = ends
    read, write = os.pipe()
    one.send({}, files=[write] * sent)
    one.send({"n": 1}, files=[write])
    os.close(write)
    two.receive()
    with pytest.raises(wrong):
        two.files(said)
    two.receive()
    (own,) = two.files(1)  # those of the next frame are still its own
    os.close(own)
    assert os.read(read, 1) == b""  # every writing end is gone
    os.close(read)


@pytest.mark.parametrize("act", ["send", "receive"])
def test_the_other_side_may_go_at_any_time(ends: tuple[Wire, Wire], act: str) -> None:
    one, two = ends
    one.close()
    with pytest.raises(Closed):
        two.send({"a": 1}) if act == "send" else two.receive()


def test_half_a_frame_and_a_close_is_a_close(ends: tuple[Wire, Wire]) -> None:
    one, two = ends
    one.socket.sendall(packed({"a": 1})[:-1])
    one.close()
    with pytest.raises(Closed):
        two.receive()
