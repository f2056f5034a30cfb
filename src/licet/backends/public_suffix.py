"""Wildcards over public suffixes: `*.com` is refused, `*.github.io` earns a warning. The list is offline data."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from licet.backends.shapes import Located
from licet.core.capability import Capability
from licet.core.origin import Origin, Problem


def suffix_problems(content: Located[Any] | None) -> Iterator[Problem]:
    """A problem for every wildcard that would reach the sites of strangers."""
    waiting = [] if content is None else [content]
    while waiting:
        value = waiting.pop()
        held = value.value
        if type(held) is Capability:
            if held.domain == "network" and held.key[:1] == ".":
                yield from _over_suffix(held.key[1:], value.origin)
        elif isinstance(held, tuple):
            waiting += held
        elif isinstance(held, Mapping):
            waiting += [child for child in held.values() if isinstance(child, Located)]


def _over_suffix(suffix: str, origin: Origin) -> Iterator[Problem]:
    if _icann().is_public(suffix):
        found, expected = f"`*.{suffix}`", "a wildcard below a name that somebody owns"
        yield Problem(origin, found, expected, f"`{suffix}` is a public suffix: anybody can have a name there")
    elif _shared().is_public(suffix):
        found, expected = f"`*.{suffix}`", "a name below a shared suffix"
        yield Problem(origin, found, expected, "its sites belong to different people", "warning")


@lru_cache(1)
def _icann() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False, only_icann=True)


@lru_cache(1)
def _shared() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)
