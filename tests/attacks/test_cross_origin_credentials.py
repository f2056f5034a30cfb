"""A redirect carries the headers and the body that were meant for one host to another one."""

import pytest

from attacks.granted import refused
from attacks.nets import Names, answer, fetching, inner, reached
from licet.backends.memory import Answer
from loopback import Server, serving

KEYS = {"X-Api-Key": "hush", "Authorization": "Bearer hush", "Cookie": "session=hush", "X-Anything": "hush"}


def told(server: Server) -> bool:
    """Whether any header or body that reached a server has the secret."""
    return any("hush" in str(asked.headers) or b"hush" in asked.body for asked in server.seen)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.sampled(3)
def test_headers_stay_with_the_origin_they_were_meant_for(status: int) -> None:
    names = Names({"good.test": [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]})
    with serving(inner) as evil, serving(lambda _: Answer(status, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://evil.test:{evil.port}/"

        reached(here, names, headers={"X-Api-Key": "hush"})
        assert told(evil)
        evil.seen.clear()

        fetch = fetching(names, "network:*:*", private=["127.0.0.1/32"])
        assert answer(fetch(here, headers=KEYS)).ok
        assert told(good)
        assert len(evil.seen) == 1
        assert not told(evil)


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_stays_with_the_origin_it_was_meant_for(status: int) -> None:
    names = Names({"good.test": [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]})
    with serving(inner) as evil, serving(lambda _: Answer(status, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://evil.test:{evil.port}/"

        reached(here, names, "POST", content=b"hush")
        assert told(evil)
        evil.seen.clear()

        fetch = fetching(names, "network:*:*", private=["127.0.0.1/32"])
        assert refused(fetch(here, "POST", body=b"hush")) == "LIMIT_REDIRECTS"
        assert told(good)
        assert evil.seen == []


def test_the_same_host_at_another_port_is_another_origin() -> None:
    names = Names({"good.test": [["127.0.0.1"]]})
    with serving(inner) as evil, serving(lambda _: Answer(302, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://good.test:{evil.port}/"
        reached(here, names, headers={"X-Api-Key": "hush"})
        assert told(evil)
        evil.seen.clear()
        assert answer(fetching(names, "network:*:good.test", private=["127.0.0.1/32"])(here, headers=KEYS)).ok
        assert len(evil.seen) == 1
        assert not told(evil)
