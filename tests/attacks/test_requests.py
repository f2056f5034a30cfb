"""Attacks on where requests go, and on what they carry: names, notations, redirects, headers, bodies."""

import asyncio
import ipaddress
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from attacks.granted import agree, refused
from attacks.nets import SECRET, NamedClient, Names, answer, fetching, inner, reached, unguarded
from guard.grants import grant
from licet import Refused
from licet.backends.http import HttpClient
from licet.guard.handles.fetch import ScopedFetch
from licet.ports import Exchange
from licet.testing import Answer, MemoryHttp
from loopback import Server, authority_file, serving, talking

# URLs that a person or one parser reads as one host, and the client as another ----------------------------------------


GOOD, EVIL = "good.test", "evil.test"

# Read by a check that looks for the good host somewhere in the text, all of these are fine.
URLS = [
    "http://good.test@evil.test/", "http://good.test:80@evil.test/", "http://good.test%40evil.test/",
    "http://good.test\\@evil.test/", "http://evil.test\\@good.test/", "http://evil.test\\.good.test/",
    "http://evil.test#@good.test/", "http://evil.test?@good.test/", "http://evil.test/@good.test/",
    "http://good.test@evil.test:80/", "http://evil.test\t@good.test/", "http://evil.test\n@good.test/",
    "http://good.test\r\nHost: evil.test/", "\thttp://evil.test/good.test", "http://evil.test\0.good.test/",
    "http://good.test\u3002evil.test/", "http:\\\\evil.test\\good.test", "http:///evil.test/good.test",
    "http:evil.test/good.test", "//evil.test/good.test", "http://[good.test]@evil.test/", "http://good.test.evil.test/",
    "http://good.tes\u00adt.evil.test/", "http://evil.test：80@good.test/", "http://good.test@\uff45vil.test/",
]  # fmt: skip


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


# A `str` that says one thing when it is checked and another when it is used -------------------------------------------


class Liar(str):
    """Text whose every answer is about a harmless URL; its characters are another's."""

    said = ""

    def __str__(self) -> str:
        return self.said

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.said)

    def __contains__(self, part: object) -> bool:
        return False

    def __getitem__(self, place: Any) -> str:
        return self.said[place]

    def startswith(self, *args: Any) -> bool:
        return True

    def encode(self, *args: Any) -> bytes:
        return self.said.encode()

    def lower(self) -> str:
        return self.said.lower()

    def partition(self, sep: str) -> tuple[str, str, str]:
        return self.said.partition(sep)


def test_a_text_is_its_characters() -> None:
    with serving(inner) as evil, serving(lambda _: Answer(200, (), b"harmless")) as good:
        url = Liar(evil.url)
        url.said = good.url

        # A check that compares, and a client that takes the characters.
        assert url == good.url
        assert url.startswith("http://harmless.test/")
        assert reached(str.__str__(url)) == SECRET

        assert refused(fetching(None, f"network:*:127.0.0.1:{good.port}")(url)) == "HOST_NOT_ALLOWED"
        assert len(evil.seen) == 1
        assert answer(fetching(None, f"network:*:127.0.0.1:{evil.port}")(url)).content == SECRET
        assert good.seen == []


def test_a_method_is_its_characters() -> None:
    with serving(inner) as server:
        method = Liar("POST")
        method.said = "GET"
        fetch = fetching(None, "network:http:get@127.0.0.1")
        assert refused(fetch(server.url, method)) == "HOST_NOT_ALLOWED"
        assert server.seen == []


def test_a_header_is_its_characters() -> None:
    with serving(inner) as server:
        value = Liar("a\r\nX-Admin: 1")
        value.said = "harmless"
        name = Liar("Host")
        name.said = "x-harmless"
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(server.url, headers=[("x-a", value)])) == "INPUT_INVALID"
        assert refused(fetch(server.url, headers=[(name, "evil.test")])) == "INPUT_INVALID"
        assert server.seen == []


# Addresses of the inner network and of clouds' metadata services, in every notation that some client understands ------


LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.0x1", "017700000001", "0177.1",
    "127.000.000.001", "①②⑦.⓪.⓪.①", "127。0。0。1", "%31%32%37.0.0.1", "127.0.0.1.", "0", "0.0.0.0", "[::]", "[::1]",
    "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]",
    "[::ffff:0:127.0.0.1]", "[2001:0:7f00:1::]",
]  # fmt: skip
PRIVATE = [
    "10.0.0.1", "0xa.1", "012.0.0.1", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1", "0xc0a80001",
    "3232235521", "100.64.0.1", "169.254.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "[fc00::1]", "[fd12::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
    "[2001:db8::1]", "[100::1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "[::a00:1]", "[3fff::1]", "[4000::1]",
]  # fmt: skip
METADATA = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518",
    "[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]", "[fe80::a9fe:a9fe]",
    "169.254.170.2", "0xa9feaa02", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[64:ff9b::a83f:8110]",
]  # fmt: skip
MAPPED = ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[::ffff:a00:1]"]


@pytest.mark.parametrize("spelling", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "localhost"])
@pytest.mark.sampled(4)
def test_loopback_in_another_notation(spelling: str) -> None:
    names = Names({"localhost": [["127.0.0.1"]]})
    with serving(inner) as server:
        url = f"http://{spelling}:{server.port}/"

        assert reached(url, names) == SECRET

        for rule in ("network:*:*", "network:*:localhost"):
            fetch = fetching(names, rule)
            code = (
                "HOST_NOT_ALLOWED" if rule.endswith("localhost") and spelling != "localhost" else "ADDRESS_NOT_ALLOWED"
            )
            assert refused(fetch(url)) == code
        assert len(server.seen) == 1


def test_an_address_that_the_manifest_writes_is_meant() -> None:
    with serving(inner) as server:
        for spelling in ("127.0.0.1", "127.1", "0x7f000001"):
            url = f"http://{spelling}:{server.port}/"
            assert answer(fetching(None, "network:*:127.0.0.1")(url)).content == SECRET
        # What only the tool declares is not written in the manifest.
        fetch = fetching(None, "network:*:127.0.0.1", allows=["network:*:*"])
        assert refused(fetch(server.url)) == "ADDRESS_NOT_ALLOWED"


@pytest.mark.parametrize("spelling", [*LOOPBACK, *PRIVATE, *METADATA, *MAPPED])
def test_no_notation_gets_past_a_star(spelling: str) -> None:
    net = MemoryHttp(lambda _: Answer(200, (), SECRET))
    code = refused(ScopedFetch(grant(["network:*:*"]), net)(f"http://{spelling}/"))
    # An IPv4-mapped address is no host at all; the others are hosts whose address is refused.
    assert code == ("HOST_NOT_ALLOWED" if spelling in MAPPED else "ADDRESS_NOT_ALLOWED")
    assert net.sent == []


@pytest.mark.parametrize("spelling", METADATA)
def test_metadata_is_refused_even_where_the_manifest_writes_it(spelling: str) -> None:
    net = MemoryHttp(lambda _: Answer(200, (), SECRET))
    held = grant([f"network:*:*@{spelling}", "network:*:*"], private=["0.0.0.0/0", "::/0"])
    fetch = ScopedFetch(held, net)
    assert refused(fetch(f"http://{spelling}/latest/meta-data/")) == "ADDRESS_NOT_ALLOWED"
    assert net.sent == []
    assert held.events[-1].rule.endswith("is a metadata service")


@pytest.mark.parametrize("spelling", [*LOOPBACK, *PRIVATE, *METADATA, *MAPPED])
def test_no_name_leads_there_either(spelling: str) -> None:
    from licet.core.algebra.rules import InvalidUse, use_of_url

    try:
        address = use_of_url("GET", f"http://{spelling}/").target.strip("[]")
    except InvalidUse:
        address = spelling.strip("[]")  # a resolver may well answer with a mapped address
    net = MemoryHttp(lambda _: Answer(200, (), SECRET), {"inner.test": [address]})
    assert refused(ScopedFetch(grant(["network:*:inner.test"]), net)("http://inner.test/")) == "ADDRESS_NOT_ALLOWED"
    assert net.sent == []


# A name has a public address for the check and a private one for the connection, in one answer ------------------------


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


# A name leads to a permitted address when it is checked, and to another one when it is dialled ------------------------


PUBLIC_ONE, INNER_ONE = "127.0.0.1", "127.0.0.2"


def outer(_: Exchange) -> Answer:
    return Answer(200, (), b"public")


def changing() -> Names:
    return Names({"rebind.test": [[PUBLIC_ONE], [INNER_ONE]]})


def test_what_was_checked_is_what_is_dialled() -> None:
    async def check_then_connect(names: Names) -> bytes:
        """As many do it: look the name up, check what it says, then let the client look it up again."""
        assert ipaddress.ip_address(names("rebind.test")[0]) == ipaddress.ip_address(PUBLIC_ONE)
        async with unguarded(names) as client:
            return (await client.get(url)).content

    with serving(outer, PUBLIC_ONE) as good, serving(inner, INNER_ONE, port=good.port) as evil:
        url = f"http://rebind.test:{good.port}/"

        assert asyncio.run(check_then_connect(changing())) == SECRET
        assert (len(good.seen), len(evil.seen)) == (0, 1)

        names = changing()
        fetch = fetching(names, "network:*:rebind.test", private=[f"{PUBLIC_ONE}/32"])
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
        names.answers["rebind.test"] = [[INNER_ONE]]
        with pytest.raises(Refused, match="ADDRESS_NOT_ALLOWED"):
            await ScopedFetch(wide, client)(url)
        names.answers["rebind.test"] = [[PUBLIC_ONE]]
        with pytest.raises(Refused, match="ADDRESS_NOT_ALLOWED"):
            await ScopedFetch(narrow, client)(url)
        assert (await ScopedFetch(wide, client)(url)).content == b"public"

    with serving(outer, PUBLIC_ONE, names=("rebind.test",), http2=http2) as good:
        url = f"https://rebind.test:{good.port}/"
        names = Names({"rebind.test": [[PUBLIC_ONE]]})
        client = NamedClient(names, ca_file=authority_file(tmp_path))
        wide = grant(["network:*:rebind.test"], private=[f"{PUBLIC_ONE}/32"])
        narrow = grant(["network:*:rebind.test"])
        asyncio.run(work())
        assert (good.connections, len(good.seen)) == (1, 2)


# A permitted host answers with a redirect to one that is not permitted, and the client goes along ---------------------


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


# A redirect carries the headers and the body that were meant for one host to another one ------------------------------


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


# A redirect that should turn a POST into a GET, and a client that posts again -----------------------------------------


def form(asked: Exchange) -> Answer:
    return Answer(303, [("Location", "/done")]) if asked.url.endswith("/form") else Answer(200, (), b"done")


async def by_hand(url: str) -> None:
    """As some do it: follow the location with the request as it was."""
    async with unguarded() as client:
        client.follow_redirects = False
        first = await client.post(url, content=b"pay 5")
        await client.post(str(client.base_url.join(url).join(first.headers["location"])), content=b"pay 5")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_after_a_303_nothing_is_sent_again(method: str) -> None:
    with serving(form) as server:
        url = f"http://127.0.0.1:{server.port}/form"
        asyncio.run(by_hand(url))
        assert [(asked.method, asked.body) for asked in server.seen] == [("POST", b"pay 5")] * 2
        server.seen.clear()

        assert answer(fetching(None, "network:*:127.0.0.1")(url, method, body=b"pay 5")).content == b"done"
        assert [(asked.method, asked.body) for asked in server.seen] == [(method, b"pay 5"), ("GET", b"")]
        assert "content-length" not in dict(server.seen[1].headers)


def test_the_get_that_follows_is_asked_about_as_a_get() -> None:
    with serving(form) as server:
        url = f"http://127.0.0.1:{server.port}/form"
        fetch = fetching(None, "network:http:post@127.0.0.1")
        with pytest.raises(Refused, match="HOST_NOT_ALLOWED"):
            answer(fetch(url, "POST", body=b"pay 5"))
        assert fetch._grant.events[-1].capability == f"network:http:get@127.0.0.1:{server.port}"
        assert len(server.seen) == 1


# A header that ends its line and begins another, or that changes where a message goes and how it is framed ------------


INJECTED = [
    ("X-City", "oslo\r\nX-Admin: 1"),
    ("X-City", "oslo\nX-Admin: 1"),
    ("X-City", "oslo\rX-Admin: 1"),
    ("X-City", "oslo\0"),
    ("X-City", "oslo\x0bX-Admin: 1"),
    ("X-City", "oslo\x7f"),
    ("X-City", "oslo\x85X-Admin: 1"),
    ("X-City", "oslo\u2028X-Admin: 1"),
    ("X-City", "oslo\u560d\u560aX-Admin: 1"),  # whose low bytes are CR and LF
    ("X-City: a\r\nX-Admin", "1"),
    ("X-City\n", "1"),
    ("X City", "1"),
    ("X-City:", "1"),
    ("", "1"),
    (":authority", "evil.test"),
    ("X-Ünicode", "1"),
]
NOT_THEIRS = [
    "Host", "HOST", "Content-Length", "Transfer-Encoding", "transfer-encoding", "Connection", "Keep-Alive", "TE",
    "Trailer", "Upgrade", "Expect", "HTTP2-Settings", "Proxy-Authorization", "proxy-connection", "Proxy-X",
    "X-HTTP-Method-Override", "x-http-method", "X_Method_Override",
    "Transfer_Encoding", "content_length", "Keep_Alive", "Proxy_Authorization",
]  # fmt: skip


def test_a_line_break_in_a_header_is_another_header() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 ok\r\n\r\n")
        await writer.drain()

    async def by_hand(port: int, city: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: a.test\r\nX-City: {city}\r\n\r\n".encode())
        await reader.read(10)
        writer.close()
        await writer.wait_closed()

    with talking(listen) as server:
        asyncio.run(by_hand(server.port, "oslo\r\nX-Admin: 1"))
        assert b"\r\nX-Admin: 1\r\n" in heard


@pytest.mark.parametrize(("name", "value"), INJECTED)
def test_no_header_is_more_than_one_line(name: str, value: str) -> None:
    with serving(inner) as server:
        for headers in ({name: value}, [(name, value)], [("x-ok", "1"), (name, value)]):
            assert refused(fetching(None, "network:*:127.0.0.1")(server.url, headers=headers)) == "INPUT_INVALID"
        assert server.connections == 0


@pytest.mark.parametrize("name", NOT_THEIRS)
def test_where_a_message_goes_is_not_a_callers_to_say(name: str) -> None:
    with serving(inner) as server:
        assert refused(fetching(None, "network:*:127.0.0.1")(server.url, headers={name: "5"})) == "INPUT_INVALID"
        assert server.connections == 0


@pytest.mark.parametrize("path", ["/a\r\nX-Admin: 1", "/a\nX-Admin: 1", "/a b HTTP/1.1\r\nX-Admin: 1\r\n\r\n"])
def test_a_line_break_in_a_url_or_method_is_refused(path: str) -> None:
    with serving(inner) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(f"http://127.0.0.1:{server.port}{path}")) == "HOST_NOT_ALLOWED"
        assert refused(fetch(server.url, f"GET {path}")) == "HOST_NOT_ALLOWED"
        assert server.connections == 0


# A body that the server does not read, and takes for the next request on the connection, or for its beginning ---------


HALF = b"POST /admin HTTP/1.1\r\nHost: inner.test\r\nX-Rest: "  # the next request on the connection completes it
READING = ["GET", "HEAD", "OPTIONS"]
UNDEFINED = ["DELETE", "PROPFIND", "QUERY"]


class Site:
    """A server that keeps connections open and never reads a body, as handlers of `http.server` do by default."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, str, str | None]] = []  # method, path, whose credential


@contextmanager
def unread_bodies() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            site.seen.append((self.command, self.path, self.headers.get("X-Key")))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    for method in (*READING, *UNDEFINED, "POST"):
        setattr(Handler, f"do_{method}", Handler.answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(5)


def test_an_unguarded_client_lets_one_user_write_the_request_of_another() -> None:
    async def work() -> None:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{site.port}") as client:
            await client.request("GET", "/innocent", content=HALF)
            await client.get("/other", headers={"X-Key": "of somebody else"})

    with unread_bodies() as site:
        asyncio.run(work())
    assert site.seen == [("GET", "/innocent", None), ("POST", "/admin", "of somebody else")]


@pytest.mark.parametrize("method", [*READING, "get", "Options"])
@pytest.mark.parametrize("given", [{"body": HALF}, {"json": "POST /admin HTTP/1.1"}], ids=["body", "json"])
def test_a_request_that_reads_has_no_body(method: str, given: dict[str, Any]) -> None:
    with unread_bodies() as site:
        url = f"http://127.0.0.1:{site.port}/innocent"
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(url, method, **given)) == "INPUT_INVALID"
        assert f"{method.upper()} has no body" in fetch._grant.events[-1].rule
    assert site.seen == []


@pytest.mark.parametrize("method", READING)
def test_an_empty_body_is_none(method: str) -> None:
    with unread_bodies() as site:
        url = f"http://127.0.0.1:{site.port}/innocent"

        async def work() -> int:
            return (await fetching(None, "network:*:127.0.0.1")(url, method, body=b"")).status

        assert asyncio.run(work()) == 204


@pytest.mark.parametrize("method", UNDEFINED)
def test_nothing_follows_a_body_that_servers_may_leave_unread(method: str) -> None:
    async def work() -> None:
        await mine(f"{origin}/innocent", method, body=HALF)
        await other(f"{origin}/other", headers={"X-Key": "of somebody else"})

    with unread_bodies() as site:
        origin, client = f"http://127.0.0.1:{site.port}", NamedClient(Names({}))
        mine, other = (
            ScopedFetch(grant(["network:*:127.0.0.1"], effect="destructive", ask=agree), client) for _ in range(2)
        )
        asyncio.run(work())
    assert site.seen == [(method, "/innocent", None), ("GET", "/other", "of somebody else")]


@pytest.mark.parametrize("method", UNDEFINED)
def test_a_whole_request_in_such_a_body_is_not_answered(method: str) -> None:
    with unread_bodies() as site:
        held = grant(["network:*:127.0.0.1"], effect="destructive", ask=agree)
        fetch = ScopedFetch(held, NamedClient(Names({})))

        async def work() -> None:
            await fetch(f"http://127.0.0.1:{site.port}/innocent", method, body=b"POST /admin HTTP/1.1\r\n\r\n")

        asyncio.run(work())
    assert site.seen == [(method, "/innocent", None)]


# Variables and files of the machine that send requests elsewhere, or add credentials and authorities to them ----------


def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(inner) as proxy, serving(lambda _: Answer(200, (), b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert httpx2.get(server.url).content != b"direct"
        assert len(proxy.seen) == 1

        assert answer(fetching(None, "network:*:127.0.0.1")(server.url)).content == b"direct"
        assert len(proxy.seen) == 1


def test_a_netrc_file_adds_no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password hush\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(inner) as server:
        httpx2.get(server.url, auth=httpx2.NetRCAuth())
        assert "authorization" in dict(server.seen[-1].headers)

        answer(fetching(None, "network:*:127.0.0.1")(server.url))
        assert "authorization" not in dict(server.seen[-1].headers)


def test_an_authority_from_the_environment_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority_file(tmp_path))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with serving(inner, names=("127.0.0.1",)) as server:
        url = f"https://127.0.0.1:{server.port}/"
        assert httpx2.get(url).status_code == 200

        fetch = ScopedFetch(grant(["network:*:127.0.0.1"]), HttpClient())
        assert refused(fetch(url)) == "CONNECT_FAILED"
        assert "its certificate is not trusted" in fetch._grant.events[-1].rule
        assert len(server.seen) == 1
