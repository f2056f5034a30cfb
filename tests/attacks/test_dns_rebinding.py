"""A name leads to a permitted address when it is checked, and to another one when it is dialled."""

import asyncio
import ipaddress
from pathlib import Path

import pytest

from attacks.granted import refused
from attacks.nets import SECRET, NamedClient, Names, answer, fetching, inner, unguarded
from guard.grants import grant
from licet import Refused
from licet.backends.memory import Answer
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.ports import Exchange
from loopback import authority_file, serving

GOOD, EVIL = "127.0.0.1", "127.0.0.2"


def outer(_: Exchange) -> Answer:
    return Answer(200, (), b"public")


def changing() -> Names:
    return Names({"rebind.test": [[GOOD], [EVIL]]})


def test_what_was_checked_is_what_is_dialled() -> None:
    async def check_then_connect(names: Names) -> bytes:
        """As many do it: look the name up, check what it says, then let the client look it up again."""
        assert ipaddress.ip_address(names("rebind.test")[0]) == ipaddress.ip_address(GOOD)
        async with unguarded(names) as client:
            return (await client.get(url)).content

    with serving(outer, GOOD) as good, serving(inner, EVIL, port=good.port) as evil:
        url = f"http://rebind.test:{good.port}/"

        assert asyncio.run(check_then_connect(changing())) == SECRET
        assert (len(good.seen), len(evil.seen)) == (0, 1)

        names = changing()
        fetch = fetching(names, "network:*:rebind.test", private=[f"{GOOD}/32"])
        assert answer(fetch(url)).content == b"public"
        assert names.asked == ["rebind.test"]
        assert (len(good.seen), len(evil.seen)) == (1, 1)
        # The second request asks again, and is judged by what it hears.
        assert refused(fetch(url)) == "ADDRESS_NOT_ALLOWED"
        assert (len(good.seen), len(evil.seen)) == (1, 1)


@pytest.mark.parametrize("http2", [False, True])
def test_a_kept_connection_does_not_outlive_the_answer_it_was_made_for(tmp_path: Path, http2: bool) -> None:
    # The first answer was private and opened by one call; another call that may not go there must not find it open.
    async def work() -> None:
        assert (await ScopedFetch(wide, client)(url)).content == b"public"
        names.answers["rebind.test"] = [[EVIL]]
        with pytest.raises(Refused, match="ADDRESS_NOT_ALLOWED"):
            await ScopedFetch(wide, client)(url)
        names.answers["rebind.test"] = [[GOOD]]
        with pytest.raises(Refused, match="ADDRESS_NOT_ALLOWED"):
            await ScopedFetch(narrow, client)(url)
        assert (await ScopedFetch(wide, client)(url)).content == b"public"

    with serving(outer, GOOD, names=("rebind.test",), http2=http2) as good:
        url = f"https://rebind.test:{good.port}/"
        names = Names({"rebind.test": [[GOOD]]})
        client = NamedClient(names, ca_file=authority_file(tmp_path))
        wide = grant(["network:*:rebind.test"], private=[f"{GOOD}/32"])
        narrow = grant(["network:*:rebind.test"])
        asyncio.run(work())
        assert (good.connections, len(good.seen)) == (1, 2)
