"""Wildcards over public suffixes: `*.com` is refused, `*.github.io` earns a warning. The list is offline data."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
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
    if _is_public(suffix, only_icann=True):
        found, expected = f"`*.{suffix}`", "a wildcard below a name that somebody owns"
        yield Problem(origin, found, expected, f"`{suffix}` is a public suffix: anybody can have a name there")
    elif _is_public(suffix, only_icann=False):
        found, expected = f"`*.{suffix}`", "a name below a shared suffix"
        yield Problem(origin, found, expected, "its sites belong to different people", "warning")


def _is_public(suffix: str, *, only_icann: bool) -> bool:
    return bool(_list(suffix.rpartition(".")[2], only_icann).is_public(suffix))


@lru_cache(256)
def _list(last: str, only_icann: bool) -> Any:
    """The part of the list about names with this last label; making sense of the whole takes a tenth of a second."""
    from publicsuffixlist import PublicSuffixList

    spellings = (last, last.encode().decode("idna")) if last.startswith("xn--") else (last,)
    ends = tuple(start + spelling for spelling in spellings for start in (".", "\n"))
    lines = [line for line in _lines() if line.startswith("// ===") or f"\n{line}".endswith(ends)]
    return PublicSuffixList(lines, accept_unknown=False, only_icann=only_icann)


@lru_cache(1)
def _lines() -> list[str]:
    """The rules of the list, and the comments that mark its sections."""
    from publicsuffixlist import PSLFILE

    lines = Path(PSLFILE).read_text("utf-8").splitlines()
    rules = (line if line.startswith("// ===") else line.partition("//")[0].split(" ")[0] for line in lines)
    return [rule for rule in rules if rule]
