"""Wildcards over public suffixes: `*.com` is refused, `*.github.io` earns a warning. The list is offline data."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from licet.backends.shapes import Located
from licet.core.capability import Capability
from licet.core.origin import Problem


def suffix_problems(content: Located[Any] | None) -> Iterator[Problem]:
    """A problem for every wildcard that would reach the sites of strangers."""
    if content is None:
        return
    for value in _leaves(content):
        rule = value.value
        if isinstance(rule, Capability) and rule.domain == "network" and rule.key[:1] == ".":
            suffix = rule.key[1:]
            if _icann().is_public(suffix):
                found, expected = f"`*.{suffix}`", "a wildcard below a name that somebody owns"
                yield Problem(
                    value.origin, found, expected, f"`{suffix}` is a public suffix: anybody can have a name there"
                )
            elif _shared().is_public(suffix):
                found, expected = f"`*.{suffix}`", "a name below a shared suffix"
                yield Problem(value.origin, found, expected, "its sites belong to different people", "warning")


def _leaves(value: Located[Any]) -> Iterator[Located[Any]]:
    held = value.value
    children = held if isinstance(held, tuple) else held.values() if isinstance(held, Mapping) else ()
    for child in children:
        if isinstance(child, Located):
            yield from _leaves(child)
    yield value


@lru_cache(1)
def _icann() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False, only_icann=True)


@lru_cache(1)
def _shared() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)
