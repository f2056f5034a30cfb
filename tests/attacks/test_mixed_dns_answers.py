"""A name has a public address for the check and a private one for the connection, in one answer."""

import asyncio

import pytest

from attacks.granted import refused
from attacks.nets import SECRET, Names, fetching, inner, unguarded
from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp
from licet.guard.handles.fetch import ScopedFetch
from loopback import serving

PUBLIC = "93.184.215.14"


def test_one_good_address_does_not_vouch_for_the_others() -> None:
    async def check_any(names: Names) -> bytes:
        """As some do it: one public address is enough, and the system picks another."""
        assert PUBLIC in names("mixed.test")
        async with unguarded(names) as client:
            return (await client.get(url)).content

    with serving(inner) as server:
        url = f"http://mixed.test:{server.port}/"
        assert asyncio.run(check_any(Names({"mixed.test": [["127.0.0.1", PUBLIC]]}))) == SECRET

        for answer in (["127.0.0.1", PUBLIC], [PUBLIC, "127.0.0.1"], [PUBLIC, PUBLIC, "::1"]):
            fetch = fetching(Names({"mixed.test": [answer]}), "network:*:mixed.test")
            assert refused(fetch(url)) == "ADDRESS_NOT_ALLOWED"
        assert len(server.seen) == 1


@pytest.mark.parametrize("place", range(6))
def test_an_address_behind_those_that_are_tried_counts_too(place: int) -> None:
    addresses = [f"93.184.215.{number}" for number in range(5)]
    addresses.insert(place, "10.0.0.1")
    net = MemoryHttp(lambda _: Answer(), {"mixed.test": addresses})
    assert refused(ScopedFetch(grant(["network:*:mixed.test"]), net)("http://mixed.test/")) == "ADDRESS_NOT_ALLOWED"
    assert net.sent == []
