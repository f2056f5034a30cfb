"""A redirect that should turn a POST into a GET, and a client that posts again."""

import asyncio

import pytest

from attacks.nets import answer, fetching, unguarded
from licet import Refused
from licet.backends.memory import Answer
from licet.guard.ports import Exchange
from loopback import serving


def site(asked: Exchange) -> Answer:
    return Answer(303, [("Location", "/done")]) if asked.url.endswith("/form") else Answer(200, (), b"done")


async def by_hand(url: str) -> None:
    """As some do it: follow the location with the request as it was."""
    async with unguarded() as client:
        client.follow_redirects = False
        first = await client.post(url, content=b"pay 5")
        await client.post(str(client.base_url.join(url).join(first.headers["location"])), content=b"pay 5")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_after_a_303_nothing_is_sent_again(method: str) -> None:
    with serving(site) as server:
        url = f"http://127.0.0.1:{server.port}/form"
        asyncio.run(by_hand(url))
        assert [(asked.method, asked.body) for asked in server.seen] == [("POST", b"pay 5")] * 2
        server.seen.clear()

        assert answer(fetching(None, "network:*:127.0.0.1")(url, method, body=b"pay 5")).content == b"done"
        assert [(asked.method, asked.body) for asked in server.seen] == [(method, b"pay 5"), ("GET", b"")]
        assert "content-length" not in dict(server.seen[1].headers)


def test_the_get_that_follows_is_asked_about_as_a_get() -> None:
    with serving(site) as server:
        url = f"http://127.0.0.1:{server.port}/form"
        fetch = fetching(None, "network:http:post@127.0.0.1")
        with pytest.raises(Refused, match="HOST_NOT_ALLOWED"):
            answer(fetch(url, "POST", body=b"pay 5"))
        assert fetch._grant.events[-1].capability == f"network:http:get@127.0.0.1:{server.port}"
        assert len(server.seen) == 1
