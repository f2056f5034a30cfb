"""URLs that a person or one parser reads as one host, and the client as another."""

import urllib.parse

import pytest

from attacks.granted import refused
from attacks.nets import SECRET, Names, answer, fetching, inner, reached
from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp
from licet.guard.handles.fetch import ScopedFetch
from loopback import serving

GOOD, EVIL = "good.test", "evil.test"

# Read by a check that looks for the good host somewhere in the text, all of these are fine.
URLS = [
    "http://good.test@evil.test/",
    "http://good.test:80@evil.test/",
    "http://good.test%40evil.test/",
    "http://good.test\\@evil.test/",
    "http://evil.test\\@good.test/",
    "http://evil.test\\.good.test/",
    "http://evil.test#@good.test/",
    "http://evil.test?@good.test/",
    "http://evil.test/@good.test/",
    "http://good.test@evil.test:80/",
    "http://evil.test\t@good.test/",
    "http://evil.test\n@good.test/",
    "http://good.test\r\nHost: evil.test/",
    "\thttp://evil.test/good.test",
    "http://evil.test\0.good.test/",
    "http://good.test\u3002evil.test/",
    "http:\\\\evil.test\\good.test",
    "http:///evil.test/good.test",
    "http:evil.test/good.test",
    "//evil.test/good.test",
    "http://[good.test]@evil.test/",
    "http://good.test.evil.test/",
    "http://good.tes\u00adt.evil.test/",
    "http://evil.test：80@good.test/",
    "http://good.test@\uff45vil.test/",
]


def test_the_host_behind_an_at_sign_is_the_one_that_is_reached() -> None:
    names = Names({GOOD: [["127.0.0.2"]], EVIL: [["127.0.0.1"]]})
    with serving(inner) as server:
        url = f"http://{GOOD}@{EVIL}:{server.port}/"
        assert url.startswith(f"http://{GOOD}")  # a check by prefix

        assert reached(url, names) == SECRET

        assert refused(fetching(names, f"network:*:{GOOD}")(url)) == "HOST_NOT_ALLOWED"
        # Even to a host that is held: a password in a URL is logged and sent along.
        assert refused(fetching(names, f"network:*:{EVIL}", private=["127.0.0.1/32"])(url)) == "HOST_NOT_ALLOWED"
        assert len(server.seen) == 1


def test_two_parsers_disagree_about_a_backslash() -> None:
    # The standard library, asked by a check, says good.test; browsers, and clients like them, go to evil.test.
    assert urllib.parse.urlsplit("http://evil.test\\@good.test/").hostname == GOOD
    net = MemoryHttp(lambda _: Answer())
    assert (
        refused(ScopedFetch(grant([f"network:*:{GOOD}"]), net)("http://evil.test\\@good.test/")) == "HOST_NOT_ALLOWED"
    )


# Browsers read a backslash as a slash, so this one is a page of the good host, and nothing else is asked.
FINE = {"http://good.test\\@evil.test/": "http://good.test/@evil.test/"}


@pytest.mark.parametrize("url", URLS)
def test_whatever_is_written_only_the_good_host_is_reached(url: str) -> None:
    net = MemoryHttp(lambda _: Answer(), {GOOD: ["93.184.215.14"], EVIL: ["93.184.215.15"]})
    fetch = ScopedFetch(grant([f"network:*:{GOOD}"]), net)
    if url in FINE:
        assert answer(fetch(url)).url == FINE[url]
        assert [(sent.host, sent.address, sent.url) for sent in net.sent] == [(GOOD, "93.184.215.14", FINE[url])]
    else:
        assert refused(fetch(url)) == "HOST_NOT_ALLOWED"
        assert net.sent == []
        assert net.resolved == []
