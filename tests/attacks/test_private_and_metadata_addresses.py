"""Addresses of the inner network and of clouds' metadata services, in every notation that some client understands."""

import pytest

from attacks.granted import refused
from attacks.nets import SECRET, Names, answer, fetching, inner, reached
from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp
from licet.guard.handles.fetch import ScopedFetch
from loopback import serving

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
        assert refused(fetch(f"http://127.0.0.1:{server.port}/")) == "ADDRESS_NOT_ALLOWED"


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
