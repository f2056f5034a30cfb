"""A permitted host answers with a redirect to one that is not permitted, and the client goes along."""

import pytest

from attacks.granted import refused
from attacks.nets import SECRET, Names, answer, fetching, inner, reached
from licet.backends.memory import Answer
from loopback import serving


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.sampled(3)
def test_a_redirect_does_not_lead_out_of_the_grant(status: int) -> None:
    names = Names({"good.test": [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]})
    with serving(inner) as evil, serving(lambda _: Answer(status, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://evil.test:{evil.port}/"

        assert reached(here, names) == SECRET
        assert len(evil.seen) == 1

        fetch = fetching(names, "network:*:good.test", private=["127.0.0.1/32"])
        assert refused(fetch(here)) == "HOST_NOT_ALLOWED"
        assert str(fetch._grant.events[-1].capability) == f"network:http:get@evil.test:{evil.port}"
        assert (len(good.seen), len(evil.seen)) == (2, 1)

        both = fetching(names, "network:*:good.test", "network:*:evil.test", private=["127.0.0.1/32"])
        assert answer(both(here)).content == SECRET


def test_a_redirect_does_not_lead_to_an_address_inside() -> None:
    names = Names({"good.test": [["127.0.0.1"]]})
    with serving(inner, "127.0.0.2") as evil, serving(lambda _: Answer(302, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://127.0.0.2:{evil.port}/"

        assert reached(here, names) == SECRET

        fetch = fetching(names, "network:*:*", private=["127.0.0.1/32"])
        assert refused(fetch(here)) == "ADDRESS_NOT_ALLOWED"
        assert len(evil.seen) == 1


def test_a_redirect_does_not_lead_to_another_port_or_protocol() -> None:
    names = Names({"good.test": [["127.0.0.1"]]})
    with serving(inner) as evil, serving(lambda _: Answer(302, [("Location", there)])) as good:
        here, there = f"http://good.test:{good.port}/", f"http://good.test:{evil.port}/"

        assert reached(here, names) == SECRET

        fetch = fetching(names, f"network:*:good.test:{good.port}", private=["127.0.0.1/32"])
        assert refused(fetch(here)) == "HOST_NOT_ALLOWED"
        assert len(evil.seen) == 1
