"""Glob patterns and ignore files, matched in bounded time, because a pattern may come from a model or a foreign
repository.

Regular expressions would not do: for `*a*a*a*a*b` they try every way to split a name. Here only the last star is
extended, so matching takes at most the length of the name times the length of the pattern. With many patterns and names
that is still much, so a meter counts the steps.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

_LONGEST = 1000  # characters of one pattern; longer ones match nothing


class TooManySteps(Exception):
    """Matching takes more steps than allowed."""


class StepMeter:
    """Counts the steps of matching. There is a limit in total, and one between two pauses for other tasks."""

    __slots__ = ("_all", "_at_once", "now")

    def __init__(self, in_all: int, at_once: int) -> None:
        self._all = in_all
        self._at_once = at_once
        self.now = 0  # since other tasks last ran

    def take(self, steps: int) -> None:
        """Count steps, or raise `TooManySteps`."""
        self.now += steps
        if self.now > min(self._all, self._at_once):
            raise TooManySteps

    def rest(self) -> None:
        """Record that other tasks have run."""
        self._all -= self.now
        self.now = 0


Test = Callable[[str, StepMeter], bool]
CharacterTest = Callable[[str], bool]


class Glob:
    """A pattern for paths: `*` and `?` stay within a name, `**` is any number of directories, `[a-z]` one character."""

    __slots__ = ("_last", "_parts")

    def __init__(self, pattern: str) -> None:
        parts = pattern.split("/") if len(pattern) <= _LONGEST else []
        self._parts: list[Test | None] = [None if part == "**" else _name_test(part) for part in parts]
        # Most patterns are `**/name`; for these only the last name counts.
        self._last = self._parts[1] if len(parts) == 2 and self._parts[0] is None else None

    def matches(self, names: Sequence[str], meter: StepMeter) -> bool:
        """Whether the parts of a path, outermost first, match the pattern."""
        if self._last is not None:
            return bool(names) and self._last(names[-1], meter)
        return bool(self._parts) and _stretch(self._parts, names, lambda test, name: test(name, meter), meter)


class Ignored(Struct, frozen=True):
    """One line of an ignore file."""

    glob: Glob
    depth: int  # the directory of its file; only names below it are matched
    directories_only: bool
    ignores: bool  # False for a line with `!`


def ignore_rules(text: str, depth: int) -> list[Ignored]:
    """The lines of an ignore file, as git reads them."""
    return [rule for line in text.splitlines() if (rule := _ignore_rule(line, depth))]


def is_ignored(rules: Sequence[Ignored], names: Sequence[str], directory: bool, meter: StepMeter) -> bool:
    """Whether ignore files leave a path out; the last line that matches decides."""
    meter.take(len(rules))
    for rule in reversed(rules):
        if (directory or not rule.directories_only) and rule.glob.matches(names[rule.depth :], meter):
            return rule.ignores
    return False


def _ignore_rule(line: str, depth: int) -> Ignored | None:
    line = line.removeprefix("\ufeff")
    kept = line.rstrip(" ")
    if kept.endswith("\\") and kept != line:  # an escaped space is kept
        kept += " "
    if not kept or kept.startswith("#"):
        return None
    ignores = not kept.startswith("!")
    pattern = kept if ignores else kept[1:]
    directories_only = pattern.endswith("/")
    pattern = pattern.rstrip("/") if directories_only else pattern
    if not pattern:
        return None
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not anchored:
        pattern = f"**/{pattern}"
    elif pattern.endswith("/**"):
        pattern += "/*"  # the content of the directory, not the directory itself
    return Ignored(Glob(pattern), depth, directories_only, ignores)


def _name_test(part: str) -> Test:
    """Make the test of one name."""
    if not any(char in part for char in "*?[\\"):
        return lambda name, meter: name == part
    if part.startswith("*") and not any(char in part[1:] for char in "*?[\\"):
        ending = part[1:]
        return lambda name, meter: name.endswith(ending)
    tests = _characters(part)
    return lambda name, meter: _stretch(tests, name, lambda test, char: test(char), meter)


def _characters(part: str) -> list[CharacterTest | None]:
    """Make a test for each character of a name; None matches any number of characters."""
    tests: list[CharacterTest | None] = []
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            if tests[-1:] != [None]:
                tests.append(None)
        elif char == "?":
            tests.append(lambda _: True)
        elif char == "[" and (end := part.find("]", at + (2 if part[at : at + 1] in ("!", "^") else 1))) != -1:
            tests.append(_one_of(part[at:end]))
            at = end + 1
        else:
            if char == "\\" and at < len(part):
                char = part[at]
                at += 1
            tests.append(char.__eq__)
    return tests


def _one_of(inside: str) -> CharacterTest:
    """Make the test for a character class `[…]`."""
    negated = inside[:1] in ("!", "^")
    text = inside[1:] if negated else inside
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            ranges.append((text[at], text[at + 2]))
            at += 3
        else:
            ranges.append((text[at], text[at]))
            at += 1
    # Sorted ranges, each with the highest end so far: one binary search decides, however many there are.
    ranges.sort()
    highest = list(accumulate((high for _, high in ranges), max))
    lowest = [low for low, _ in ranges]

    def passes(char: str) -> bool:
        place = bisect(lowest, char)
        return (place > 0 and char <= highest[place - 1]) != negated

    return passes


def _stretch(tests: Sequence[Any], items: Sequence[str], passes: Callable[[Any, str], bool], meter: StepMeter) -> bool:
    """Whether items pass their tests in order; a test of None accepts any number of items."""
    at = test = steps = 0
    star, resume = -1, 0
    while at < len(items):
        steps += 1
        if test < len(tests) and tests[test] is None:
            star, resume = test, at
            test += 1
        elif test < len(tests) and passes(tests[test], items[at]):
            at += 1
            test += 1
        elif star >= 0:  # extend the last star by one
            resume += 1
            at, test = resume, star + 1
        else:
            break
    meter.take(steps)
    return at >= len(items) and all(one is None for one in tests[test:])
