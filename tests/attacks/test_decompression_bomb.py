"""A few kilobytes that unpack to gigabytes, or to nothing for ever."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest

from attacks.granted import refused
from attacks.nets import fetching
from licet.backends.memory import Answer
from loopback import serving

MEGABYTE = 1 << 20
SIZE = 100 * MEGABYTE


def bomb(form: int) -> bytes:
    packer = zlib.compressobj(9, wbits=form)
    packed = [packer.compress(bytes(MEGABYTE)) for _ in range(SIZE // MEGABYTE)]
    return b"".join([*packed, packer.flush()])


@pytest.mark.parametrize(("coding", "form"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
@pytest.mark.sampled(1)
def test_a_bomb_is_stopped_while_it_unpacks(coding: str, form: int) -> None:
    packed = bomb(form)
    assert len(packed) < MEGABYTE
    assert len(zlib.decompressobj(form).decompress(packed, 50 * MEGABYTE)) == 50 * MEGABYTE  # and on it goes

    with serving(lambda _: Answer(200, [("Content-Encoding", coding)], packed)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        tracemalloc.start()
        try:
            assert refused(fetch(f"http://127.0.0.1:{server.port}/")) == "LIMIT_SIZE"
            assert tracemalloc.get_traced_memory()[1] < 25 * MEGABYTE
        finally:
            tracemalloc.stop()


def test_members_that_hold_nothing_do_not_go_on_for_ever() -> None:
    empty = gzip.compress(b"") * 60_000
    assert len(empty) > MEGABYTE
    assert gzip.decompress(empty[:2000]) == b""

    with serving(lambda _: Answer(200, [("Content-Encoding", "gzip")], empty)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(f"http://127.0.0.1:{server.port}/", max_bytes=MEGABYTE)) == "LIMIT_SIZE"


def test_what_is_packed_twice_is_unpacked_never() -> None:
    twice = gzip.compress(gzip.compress(bytes(50 * MEGABYTE), 9), 9)
    assert len(twice) < 2000

    with serving(lambda _: Answer(200, [("Content-Encoding", "gzip, gzip")], twice)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        response = asyncio.run(fetch(f"http://127.0.0.1:{server.port}/"))
        assert response.content == twice
