"""Messages between the resident and its clients: they come out as they went in, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from licet.hooks import resident_wire as wire
from licet.hooks.resident_wire import BadMessage, Messages, number, number_in, packed

SIZES = {1: 1000, 2: 0, 3: 64}
FIELDS = some.lists(some.binary(max_size=40), max_size=8)


@given(some.lists(FIELDS, max_size=5), some.integers(1, 50))
def test_messages_come_out_as_they_went_in(messages: list[list[bytes]], step: int) -> None:
    data = b"".join(packed(1, *fields) for fields in messages)
    reader, found = Messages(SIZES), []
    for start in range(0, len(data), step):
        found += reader.feed(data[start : start + step])
    assert found == [(1, fields) for fields in messages]
    assert reader.between


@given(some.binary(max_size=200))
def test_other_bytes_are_no_message_or_wait_for_more(data: bytes) -> None:
    reader = Messages(SIZES)
    try:
        found = reader.feed(data)
    except BadMessage:
        return
    assert all(kind in SIZES for kind, _ in found)
    assert b"".join(packed(kind, *fields) for kind, fields in found) == data[: len(data) - len(reader._buffer)]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\0\0\0\0",  # another version
        b"\1\4\0\0\0\0",  # a kind that nobody sends
        b"\1\1\0\0\3\xe9",  # one byte more than the largest
        b"\1\2\0\0\0\1",
        b"\1\1\0\0\0\3abc",  # half a length
        b"\1\1\0\0\0\5\0\0\0\2a",  # a field that is longer than the message
        b"\1\1\0\0\0\4\xff\xff\xff\xff",
    ],
)
def test_what_is_no_message_ends_the_conversation(data: bytes) -> None:
    with pytest.raises(BadMessage):
        Messages(SIZES).feed(data)


def test_a_message_has_a_limited_number_of_fields() -> None:
    sizes = {1: 1 << 20}
    most = 2 * 1_000
    assert Messages(sizes).feed(packed(1, *[b""] * most)) == [(1, [b""] * most)]
    with pytest.raises(BadMessage):
        Messages(sizes).feed(packed(1, *[b""] * (most + 1)))


@given(some.integers(-(1 << 31), (1 << 31) - 1))
def test_a_number_comes_out_as_it_went_in(value: int) -> None:
    assert number_in(number(value)) == value


def test_a_number_has_one_length() -> None:
    with pytest.raises(BadMessage):
        number_in(b"\0")


def test_no_kind_is_both_a_question_and_an_answer() -> None:
    assert not wire.FROM_CLIENT.keys() & wire.FROM_RESIDENT.keys()
