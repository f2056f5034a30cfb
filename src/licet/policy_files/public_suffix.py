"""Checks wildcards over public suffixes: `*.com` is an error, `*.github.io` a warning. The list is offline data."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from licet.core.algebra.capability import Capability
from licet.core.origin import Origin, Problem
from licet.policy_files.shapes import Located


def suffix_problems(content: Located[Any] | None) -> Iterator[Problem]:
    """A problem for every wildcard that covers sites of unrelated owners."""
    waiting = [] if content is None else [content]
    while waiting:
        located = waiting.pop()
        value = located.value
        if type(value) is Capability:
            if value.key[:1] == "." and value.domain == "network" and _is_suffix(value.key[1:], _rules()[1]):
                yield _over_suffix(value.key[1:], located.origin)
        elif isinstance(value, tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += [child for child in value.values() if isinstance(child, Located)]


def is_shared_suffix(name: str) -> bool:
    """Whether the names directly below a name belong to different owners: a registry's suffix, or a company's."""
    return _is_suffix(name, _rules()[1])


def is_shared_domain(name: str) -> bool:
    """Whether the names below a name belong to different owners: a suffix, what is above one, or one of `_SHARED`."""
    return is_shared_suffix(name) or name in _above_suffixes() or name in _SHARED


def _over_suffix(suffix: str, origin: Origin) -> Problem:
    if _is_suffix(suffix, _rules()[0]):
        found, expected = f"`*.{suffix}`", "a wildcard below a name that somebody owns"
        return Problem(origin, found, expected, f"`{suffix}` is a public suffix: anyone can register a name there")
    found, expected = f"`*.{suffix}`", "a name below a shared suffix"
    return Problem(origin, found, expected, "its sites belong to different people", "warning")


def _is_suffix(name: str, rules: frozenset[str]) -> bool:
    """Whether a name is a public suffix, so that the names directly below it belong to different owners."""
    if "xn--" in name:  # the list has Unicode names
        try:
            name = name.encode().decode("idna")
        except UnicodeError:
            return False
    if f"*.{name.partition('.')[2]}" in rules:
        return f"!{name}" not in rules
    return name in rules or f"*.{name}" in rules


# Domains in which customers get names, and that the list lacks.
_SHARED = frozenset(
    (
        *(
            "googleusercontent.com",
            "storage.googleapis.com",
            "firebaseio.com",
            "cloudflarestorage.com",
            "backblazeb2.com",
        ),
        *("r2.cloudflarestorage.com", "wasabisys.com", "aliyuncs.com", "myqcloud.com", "myhuaweicloud.com"),
        *("oraclecloud.com", "akamaized.net", "akamaihd.net", "edgekey.net", "edgesuite.net", "fastly.net"),
        *("cloudflareaccess.com", "sharepoint.com", "atlassian.net", "zendesk.com", "force.com", "my.salesforce.com"),
        *("auth0.com", "okta.com", "snowflakecomputing.com", "mongodb.net", "ngrok.dev", "gitpod.io"),
        *("nip.io", "sslip.io", "xip.io", "traefik.me", "localtest.me", "lvh.me"),
    )
)


@lru_cache(1)
def _above_suffixes() -> frozenset[str]:
    """Every name above a suffix of the list, in ASCII as in hosts, and as the list has it."""
    found: set[str] = set()
    for rule in _rules()[1]:
        name = rule.partition(".")[2]
        while name and not rule.startswith("//") and name not in found:
            found |= {name, name if name.isascii() else name.encode("idna").decode()}
            name = name.partition(".")[2]
    return frozenset(found)


@lru_cache(1)
def _rules() -> tuple[frozenset[str], frozenset[str]]:
    """The rules of domain registries, and these together with the rules of companies that give names to customers."""
    from publicsuffixlist import PSLFILE

    text = Path(PSLFILE).read_text("utf-8")
    registries, companies = text.split("===END ICANN DOMAINS===")
    official, every = frozenset(registries.split("\n")), frozenset(companies.split("\n"))
    return official, official | every
