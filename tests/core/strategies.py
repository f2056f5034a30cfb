"""Hypothesis strategies: rules, sets and uses over small universes, and random text."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from hypothesis import strategies as st

from licet.core.algebra.rules import Capability, InvalidUse
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet

from .naive import (
    ACTIONS,
    DOMAINS,
    HOSTS,
    METHODS,
    PORTS,
    REQUESTS,
    SMALL_SCOPES,
    PlainRule,
    PlainUse,
    universe,
)


@dataclass(frozen=True, slots=True)
class PlainSet:
    """The rules and denies of a set, in the order they were written."""

    allow: tuple[PlainRule, ...]
    deny: tuple[PlainRule, ...] = ()

    @property
    def real(self) -> CapabilitySet:
        return CapabilitySet([rule.text for rule in self.allow], [rule.text for rule in self.deny])


def _spoken() -> list[tuple[str, str, str, bool]]:
    """Compatible actions, methods and protocols of a network rule; the wider ones more often."""
    found = []
    for action in ("*", *ACTIONS["network"]):
        for method, protocol, bare in product(("*", *METHODS), ("*", *PROTOCOLS), (False, True)):
            if (protocol != "*" and (bare or action in PROTOCOLS)) or (bare and method == "*"):
                continue
            rule = PlainRule("network", action, "*", method, protocol)
            said = sum(rule.reaches(PlainUse("network", *request, port=9)) for request in _REQUESTS)
            found += [(action, method, protocol, bare)] * (said and max(1, said - 2))
    return found


def _network_rule(words: tuple[str, str, str, bool], host: str, port: int | None) -> PlainRule:
    action, method, protocol, bare = words
    return PlainRule("network", action, host, method, protocol, port, bare)


PROTOCOLS = ("http", "https", "tcp")
_REQUESTS = [(protocol, "z", method) for protocol, method in REQUESTS]
network_rules = st.builds(_network_rule, st.sampled_from(_spoken()), st.sampled_from(HOSTS), st.sampled_from(PORTS))


def rules_of(domain: str) -> st.SearchStrategy[PlainRule]:
    """Small rules of one domain."""
    if domain == "network":
        return network_rules
    every = (PlainRule(domain, *parts) for parts in product((*ACTIONS[domain], "*"), SMALL_SCOPES[domain]))
    return st.sampled_from(tuple(every))


def sets_of(domain: str, most: int = 6) -> st.SearchStrategy[PlainSet]:
    """Small sets of one domain, with denies."""
    rules = st.lists(rules_of(domain), max_size=most).map(tuple)
    denies = st.lists(rules_of(domain), max_size=most // 2).map(tuple)
    return st.builds(PlainSet, rules, denies)


def uses_of(domain: str) -> st.SearchStrategy[PlainUse]:
    """Uses of one domain's universe."""
    return st.sampled_from(universe(domain))


# The rich domains more often than the flat ones.
_OFTEN = ("network", "network", "network", "fs", "fs", "secret", "storage", *DOMAINS)
domains = st.sampled_from(_OFTEN)
rules = st.one_of([rules_of(domain) for domain in _OFTEN])
uses = st.one_of([uses_of(domain) for domain in _OFTEN])
sets = st.builds(
    PlainSet, st.lists(rules, max_size=8).map(tuple), st.one_of(st.just(()), st.lists(rules, max_size=4).map(tuple))
)

# Wide text ------------------------------------------------------------------------------------------------------------

labels = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12)
host_names = st.lists(labels, min_size=1, max_size=5).map(".".join)
odd_labels = st.text(st.sampled_from("abXZ09-_.ıßſ…é\u00ad\u200d\u3002\uff0e\uff11\uff41%2e*:[]@/\\ #?"), max_size=12)
odd_hosts = st.one_of(
    host_names,
    host_names.map(str.upper),
    host_names.map("{}.".format),
    odd_labels,
    st.text(max_size=20),
    st.ip_addresses().map(lambda address: f"[{address}]" if address.version == 6 else str(address)),
    st.lists(st.sampled_from(("0x7f", "0177", "127", "0", "1", "256", "0x", "08", "4294967295", "")), max_size=5).map(
        ".".join
    ),
)
components = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=8)
odd_paths = st.lists(
    st.one_of(components, st.sampled_from((".", "..", "", "...", "~", "*", "${workdir}"))), max_size=6
).map("/".join)
clean_components = st.text(
    st.characters(categories=("L", "N", "P", "S"), exclude_characters="/*${"), min_size=1, max_size=8
).filter(lambda part: part not in (".", ".."))
clean_paths = st.lists(clean_components, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))

_ROOTED = st.builds("{}{}".format, st.sampled_from(("", "~", "${workdir}")), clean_paths)
_NETWORK_SCOPES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(("", "", "GET@", "other@", "*@", "Delete@")),
    st.sampled_from(("", "", "https://", "TCP://")),
    st.builds("{}{}".format, st.sampled_from(("", "*.")), odd_hosts),
    st.sampled_from(("", "", ":80", ":00443", ":0", ":65536")),
)
_NAMED_SCOPES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
_PIECES = st.sampled_from(
    (
        "fs",
        "network",
        "secret",
        "storage",
        ":",
        "*",
        "@",
        "/",
        "//",
        ".",
        "..",
        "get",
        "https",
        "://",
        "a",
        "[::1]",
        "80",
    )
)


def _texts(domain: str) -> st.SearchStrategy[str]:
    scopes = {"fs": _ROOTED, "network": _NETWORK_SCOPES}.get(domain, _NAMED_SCOPES)
    return st.builds(f"{domain}:{{}}:{{}}".format, st.sampled_from((*ACTIONS[domain], "*")), scopes)


# Text that is often, but not always, a rule or a use.
odd_texts = st.one_of(
    st.sampled_from(DOMAINS).flatmap(_texts), st.lists(_PIECES, max_size=9).map("".join), st.text(max_size=30)
)
odd_urls = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(("http://", "https://", "HTTPS:", "ws://", "tcp://", "file://", "//", "", "http:\\\\")),
    st.sampled_from(("", "", "", "user@", "user:pass@", "@", ":@")),
    odd_hosts,
    st.sampled_from(("", "", ":80", ":443", ":0", ":99999", ":x")),
    st.sampled_from(("", "/", "/a b", "?q", "#f", "\\@evil.test", "\t", "\ud800")),
)
odd_methods = st.one_of(
    st.sampled_from((*METHODS, "GET", "PROPFIND", "CONNECT", "trace", "", "*", "GE T", "get\n", "é")),
    st.text(max_size=5),
)


def read(text: str) -> Capability | None:
    """Parse a text as a capability; None if it is malformed."""
    try:
        return Capability(text)
    except ValueError:
        return None


def outcome(ask: Callable[..., Any], *parts: object) -> Any:
    """Call a parser and return its value or its refusal; any other error fails the test."""
    try:
        return ask(*parts)
    except (Malformed, InvalidUse) as refusal:
        return refusal
