"""Which addresses a connection may go to: every range at its edges, every embedding, and what a manifest can open."""

from typing import Any

import pytest
from msgspec.structs import replace

from core.manifests import layer, manifest, tool
from licet.core.algebra.rules import InvalidUse, Use, destination, redirected, use_of_url
from licet.core.decision.decision import address_grounds, is_written
from licet.core.decision.reach import Reach, reach_of
from licet.core.policy.addresses import AddressKind, Private, address_kind, refused_addresses
from licet.core.policy.layer import Layer
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Natives
from licet.core.values import Origin

# The last address before a range, its first, its last, and the first after it; a dash where that is closed as well.
RANGES = [
    ("-", "0.0.0.0", "0.255.255.255", "1.0.0.0", "this host"),
    ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", "private"),
    ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0", "shared behind a carrier's NAT"),
    ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", "loopback"),
    ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0", "link-local"),
    ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0", "private"),
    ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0", "for protocol assignments"),
    ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0", "for documentation"),
    ("192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0", "for 6to4 relays"),
    ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0", "private"),
    ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0", "for benchmarking"),
    ("198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0", "for documentation"),
    ("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0", "for documentation"),
    ("223.255.255.255", "224.0.0.0", "239.255.255.255", "-", "multicast"),
    ("-", "240.0.0.0", "255.255.255.255", "-", "reserved"),
    ("-", "::", "::", "-", "this host"),
    ("-", "::1", "::1", "-", "loopback"),
    ("-", "::2", "::ffff:ffff", "-", "IPv4-compatible"),
    ("-", "::ffff:0.0.0.0", "::ffff:255.255.255.255", "-", "IPv4-mapped"),
    ("-", "::ffff:0:0:0", "::ffff:0:ffff:ffff", "-", "IPv4-translated"),
    ("-", "64:ff9b::", "64:ff9b::ffff:ffff", "-", "NAT64"),
    ("-", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "-", "local NAT64"),
    ("-", "::1:0:0", "::fffe:ffff:ffff", "-", "reserved"),
    ("-", "64:ff9b:2::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2000::", "reserved"),
    ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "-", "Teredo"),
    ("-", "2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::", "for protocol assignments"),
    ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::",
     "for documentation"),
    ("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::", "6to4"),
    ("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::",
     "for documentation"),
    ("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "reserved"),
    ("-", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "private"),
    ("-", "fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "reserved"),
    ("-", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "link-local"),
    ("-", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "site-local"),
    ("-", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "-", "multicast"),
]  # fmt: skip

PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.215.14", "192.31.196.1", "2606:4700:4700::1111", "2a00:1450::1", "2620:4f::1")

METADATA = (
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42", "168.63.129.16",
    "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe",
)  # fmt: skip

# 169.254.169.254 inside other addresses, and the next address, which is only link-local.
EMBEDDED = [
    ("::a9fe:a9fe", "::a9fe:a9ff"),
    ("::ffff:169.254.169.254", "::ffff:169.254.169.255"),
    ("::ffff:0:a9fe:a9fe", "::ffff:0:a9fe:a9ff"),
    ("64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9ff"),
    ("64:ff9b:1::a9fe:a9fe", "64:ff9b:1::a9fe:a9ff"),
    ("64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9fe:a9:ff00::"),  # a prefix of 48 bits
    ("64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:a9:fe:a9ff::"),  # 56
    ("64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1:0:a9:fea9:ff00:0"),  # 64
    ("64:ff9b:1:a9fe:ffa9:feff:ffff:ffff", "64:ff9b:1:a9fe:ffa9:ffff:ffff:ffff"),  # with every other bit set
    ("2002:a9fe:a9fe::1", "2002:a9fe:a9ff::1"),
    ("2001:0:a9fe:a9fe::1", "2001:0:a9fe:a9ff::1"),  # a Teredo server
    ("2001:0:808:808::5601:5601", "2001:0:808:808::5601:5600"),  # a Teredo client, turned over
]

OPEN: Private = (("10.0.0.0/8", "fd12::/16"),)


@pytest.mark.parametrize(("before", "first", "last", "after", "title"), RANGES)
def test_a_range_is_closed_from_its_first_to_its_last_address(
    before: str, first: str, last: str, after: str, title: str
) -> None:
    for text in (first, last):
        assert (address_kind(text).title, refused_addresses([text], ())) == (title, (text,))
    for text in (before, after):
        if text != "-":
            assert (address_kind(text).title, refused_addresses([text], ())) == ("", ())


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_open(text: str) -> None:
    assert refused_addresses([text], ()) == ()


@pytest.mark.parametrize("text", METADATA)
def test_metadata_services_are_closed_whatever_a_manifest_says(text: str) -> None:
    everything = (("0.0.0.0/0", "::/0"),)
    assert refused_addresses([text], everything, written=True) == (text,)
    assert address_kind(text) == AddressKind("a metadata service", True, ())


@pytest.mark.parametrize(("inside", "beside"), EMBEDDED)
def test_a_metadata_service_is_found_inside_other_addresses(inside: str, beside: str) -> None:
    everything = (("0.0.0.0/0", "::/0"),)
    assert refused_addresses([inside, beside], everything) == (inside,)


@pytest.mark.parametrize(
    ("addresses", "private", "wrong"),
    [
        (["10.0.0.1"], OPEN, []),
        (["11.0.0.1"], OPEN, []),
        (["192.168.0.1"], OPEN, ["192.168.0.1"]),
        (["fd12::1"], OPEN, []),
        (["fd13::1"], OPEN, ["fd13::1"]),
        (["8.8.8.8", "10.0.0.1"], OPEN, []),
        (["8.8.8.8", "10.0.0.1"], (), ["10.0.0.1"]),
        (["10.0.0.1"], ((),), ["10.0.0.1"]),
        # Every ceiling has a say.
        (["10.1.2.3"], (("10.0.0.0/8",), ("10.1.0.0/16",)), []),
        (["10.2.2.3"], (("10.0.0.0/8",), ("10.1.0.0/16",)), ["10.2.2.3"]),
        (["10.1.2.3"], (("10.0.0.0/8",), ()), ["10.1.2.3"]),
        # What is wrapped is opened on the outside and on the inside.
        (["64:ff9b::8.8.8.8"], (("64:ff9b::/96",),), []),
        (["64:ff9b::10.0.0.1"], (("64:ff9b::/96",),), ["64:ff9b::10.0.0.1"]),
        (["64:ff9b::10.0.0.1"], (("10.0.0.0/8",),), ["64:ff9b::10.0.0.1"]),
        (["64:ff9b::10.0.0.1"], (("64:ff9b::/96", "10.0.0.0/8"),), []),
        (["2002:a00:1::"], (("2002::/16",),), ["2002:a00:1::"]),
        (["2002:a00:1::"], (("2002::/16", "10.0.0.0/8"),), []),
        (["2001:0:a00:1::f7f7:f7f7"], (("2001::/32",),), ["2001:0:a00:1::f7f7:f7f7"]),
        (["2001:0:808:808::f5ff:fffe"], (("2001::/32",),), ["2001:0:808:808::f5ff:fffe"]),
        (["2001:0:808:808::f7f7:f7f7"], (("2001::/32",),), []),
        (["fe80::1%eth0"], (("fe80::/10",),), []),
        (["fe80::1%eth0"], OPEN, ["fe80::1%eth0"]),
        # No address at all.
        (["localhost"], (("0.0.0.0/0", "::/0"),), ["localhost"]),
        (["010.0.0.1"], OPEN, ["010.0.0.1"]),
        ([""], OPEN, [""]),
    ],
)
def test_a_manifest_opens_ranges(addresses: list[str], private: Private, wrong: list[str]) -> None:
    assert refused_addresses(addresses, private) == tuple(wrong)


def test_an_address_named_by_a_rule_needs_no_private_list() -> None:
    assert refused_addresses(["127.0.0.1"], (), written=True) == ()
    assert refused_addresses(["not an address"], (), written=True) == ("not an address",)


# What a reach says ----------------------------------------------------------------------------------------------------


def reach(*allows: str, needs: str = "network:*:*", **given: Any) -> Reach:
    """What a tool `t` may do under a small manifest."""
    return reached(manifest(tool("t", needs), allows=allows, **given))


def reached(made: Manifest) -> Reach:
    found = reach_of(made, "t")
    assert found
    return found


LEADS = "x.example leads to an address that is not public; "
LOOPBACK = "http://127.0.0.1:8080/"


@pytest.mark.parametrize(
    ("allows", "url", "written"),
    [
        (["network:*:127.0.0.1"], LOOPBACK, True),
        (["network:*:127.0.0.1:8080"], LOOPBACK, True),
        (["network:http:get@127.0.0.1"], LOOPBACK, True),
        (["network:*:0x7f.1"], LOOPBACK, True),
        (["network:*:[::1]"], "http://[::1]/", True),
        (["network:*:[::1]"], "http://[0:0::1]/", True),
        (["network:*:127.0.0.1:8081"], LOOPBACK, False),
        (["network:https:127.0.0.1"], LOOPBACK, False),
        (["network:*:127.0.0.2"], LOOPBACK, False),
        (["network:*:*"], LOOPBACK, False),
        ([], LOOPBACK, False),
    ],
)
def test_only_an_exact_rule_of_the_manifest_opens_an_address(allows: list[str], url: str, written: bool) -> None:
    use = use_of_url("GET", url)
    found = reach(*allows, needs="network:*:127.0.0.1")
    assert is_written(use, found) is written
    assert (address_grounds(use, [use.target.strip("[]")], found) == ()) is written


def test_every_ceiling_must_name_the_address() -> None:
    use = use_of_url("GET", LOOPBACK)
    exact, wide = layer(["network:*:127.0.0.1"]), layer(["network:*:*"], kind="personality")
    workspace = layer(["network:*:*"], kind="workspace")
    assert not is_written(use, reach(layers=(exact, wide)))
    assert not is_written(use, reach(layers=(wide, exact)))
    assert is_written(use, reach(layers=(exact, workspace)))
    assert is_written(use, reach(layers=(exact, replace(exact, kind="personality"))))
    assert not is_written(use, reach(layers=(replace(exact, kind="workspace"),)))


def ground_text(url: str, addresses: list[str], found: Reach) -> tuple[str, str] | None:
    """The reasons as one text, and the fix that all of them have."""
    grounds = address_grounds(use_of_url("GET", url), addresses, found)
    if not grounds:
        return None
    assert {ground.reason for ground in grounds} == {"ADDRESS_NOT_ALLOWED"}
    (fix,) = {ground.fix for ground in grounds}
    return "; ".join(ground.text for ground in grounds), fix


@pytest.mark.parametrize(
    ("url", "addresses", "private", "text", "fix"),
    [
        ("http://x.example/", ["10.0.0.1"], ((),),
         f"{LEADS}10.0.0.1 is private", 'set `capabilities.private: ["10.0.0.1/32"]` in agent.yaml'),
        ("http://localhost/", ["::1", "127.0.0.1"], (("192.168.0.0/16",),),
         "localhost leads to an address that is not public; ::1 is loopback; 127.0.0.1 is loopback",
         'set `capabilities.private: ["192.168.0.0/16", "::1/128", "127.0.0.1/32"]` in agent.yaml'),
        ("http://x.example/", ["8.8.8.8", "10.0.0.1"], (),
         f"{LEADS}10.0.0.1 is private", 'set `capabilities.private: ["10.0.0.1/32"]` in agent.yaml'),
        ("http://127.0.0.1/", ["127.0.0.1"], ((),), "127.0.0.1 is loopback",
         'set `capabilities.private: ["127.0.0.1/32"]` in agent.yaml'),
        ("http://x.example/", ["64:ff9b::a00:1"], (("10.0.0.0/8",),),
         f"{LEADS}64:ff9b::a00:1 is NAT64",
         'set `capabilities.private: ["10.0.0.0/8", "64:ff9b::a00:1/128"]` in agent.yaml'),
        ("http://x.example/", ["fe80::1%2"], ((),),
         f"{LEADS}fe80::1%2 is link-local",
         'set `capabilities.private: ["fe80::1/128"]` in agent.yaml'),
        # Nothing opens a metadata service, and half a way is none.
        ("http://x.example/", ["169.254.169.254", "10.0.0.1"], ((),),
         f"{LEADS}169.254.169.254 is a metadata service; 10.0.0.1 is private", ""),
        ("http://x.example/", ["x\n"], ((),),
         f"{LEADS}x\\u000a is no address", ""),
        ("http://x.example/", [], ((),), LEADS.rstrip("; "), ""),
        ("http://8.8.8.8/", [], ((),), "8.8.8.8 leads to an address that is not public", ""),
    ],
)  # fmt: skip
def test_a_refusal_says_why_and_the_line_that_would_allow_it(
    url: str, addresses: list[str], private: Private, text: str, fix: str
) -> None:
    found = reach("network:*:*", private=private)
    assert ground_text(url, addresses, found) == (text, fix)
    if fix:
        ranges = fix.partition("[")[2].partition("]")[0].replace('"', "").split(", ")
        assert ground_text(url, addresses, reach("network:*:*", private=(tuple(ranges),))) is None


def test_each_ceiling_is_named_with_its_own_file() -> None:
    natives = tuple(
        Natives(frozenset(), Origin(file, 1, 1), key)
        for file, key in (("agent.yaml", "capabilities.native"), ("person.yaml", "native"), ("c.yaml", "native"))
    )
    private = (("127.0.0.0/8",), ("10.0.0.0/8",), ())
    found = reach("network:*:*", private=private, natives=natives)
    _, fix = ground_text("http://localhost/", ["127.0.0.1"], found) or ("", "")
    assert fix == (
        'set `private: ["10.0.0.0/8", "127.0.0.1/32"]` in person.yaml; set `private: ["127.0.0.1/32"]` in c.yaml'
    )


def test_public_answers_pass() -> None:
    assert ground_text("http://x.example/", ["8.8.8.8", "2606:4700::1"], reach("network:*:*")) is None


def test_a_rule_for_a_name_does_not_open_its_private_addresses() -> None:
    assert ground_text("http://localhost/", ["127.0.0.1"], reach("network:*:localhost")) is not None


# The request that is sent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "url", "sent", "use"),
    [
        ("get", "HTTP://Example.COM.:80/a b?q=ü#f", "GET http://example.com/a%20b?q=%C3%BC", "http:get@example.com:80"),
        ("Post", "https://example.com:8443", "POST https://example.com:8443/", "https:post@example.com:8443"),
        ("propFind", "https://example.com/?#", "propFind https://example.com/", "https:other@example.com:443"),
        ("GET", "https://example.com:80/", "GET https://example.com:80/", "https:get@example.com:80"),
        ("GET", "http://0x7f.1/../../x", "GET http://127.0.0.1/x", "http:get@127.0.0.1:80"),
        ("GET", "http://2130706433/", "GET http://127.0.0.1/", "http:get@127.0.0.1:80"),
        ("GET", "http://[0::0:1]:81/", "GET http://[::1]:81/", "http:get@[::1]:81"),
        ("GET", "http://example.com\\@evil.com/", "GET http://example.com/@evil.com/", "http:get@example.com:80"),
        ("GET", "https://bücher.example/", "GET https://xn--bcher-kva.example/", "https:get@xn--bcher-kva.example:443"),
    ],
)
def test_the_url_that_is_sent_has_the_host_that_was_checked(method: str, url: str, sent: str, use: str) -> None:
    found = destination(method, url)
    assert (f"{found.method} {found.url}", found.use) == (sent, Use(f"network:{use}"))
    assert destination(found.method, found.url) == found


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://a.example:444/b"),
        ("b?c#d", "https://a.example:444/x/b?c"),
        ("//b.example/", "https://b.example/"),
        ("\\\\b.example", "https://b.example/"),
        ("http:///b.example", "http://b.example/"),
        ("https:b", "https://a.example:444/x/b"),
        ("", "https://a.example:444/x/y?z"),
        ("/ẞ", "https://a.example:444/%E1%BA%9E"),
    ],
)
def test_a_location_is_read_by_the_same_parser(location: str, url: str) -> None:
    assert redirected("GET", "https://a.example:444/x/y?z", location).url == url


@pytest.mark.parametrize(
    "location", ["http://u@b.example/", "ftp://b.example/", "http://[", "/a\tb", "//STRAẞE.example/", "//%E1%BA%9E.x/"]
)
def test_an_invalid_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidUse):
        redirected("GET", "https://a.example/", location)


@pytest.mark.parametrize(
    ("method", "url"), [("GET", b"http://x/"), ("GET", None), (None, "http://x/"), ("G T", "http://x")]
)
def test_an_invalid_request_is_refused(method: str, url: str) -> None:
    with pytest.raises(InvalidUse):
        destination(method, url)


def test_a_url_of_a_str_subclass_is_read_by_its_real_characters() -> None:
    class Liar(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "http://good.example/"

    found = destination(Liar("GET"), Liar("http://evil.example/"))
    assert (found.url, found.method, type(found.url)) == ("http://evil.example/", "GET", str)


def test_an_origin_is_protocol_host_and_port() -> None:
    assert destination("GET", "https://x.example/").origin == ("https", "x.example", 443)


def test_without_a_ceiling_no_address_is_named() -> None:
    bare: tuple[Layer, ...] = (layer(["network:*:127.0.0.1"], kind="workspace"),)
    made = manifest(tool("t", "network:*:*"), layers=bare, admissions={"t": ()})
    assert not is_written(use_of_url("GET", LOOPBACK), reached(made))
