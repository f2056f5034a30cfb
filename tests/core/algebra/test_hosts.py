"""Hosts: one canonical form for rules and uses, from one parser, and what is not a host at all."""

import re
import string

import can_ada
import pytest
from hypothesis import example, given

from core.strategies import host_names, odd_hosts, outcome
from core.tables import grouped
from licet.core.algebra.rules import Capability, InvalidUse, Use, destination, destination_rule, use_of_url
from licet.core.algebra.scope import (
    LONGEST_HOST,
    Malformed,
    canonical_host,
    checked_host,
    host_ancestors,
    host_key,
    host_text,
    is_address,
    plain_host_key,
    visible,
)
from licet.core.algebra.set import CapabilitySet

CANONICAL = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+|\[[0-9a-f:]+\]")

# As written, and the canonical form.
SPELLINGS = grouped({
    "example.com": ["example.com", "EXAMPLE.Com", "example.com.", "ＥＸＡＭＰＬＥ.com", "example。com", "example．com｡",
        "ⓔxample.com", "ex%61mple.com"],
    "localhost": ["localhost", "LOCALHOST."],
    "a": ["a"],
    "a_b.example-x.com": ["a_b.example-x.com"],
    "-a-.com": ["-a-.com"],
    "ab--cd.com": ["ab--cd.com"],
    "1a.com": ["1a.com"],
    "1.com": ["1.com"],
    "x" * 63 + ".com": ["x" * 63 + ".com"],
    "x" * 63: ["X" * 63],
    "com." + "x" * 63: ["com." + "X" * 63],
    "ssl.example": ["SSL.example"],
    "xn--strae-oqa.de": ["Straße.de"],
    # IDNA
    "xn--bcher-kva.example": ["bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "XN--BCHER-KVA.example"],
    "xn--fa-hia.de": ["faß.de"],
    "xn--wgv71a119e.jp": ["日本語.jp"],
    "xn--n3h.net": ["☃.net"],
    "a.b": ["a%2eb"],
    # IPv4 in every notation
    "127.0.0.1": ["127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F.0.0.1",
        "017700000001", "0177.0.0.01", "0x7f.0x0.0x0.0x1", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1",
        "%31%32%37.0.0.1"],
    "0.0.0.0": ["0", "0x"],
    "255.255.255.255": ["4294967295"],
    "169.254.169.254": ["169.254.169.254", "0251.0376.0251.0376"],
    # IPv6
    "[::1]": ["[::1]", "[0:0:0:0:0:0:0:1]"],
    "[2001:db8::1]": ["[2001:DB8::1]", "[2001:0db8:0000:0000:0000:0000:0000:0001]"],
    "[::]": ["[::]"],
    "[::7f00:1]": ["[::127.0.0.1]"],
    "[64:ff9b::102:304]": ["[64:ff9b::1.2.3.4]"],
    "[fe80::1]": ["[fe80::1]"],
    "[1:2:3:4:5:6:7:8]": ["[1:2:3:4:5:6:7:8]"],
    "[::fffe:102:304]": ["[::fffe:1.2.3.4]"],
    "[1::ffff:102:304]": ["[1::ffff:102:304]"],
})  # fmt: skip

# As written, and a part of what the refusal says.
REFUSED = grouped({
    "a host name such as `api.example.com`": [""],
    "a host name": [".", "..", "a..b", ".a", "a.b..", "。", "a b", " a", "a ", "a%00b", "a%20b", "a%2fb", "a%", "a!b",
        "a$b", "a'b", "a(b", "a,b", "a;b", "a=b", "a&b", "a~b", "a{b", "a|b", "a<b", "a^b", "%2a.com", "＊.com",
        "user@x.com", "x.com#f", "x.com?q", "x.com\\a", "[::1]:80", "[::1]:8080]", "x.com:80", "[]", "[x]", "[::1]]",
        "[fe80::1%25eth0]", "[fe80::1%eth0]", "[1.2.3.4]", "[v1.x]", "256.256.256.256", "1.2.3.4.5", "1.2.3.256",
        "4294967296", "0x100000000", "foo.1", "foo.0x1", "09", "1.2.3.08", "1..2", "xn--a", "xn--", "xn--zn7c.com",
        "x" * 64 + ".com", "x" * 64],
    "found `a\\u0009`": ["a\t"],
    "found `a\\u000ab`": ["a\nb"],
    "found `a\\u0000b`": ["a\x00b"],
    "found `a\\u007fb`": ["a\x7fb"],
    "found `a\\u200bb`": ["a\u200bb"],
    "found `a\\u202eb`": ["a\u202eb"],
    "found `a\\ud800b`": ["a\ud800b"],
    "did you mean `x.com`?": ["x.com/", "x.com/v1", "https://x.com", "https://x.com:0/",
        "https://x.com/?to=https://y.com", "//x.com/", "X.com/a"],
    "address ranges go under `private`": ["10.0.0.0/8", "199.0.0.0/10", "192.168.0.0/19", "fd00::/8", "FD00::/8",
        "fa09::/10", "FA09::/19"],
    "did you mean `10.0.0.0`?": ["10.0.0.0/8x"],
    "without scheme and path": ["https://a b/", "://"],
    "without a path": ["/"],
    "did you mean `x.com:80`? (protocol and method belong to whole rules": ["HTTPS://user@X.com:80/a"],
    "did you mean `localhost:8080`?": ["http://localhost:8080"],
    "did you mean `[::1]:8080`?": ["http://[::1]:8080/"],
    "did you mean `x.com:443`?": ["https://x.com:443/"],
    "did you mean `get:81`?": ["https://get:81/"],
    "did you mean `x.com:21`?": ["ftp://x.com:21/"],
    "did you mean `x.com:8443`?": ["x.com:8443/v1"],
    "write an IPv6 address in brackets: `[::1]`": ["::1"],
    "write an IPv6 address in brackets": ["[::1", "::1]", "[::1]x"],
    "write an IPv4-mapped address as plain IPv4": ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:0:0]",
        "[0:0:0:0:0:ffff:a9fe:a9fe]"],
    "instead of the capital sharp s": ["ẞ.com", "STRAẞE.de", "%e1%ba%9e.com"],
    "found `a\\u00adb`": ["a\u00adb"],
    "at most 253 characters": [".".join(["x" * 63] * 3 + ["x" * 62]), "A" + ".a" * 126 + "a"],
})  # fmt: skip

REFUSED_PATTERNS = grouped({
    "a wildcard inside a name is not supported": ["**", "*x.com", "a.*.com", "a*.com", "a.*", "*.*", "*.*.com",
        "*.a*.com"],
    "a host name": ["*.", "*..com", ".com", "*.https://x.com", "*.x.com/a", "*.%2a.com"],
    "addresses have no subdomains": ["*.127.0.0.1", "*.0.0.1", "*.1", "*.2130706433", "*.[::1]", "*.0x7f.1"],
})  # fmt: skip

PATTERNS = [
    ("*", "*"),
    ("*.x.com", "*.x.com"),
    ("*.X.COM.", "*.x.com"),
    ("*.bücher.example", "*.xn--bcher-kva.example"),
    ("*.com", "*.com"),
    ("*.internal", "*.internal"),
    ("X.com", "x.com"),
    ("127.1", "127.0.0.1"),
]


@pytest.mark.parametrize(("text", "canonical"), SPELLINGS)
def test_every_spelling_of_a_host_is_one_host(text: str, canonical: str) -> None:
    assert canonical_host(text) == canonical
    assert host_key(text) == canonical
    assert str(Use(f"network:tcp:{text}:80")) == f"network:tcp:{canonical}:80"
    assert use_of_url("GET", f"https://{text}/").target == canonical
    assert use_of_url("GET", f"https://{text}:8443/") == Use(f"network:https:get@{canonical}:8443")
    assert CapabilitySet([f"network:*:{text}"]).has(f"network:https:get@{canonical}")
    assert CapabilitySet([f"network:*:{canonical}"]).has(f"network:https:get@{text}")
    assert not CapabilitySet(["network:*:*"], [f"network:*:{canonical}"]).has(use_of_url("GET", f"http://{text}"))


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_an_invalid_host_is_refused_in_rules_and_uses(text: str, says: str) -> None:
    for parse in (canonical_host, host_key):
        with pytest.raises(Malformed) as refusal:
            parse(text)
        assert says in str(refusal.value)
        assert refusal.value.found == text
    with pytest.raises(InvalidUse):
        Use(f"network:https:get@{text}:443")


@pytest.mark.parametrize("text", ["", "a b", "x.com:80", "a..b", "%2a.com", "1.2.3.4.5"])
def test_a_host_without_a_likely_meaning_gets_no_hint(text: str) -> None:
    with pytest.raises(Malformed) as refusal:
        canonical_host(text)
    assert refusal.value.hint == ""


@pytest.mark.parametrize(("text", "says"), REFUSED_PATTERNS)
def test_a_malformed_pattern_is_refused(text: str, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        host_key(text)
    assert says in str(refusal.value)


@pytest.mark.parametrize(("text", "canonical"), PATTERNS)
def test_a_pattern_is_written_canonically(text: str, canonical: str) -> None:
    assert host_text(host_key(text)) == canonical


def test_the_longest_host_name_is_accepted_and_one_more_is_not() -> None:
    longest = ".".join(["x" * 63] * 3 + ["x" * 61])
    assert len(longest) == LONGEST_HOST == 253
    assert canonical_host(longest) == longest
    assert host_key(longest) == longest
    assert canonical_host(f"{longest.upper()}.") == longest
    assert use_of_url("GET", f"http://{longest}./").target == longest
    for wrong in (f"{longest}x", f"{longest}X"):
        with pytest.raises(Malformed, match="at most 253"):
            host_key(wrong)
        with pytest.raises(InvalidUse, match="at most 253"):
            use_of_url("GET", f"http://{wrong}/")


def test_a_wildcard_before_the_longest_name_needs_the_name_alone_to_fit() -> None:
    longest = ".".join(["x" * 63] * 3 + ["x" * 61])
    assert host_text(host_key(f"*.{longest}")) == f"*.{longest}"
    assert host_text(host_key(f"*.{longest.upper()}")) == f"*.{longest}"
    with pytest.raises(Malformed):
        host_key(f"*.{longest}x")


def test_a_refused_host_is_shown_with_hidden_characters_made_visible() -> None:
    assert visible("a\u202eb\x00\n") == "a\\u202eb\\u0000\\u000a"
    assert visible("plain é 日本") == "plain é 日本"
    assert visible("\U000e0001") == "\\ue0001"
    assert visible("") == ""


def test_a_plain_name_needs_no_parser() -> None:
    letters = string.ascii_lowercase + string.digits + "_-"
    longest = ".".join(["x" * 63] * 3 + ["x" * 61])
    names = [form.format(char) for char in letters for form in ("{}.com", "a{}.com", "{}a.b.c", "x{}", "a.x{}")]
    names += [*string.ascii_lowercase, "x" * 63, "x" * 63 + ".com", "com." + "x" * 63, "a.b.c.d.e", longest]
    for name in names:
        assert plain_host_key(name) == name
        assert len(name) > 250 or plain_host_key(f"*.{name}") == f".{name}"
    for name in (
        "",
        "*",
        "*.",
        "X",
        "é",
        "a.",
        "1",
        "1.2",
        "a.1",
        "a.-b",
        "a._",
        "xn--a",
        "a.xn--b.c",
        "a*",
        "x" * 64,
        f"{longest}x",
    ):
        assert plain_host_key(name) is None


@given(host_names)
@example("xn--a.b")
@example("axn--b")
@example("a.0x1")
@example("1.2")
@example("0x.a")
@example("a-")
@example("_")
@example("a.b.09")
def test_the_fast_path_for_plain_hosts_agrees_with_the_parser(text: str) -> None:
    try:
        parsed = can_ada.parse(f"http://{text}/").hostname
    except ValueError:
        with pytest.raises(Malformed):
            host_key(text)
    else:
        assert host_key(text) == canonical_host(text) == parsed
        if not is_address(parsed):
            assert host_key(f"*.{parsed}") == f".{parsed}"


@given(odd_hosts)
@example("a\u00adb")
@example("ß。ß")
@example("%30%78%63%30%2e%30%32%35%30.01%2e")
def test_an_accepted_host_is_canonical_and_what_the_parser_connects_to(text: str) -> None:
    host = outcome(host_key, text)
    if isinstance(host, Malformed):
        assert str(host).isprintable()
        return
    if text == "*":
        return
    assert CANONICAL.fullmatch(host[text.startswith("*.") :])
    if not text.startswith("*."):
        assert can_ada.parse(f"http://{text}/").hostname.removesuffix(".") == host
        assert can_ada.parse(f"http://{host}/").hostname == host
        assert host_key(host) == canonical_host(host) == host
        assert checked_host(host, text) == host
    assert host_key(host_text(host)) == host


ADDRESSES = grouped({
    True: ["127.0.0.1", "[::1]", "0.0.0.0", "1"],
    False: ["x.com", "1.com", "a", "127.0.0.1.nip.io", "x1", "a.1b"],
})  # fmt: skip


@pytest.mark.parametrize(("host", "expected"), ADDRESSES)
def test_addresses_and_names_are_distinguished(host: str, expected: bool) -> None:
    assert is_address(host) is expected


ANCESTORS = [
    ("api.x.com", ("api.x.com", ".x.com", ".com", "")),
    ("x.com", ("x.com", ".com", "")),
    ("com", ("com", "")),
    (".x.com", (".x.com", ".com", "")),
    (".com", (".com", "")),
    ("", ("",)),
    ("[::1]", ("[::1]", "")),
]


@pytest.mark.parametrize(("key", "expected"), ANCESTORS)
def test_a_host_lies_under_itself_its_parent_domains_and_the_top(key: str, expected: tuple[str, ...]) -> None:
    assert host_ancestors(key) == expected


# As written under `destinations`, and the rule it is.
DESTINATIONS = grouped({
    "network:*:x.com": ["x.com", "X.com."],
    "network:*:*.x.com": ["*.x.com", "*.X.com"],
    "network:*:*": ["*"],
    "network:*:x.com:80": ["x.com:80"],
    "network:*:*:80": ["*:80"],
    "network:*:*.x.com:80": ["*.x.com:80"],
    "network:*:*@get": ["get", "GET"],
    "network:*:*@get:80": ["get:80"],
    "network:*:127.0.0.1": ["127.1"],
    "network:*:[::1]": ["[::1]"],
    "network:*:[::1]:80": ["[0::1]:80"],
})  # fmt: skip
NO_DESTINATIONS = grouped({
    "a host name": ["", "tcp://x.com"],
    "did you mean `x.com`?": ["https://x.com", "https://x.com/a", "user:pass@x.com", "x.com/a"],
    "did you mean `localhost:8080`?": ["http://localhost:8080"],
    "did you mean `*.x.com:8443`?": ["https://*.x.com:8443/a", "*.x.com:8443/a"],
    "did you mean `x.com`? (protocol and method belong to whole rules": ["get@x.com"],
    "did you mean `y`?": ["x@y"],
    "did you mean `x.com:8443`?": ["a@b@x.com:8443"],
    "only the host belongs here (protocol and method": ["x@"],
    "`*` alone or `*.` before a name": ["*@x.com"],
    "address ranges go under `private`": ["10.0.0.0/8"],
    "a wildcard inside a name": ["a.*.com"],
    "a port from 1 to 65535": ["x.com:0"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), DESTINATIONS)
def test_a_destination_is_the_rule_for_every_request_to_a_host(text: str, expected: str) -> None:
    assert str(destination_rule(text)) == expected
    assert destination_rule(text) == Capability(expected)


@pytest.mark.parametrize(("text", "says"), NO_DESTINATIONS)
def test_a_url_is_refused_as_a_destination(text: str, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        destination_rule(text)
    assert says in str(refusal.value)


def test_a_checked_destination_cannot_become_another_one() -> None:
    there = destination("GET", "https://api.example.com/v1")
    with pytest.raises(AttributeError):
        there.url = "https://evil.example/"  # type: ignore[misc]


def test_no_wildcard_covers_an_address() -> None:
    everything_below = CapabilitySet([f"network:*:*.{top}" for top in ("com", "a", "internal")])
    assert not everything_below.has("network:http:get@10.0.0.1")
    assert not everything_below.has("network:http:get@[::1]")
    assert CapabilitySet(["network:*:*"]).has("network:http:get@10.0.0.1")


def test_a_wildcard_covers_every_name_below_and_not_the_apex() -> None:
    below = CapabilitySet(["network:*:*.x.com"])
    assert below.has("network:https:get@a.x.com")
    assert below.has("network:https:get@a.b.c.x.com")
    for host in ("x.com", "notx.com", "x.com.evil.com", "com", "ax.com", "x.co"):
        assert not below.has(f"network:https:get@{host}")


@pytest.mark.parametrize(
    "host",
    [
        "a" * 63 + ".b0.c",
        "0" + "a" * 62 + ".b.c0",
        "a" * 63 + ".b",
        "a" * 62 + ".b",
        "a" * 61 + ".b",
        "9.z9." + "a" * 60 + ".z",
    ],
)
def test_names_too_long_for_the_fast_path_are_hosts_too(host: str) -> None:
    assert canonical_host(host) == host
    assert CapabilitySet([f"network:*:{host}"]).has(f"network:https:get@{host}")


def test_invisible_characters_are_escaped() -> None:
    assert visible("plain") == "plain"
    assert visible("a\u3164b") == "a\\u3164b"
    assert visible("a\u200bb") == "a\\u200bb"
    assert visible("\x1b[2J") == "\\u001b[2J"
    assert visible("grüß") == "grüß"
