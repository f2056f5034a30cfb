"""Ranges of versions as npm writes them: `^1.2`, `~1.2.3`, `1.x`, `>=1 <2 || 3.0.0`, `1.2 - 2.3`.

This follows the README of node-semver; its looser spellings, such as `01.2.3`, are in no range here. A word that is no
range, such as `latest`, is a tag of the registry: which version it names is not known.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

__all__ = ["is_tag", "satisfies"]

_NUMBER = r"0|[1-9][0-9]*"
_X = rf"{_NUMBER}|[xX*]"
_PRE = r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
_VERSION = re.compile(rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER}){_PRE}")
_PARTIAL = rf"[v=\s]*(?P<major>{_X})(?:\.(?P<minor>{_X})(?:\.(?P<patch>{_X}){_PRE})?)?"
_COMPARATOR = re.compile(rf"(?P<sign>\^|~>?|[<>]=?|=)?\s*{_PARTIAL}")
_HYPHEN = re.compile(r"(?P<low>\S+)\s+-\s+(?P<high>\S+)")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_ALONE = re.compile(r"([<>]=?|=|\^|~>?)\s+")  # a sign with spaces after it

_Pre = tuple[tuple[int, int | str], ...]


class _Version(Struct, frozen=True):
    numbers: tuple[int, int, int]
    pre: _Pre = ()

    @property
    def order(self) -> tuple[tuple[int, int, int], bool, _Pre]:
        """A version without a prerelease comes after those with one."""
        return self.numbers, not self.pre, self.pre


class _Bound(Struct, frozen=True):
    """One end of a range: `>=` or `<` a version, or `>` or `<=` it."""

    sign: str
    version: _Version

    def admits(self, version: _Version) -> bool:
        one, other = version.order, self.version.order
        match self.sign:
            case ">=":
                return one >= other
            case ">":
                return one > other
            case "<":
                return one < other
            case "<=":
                return one <= other
            case _:
                return one == other


class _NoRange(ValueError):
    """A text that is no range."""


_FIRST = _Version((0, 0, 0), ((0, 0),))  # comes before every version
_NONE = _Bound("<", _FIRST)


def is_tag(text: str) -> bool:
    """Whether a text after `@` names a tag, and no version or range."""
    if not _TAG.fullmatch(text):
        return False
    try:
        list(_alternatives(text))
    except _NoRange:
        return True
    return False


def satisfies(version: str, text: str) -> bool:
    """Whether a version is in a range. A text that is no range has no versions, and every version is in `*`."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return False
    one = _Version((int(found["major"]), int(found["minor"]), int(found["patch"])), _pre(found["pre"]))
    try:
        return any(_in(one, bounds) for bounds in list(_alternatives(text)))  # all of it must be a range
    except _NoRange:
        return False


def _in(version: _Version, bounds: list[_Bound]) -> bool:
    if not all(bound.admits(version) for bound in bounds):
        return False
    # A prerelease is in a range only if the range names a prerelease of the same version; npm takes any for `*`.
    return not (version.pre and bounds) or any(
        bound.version.pre and bound.version.numbers == version.numbers for bound in bounds if bound is not _NONE
    )


def _alternatives(text: str) -> Iterator[list[_Bound]]:
    for part in text.split("||"):
        words = part.strip()
        if hyphen := _HYPHEN.fullmatch(words):
            yield [*_comparator(f">={hyphen['low']}"), *_comparator(f"<={hyphen['high']}")]
        else:
            yield [bound for word in _ALONE.sub(r"\1", words).split() for bound in _comparator(word)]


def _comparator(word: str) -> Iterator[_Bound]:
    found = _COMPARATOR.fullmatch(word)
    if found is None:
        raise _NoRange(word)
    given = [found[name] for name in ("major", "minor", "patch")]
    known = [int(one) for one in given[: next((i for i, one in enumerate(given) if one in (None, "x", "X", "*")), 3)]]
    low = _Version((*known, 0, 0, 0)[:3], _pre(found["pre"]) if len(known) == 3 else ())  # type: ignore[arg-type]
    match found["sign"]:
        case "^":
            yield from _from_to(low, known, next((i for i, one in enumerate(known) if one), len(known) - 1))
        case "~" | "~>":
            yield from _from_to(low, known, min(1, len(known) - 1))
        case None | "=":
            yield from [_Bound("=", low)] if len(known) == 3 else _from_to(low, known, len(known) - 1)
        case sign if len(known) == 3:
            yield _Bound(sign, low)
        case ">" if known:
            yield _Bound(">=", _next(known, len(known) - 1))
        case "<=" if known:
            yield _Bound("<", _before(_next(known, len(known) - 1)))
        case "<" if known:
            yield _Bound("<", _before(low))
        case ">=" if known:
            yield _Bound(">=", low)
        case ">" | "<":  # than any version
            yield _NONE
        case _:
            return


def _from_to(low: _Version, known: list[int], place: int) -> Iterator[_Bound]:
    """From a version to the next one at a place; a range without a number is any version."""
    if known:
        yield _Bound(">=", low)
        yield _Bound("<", _before(_next(known, place)))


def _next(known: list[int], place: int) -> _Version:
    return _Version((*known[:place], known[place] + 1, 0, 0, 0)[:3])  # type: ignore[arg-type]


def _before(version: _Version) -> _Version:
    """The first prerelease of a version, which comes before all others: `<2.0.0-0`."""
    return _Version(version.numbers, ((0, 0),))


def _pre(text: str | None) -> _Pre:
    """Numbers come before words, and are compared as numbers."""
    return tuple((0, int(one)) if one.isdigit() else (1, one) for one in text.split(".")) if text else ()
