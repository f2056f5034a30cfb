"""The grammar of network scopes, `network:A:[M@][P://]H[:N]`: every part alone, combined, and canonical."""

import itertools
from collections.abc import Callable

import pytest

from core.naive import EFFECT_OF, METHODS
from core.tables import grouped
from licet.core.algebra.domains import EFFECTS, METHOD_ATOMS, PROTOCOL_ATOMS
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet

# As written, and the canonical text if it differs.
ACCEPTED = grouped({
    # protocols
    "": ["network:https:*", "network:http:x.com", "network:tcp:db.internal:5432", "network:tcp:*", "network:*:*",
        "network:*:x.com", "network:*:*:443", "network:*:*.x.com:443", "network:http:get", "network:*:get",
        "network:*:other", "network:https:get@*.github.com", "network:*:post@x.com:8080", "network:https:get@*:443",
        "network:read:*", "network:read:x.com", "network:write:x.com:80", "network:read:https://x.com",
        "network:write:http://*.x.com:80", "network:read:https://*", "network:*:*@get", "network:https:*@get",
        "network:*:*@delete", "network:*:*@other", "network:read:*@get", "network:read:https://get",
        "network:*:get@get", "network:*:get.com", "network:*:*.get", "network:tcp:*@get:80", "network:*:connect",
        "network:*:x.com:1", "network:*:x.com:65535", "network:*:[::1]:80", "network:*:[::1]",
        "network:*:127.0.0.1:80"],
    # methods
    "network:http:get": ["network:http:GET"],
    "network:https:get@*.github.com": ["network:https:Get@*.GitHub.com"],
    "network:*:get": ["network:*:get@*", "network:read:get"],
    "network:http:x.com": ["network:http:*@x.com"],
    "network:http:*": ["network:http:*@*", "network:*:http://*"],
    "network:*:*:80": ["network:*:*@*:80"],
    "network:*:other@x.com": ["network:*:OTHER@x.com"],
    # effects
    "network:*:delete": ["network:delete:*"],
    "network:*:delete@x.com": ["network:delete:x.com", "network:delete:delete@x.com"],
    "network:*:delete@x.com:80": ["network:delete:x.com:80"],
    "network:read:https://x.com": ["network:read:HTTPS://X.com", "network:read:*@https://x.com"],
    "network:https:delete@x.com": ["network:delete:https://x.com"],
    "network:https:delete": ["network:delete:https://*"],
    "network:*:get@x.com": ["network:read:get@x.com"],
    "network:https:put@x.com": ["network:write:put@https://x.com"],
    # origins
    "network:https:x.com": ["network:*:https://x.com"],
    "network:https:x.com:8443": ["network:*:https://x.com:8443"],
    "network:tcp:db:5432": ["network:*:tcp://db:5432"],
    "network:https:get@x.com": ["network:*:get@https://x.com"],
    "network:tcp:*": ["network:*:Tcp://*"],
    # a host that is called like a method
    "network:https:*@get:80": ["network:https:*@Get:80", "network:*:https://get:80"],
    "network:https:*@get": ["network:*:https://get"],
    # ports
    "network:*:x.com:80": ["network:*:x.com:080"],
    "network:https:[::1]:80": ["network:*:https://[::1]:80"],
})  # fmt: skip

# As written, and a part of what the refusal says.
MALFORMED = grouped({
    # contradictions
    "parts that agree": ["network:http:https://x.com", "network:https:http://x.com", "network:https:tcp://x.com",
        "network:tcp:https://x.com", "network:tcp:get@x.com", "network:tcp:get", "network:tcp:other@x.com",
        "network:read:post@x.com", "network:read:other@x.com", "network:write:delete", "network:delete:get",
        "network:read:tcp://x.com", "network:write:get@https://x.com"],
    "no request is both at once": ["network:*:get@tcp://x.com"],
    # methods
    "expected one of get, head, options, post, put, patch, delete, other": ["network:https:connect@x.com",
        "network:https:trace@x.com"],
    "`other` means every method without a name of its own": ["network:https:propfind@x.com"],
    "did you mean `get@`?": ["network:https:gte@x.com", "network:https:GETT@x.com"],
    "expected one of get": ["network:https:@x.com", "network:https:get,post@x.com", "network:https:read@x.com",
        "network:https: get@x.com"],
    "user names and passwords": ["network:*:https://get@x.com", "network:*:user:pass@x.com", "network:*:a/b@x.com",
        "network:*:https://user:pass@x.com"],
    "a host name": ["network:*:get@https://user@x.com", "network:*:get@post@x.com", "network:*:https://x.com?q",
        "network:*:https://x.com#f", "network:*:https://", "network:*:x.com:80:90", "network:*:[::1]80",
        "network:*:[::1]:80:90", "network:*:", "network:*:get@", "network:*::80"],
    # origins
    "the protocol `http`, `https` or `tcp` before `://`": ["network:*:ftp://x.com"],
    "before `://`": ["network:*:*://x.com", "network:*:://x.com", "network:read:ws://x.com"],
    "did you mean `x.com`?": ["network:*:https://x.com/", "network:*:https://x.com/v1", "network:*:x.com/v1"],
    "a port from 1 to 65535": ["network:*:https://https://x.com", "network:*:x.com:0", "network:*:x.com:65536",
        "network:*:x.com:99999", "network:*:x.com:100000", "network:*:x.com:000080", "network:*:x.com:",
        "network:*:x.com:http", "network:*:x.com:-1", "network:*:x.com:+80", "network:*:x.com: 80",
        "network:*:x.com:8_0", "network:*:x.com:８０", "network:*:x.com:80\n", "network:*:x.com:1-1024",
        "network:*:[::1]:0"],
    # ports
    "leave the port out to mean any port": ["network:*:x.com:*"],
    "write an IPv6 address in brackets: `[::1]`": ["network:*:::1"],
    "write an IPv6 address in brackets: `[fe80::1]`": ["network:*:fe80::1"],
    "write `get@*:8080` for the method, `*@get:8080` for the host": ["network:*:get:8080"],
    "write `Delete@*:80` for the method, `*@Delete:80` for the host": ["network:https:Delete:80"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), ACCEPTED)
def test_a_network_rule_is_read_and_written_canonically(text: str, canonical: str) -> None:
    assert str(Capability(text)) == (canonical or text)


@pytest.mark.parametrize(("text", "says"), MALFORMED)
def test_a_malformed_network_rule_is_refused_with_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        Capability(text)
    assert says in str(refusal.value)


def test_a_contradiction_is_shown_with_its_action() -> None:
    with pytest.raises(Malformed) as refusal:
        Capability("network:http:get@https://x.com")
    assert refusal.value.found == "http:get@https://x.com"


def test_the_port_hint_is_for_a_star_only() -> None:
    with pytest.raises(Malformed) as refusal:
        Capability("network:*:x.com:0")
    assert refusal.value.hint == ""


def _all_uses() -> list[str]:
    requests = [f"{protocol}:{method}@h:80" for protocol in ("http", "https") for method in METHODS]
    return [f"network:{text}" for text in (*requests, "tcp:h:80")]


def test_there_are_seventeen_kinds_of_use_and_each_is_a_rule_by_itself() -> None:
    texts = _all_uses()
    assert len(texts) == 17
    for text in texts:
        only = CapabilitySet([text])
        assert [other for other in texts if only.has(other)] == [text]


# The action and scope of a rule, and what of the seventeen it reaches.
REACHES: list[tuple[str, Callable[[str, str], bool]]] = [
    ("*:h", lambda _protocol, _method: True),
    ("http:h", lambda protocol, _method: protocol == "http"),
    ("https:h", lambda protocol, _method: protocol == "https"),
    ("tcp:h", lambda protocol, _method: protocol == "tcp"),
    ("read:h", lambda _protocol, method: method in ("get", "head", "options")),
    ("write:h", lambda _protocol, method: method in ("post", "put", "patch")),
    ("delete:h", lambda _protocol, method: method == "delete"),
    ("read:https://h", lambda protocol, method: protocol == "https" and method in ("get", "head", "options")),
    ("*:other@h", lambda _protocol, method: method == "other"),
    ("http:patch@h", lambda protocol, method: (protocol, method) == ("http", "patch")),
    ("*:*@h", lambda _protocol, _method: True),
]


@pytest.mark.parametrize("rule", [text for text, _ in REACHES])
def test_which_requests_a_rule_reaches(rule: str) -> None:
    expected = dict(REACHES)[rule]
    found = CapabilitySet([f"network:{rule}"])
    for text in _all_uses():
        use = Use(text)
        assert found.has(use) == expected(use.action, use.method), text


def test_methods_have_the_effects_of_the_design() -> None:
    assert {method: effect for effect, methods in EFFECTS.items() for method in methods} == {
        method: effect for method, effect in EFFECT_OF.items() if method != "other"
    }
    for method, effect in EFFECT_OF.items():
        assert Use(f"network:https:{method}@h").effect == effect
    assert Use("network:tcp:h:1").effect == "other"


def test_http_never_covers_https_nor_the_other_way_round() -> None:
    for one, other in itertools.permutations(("http", "https", "tcp"), 2):
        for scope in ("*", "x.com", "x.com:443", "*.com"):
            assert not Capability(f"network:{one}:*").covers(Capability(f"network:{other}:{scope}"))


def test_rules_with_a_method_or_effect_never_cover_tcp() -> None:
    everything_mediated = CapabilitySet(
        [f"network:*:{method}" for method in METHODS]
        + [f"network:{effect}:*" for effect in ("read", "write", "delete")]
    )
    assert everything_mediated.has("network:http:other@x.com")
    assert everything_mediated == CapabilitySet(["network:http:*", "network:https:*"])
    assert not everything_mediated.has("network:tcp:x.com:443")
    assert CapabilitySet(["network:*:*"]).has("network:tcp:x.com:443")


def test_no_port_means_any_port_in_origins_too() -> None:
    rule = CapabilitySet(["network:*:https://x.com"])
    assert rule.has("network:https:get@x.com:443")
    assert rule.has("network:https:get@x.com:8443")
    assert not rule.has("network:http:get@x.com:443")
    assert not CapabilitySet(["network:https:x.com:443"]).has("network:https:get@x.com:8443")
    assert not CapabilitySet(["network:https:x.com:443"]).has("network:http:get@x.com:443")


# The meets of network rules go component by component.
MEETS = [
    ("network:*:*.github.com", "network:*:api.github.com", "network:*:api.github.com"),
    ("network:*:*.github.com", "network:*:github.com", None),
    ("network:*:api.stripe.com", "network:*:*.github.com", None),
    ("network:https:*", "network:read:*.x.com", "network:read:https://*.x.com"),
    ("network:https:*", "network:*:delete@x.com", "network:https:delete@x.com"),
    ("network:read:*", "network:*:get@x.com:80", "network:*:get@x.com:80"),
    ("network:read:*", "network:write:*", None),
    ("network:read:*", "network:tcp:*", None),
    ("network:http:*", "network:https:*", None),
    ("network:*:*:80", "network:*:x.com", "network:*:x.com:80"),
    ("network:*:*:80", "network:*:x.com:443", None),
    ("network:https:get", "network:*:*.x.com:8443", "network:https:get@*.x.com:8443"),
    ("network:*:*.a.com", "network:*:*.b.a.com", "network:*:*.b.a.com"),
    ("network:*:*", "network:*:*", "network:*:*"),
    ("network:*:*", "network:tcp:10.0.0.1:22", "network:tcp:10.0.0.1:22"),
    ("network:*:*", "network:*:*@get", "network:*:*@get"),
    ("network:https:*@get", "network:read:*@get:80", "network:read:https://get:80"),
    ("network:*:[::1]", "network:*:[0:0::1]:80", "network:*:[::1]:80"),
]


@pytest.mark.parametrize(("one", "other", "expected"), MEETS)
def test_what_two_network_rules_have_in_common(one: str, other: str, expected: str | None) -> None:
    met = Capability(one).meet(Capability(other))
    assert (met if met is None else str(met)) == expected
    back = Capability(other).meet(Capability(one))
    assert met == back


COVERS = [
    ("network:*:*", "network:tcp:x:1", True),
    ("network:*:x.com", "network:*:x.com:80", True),
    ("network:*:x.com:80", "network:*:x.com", False),
    ("network:*:x.com:80", "network:*:x.com:81", False),
    ("network:*:*.x.com:80", "network:*:a.b.x.com:80", True),
    ("network:*:*.x.com", "network:*:x.com", False),
    ("network:*:*.x.com", "network:*:*.x.com", True),
    ("network:*:*.x.com", "network:*:*.a.x.com", True),
    ("network:*:*.a.x.com", "network:*:*.x.com", False),
    ("network:*:*.x.com", "network:*:notx.com", False),
    ("network:*:x.com", "network:*:*.x.com", False),
    ("network:read:*", "network:https:get@x", True),
    ("network:read:*", "network:https:x", False),
    ("network:https:*", "network:read:https://x", True),
    ("network:https:*", "network:read:x", False),
    ("network:*:delete", "network:delete:x:1", True),
]


@pytest.mark.parametrize(("one", "other", "expected"), COVERS)
def test_what_a_network_rule_covers(one: str, other: str, expected: bool) -> None:
    assert Capability(one).covers(Capability(other)) is expected


# What the rules of one host gather to, in a set.
GATHERED = [
    (["network:http:x", "network:https:x", "network:tcp:x"], ["network:*:x"]),
    (["network:http:x", "network:https:x"], ["network:http:x", "network:https:x"]),
    (["network:*:get@x", "network:*:head@x", "network:*:options@x"], ["network:read:x"]),
    (["network:http:get@x", "network:https:get@x"], ["network:*:get@x"]),
    (["network:read:http://x", "network:read:https://x"], ["network:read:x"]),
    (["network:http:get@x", "network:https:post@x"], ["network:http:get@x", "network:https:post@x"]),
    ([f"network:https:{method}@x" for method in METHODS], ["network:https:x"]),
    (["network:https:*", "network:*:x"], ["network:http:x", "network:https:*", "network:tcp:x"]),
    (["network:*:x", "network:*:x:80"], ["network:*:x"]),
    (["network:*:*:80", "network:*:x:80"], ["network:*:*:80"]),
    (["network:http:x:80", "network:http:x:81"], ["network:http:x:80", "network:http:x:81"]),
    (["network:*:*.x", "network:*:a.x", "network:*:x"], ["network:*:*.x", "network:*:x"]),
    (["network:read:x", "network:https:x"], ["network:https:x", "network:read:x"]),
]


@pytest.mark.parametrize(("rules", "expected"), GATHERED)
def test_rules_are_merged_into_the_fewest_texts(rules: list[str], expected: list[str]) -> None:
    assert [str(rule) for rule in CapabilitySet(rules)] == expected
    assert [str(rule) for rule in CapabilitySet(deny=rules).deny] == expected


def test_every_protocol_and_method_has_its_own_atoms() -> None:
    everything = 0
    for protocol, atoms in PROTOCOL_ATOMS.items():
        assert not everything & atoms, protocol
        everything |= atoms
    assert everything == (1 << 17) - 1
    for method, atoms in METHOD_ATOMS.items():
        assert [bool(atoms & PROTOCOL_ATOMS[protocol]) for protocol in ("http", "https", "tcp")] == [True, True, False]
        assert atoms.bit_count() == 2, method
