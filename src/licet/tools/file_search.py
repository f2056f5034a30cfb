"""A tool that searches the texts below a directory.

It searches for plain text, not for a regular expression: the pattern comes from a model, and a short one can make
Python's regular expressions run for years.

Glob patterns and ignore files, matched in bounded time, because a pattern may come from a model or a foreign
repository.

Regular expressions would not do: for `*a*a*a*a*b` they try every way to split a name. Here only the last star is
extended, so matching takes at most the length of the name times the length of the pattern. With many patterns and names
that is still much, so a meter counts the steps.
"""

import asyncio
import posixpath
import re
from bisect import bisect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

from msgspec import Struct

from licet import Context, Refused, tool
from licet.tools.basic import shown
from licet.tools.limits import (
    DEEPEST,
    LARGEST_FILE,
    LARGEST_IGNORE_FILE,
    LONGEST_GLOB,
    LONGEST_LINE,
    LONGEST_PATTERN,
    MOST_MATCHES,
    MOST_PATHS,
    MOST_RULES,
    MOST_STEPS,
    MOST_STEPS_AT_ONCE,
    MOST_TRIES,
)


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
        parts = pattern.split("/") if len(pattern) <= LONGEST_GLOB else []
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


_START = 8192  # bytes at the beginning of a file; a NUL in them means that it is no text
_IGNORE_FILES = (".gitignore", ".ignore")  # the later one decides
_EDGE = re.compile(r"\W")
_TURN = 20_000  # matching steps after which other tasks may run
_NEVER = frozenset({".git", ".hg", ".svn", ".jj"})


@tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only", sandbox="restricted")
async def search_files(
    ctx: Context,
    pattern: str,
    path: str = ".",
    glob: str = "*",
    ignore_case: bool = False,
    whole_word: bool = False,
    include_ignored: bool = False,
    max_matches: int = 100,
) -> dict[str, Any]:
    """Find the lines that hold a text, in all files below a directory.
    `pattern` is plain text, not a regular expression. `glob` chooses files: `*.py` by name, `src/**/*.py` by path,
    from the directory on. Files named by .gitignore or .ignore are left out unless `include_ignored`. If `more` is
    there, not everything was searched, and it says why.

    Ignore files count from `path` downwards. Version control directories, binary files and files of more than 4 MiB are
    skipped.
    """
    if not 0 < len(pattern) <= LONGEST_PATTERN or "\n" in pattern:
        raise ValueError(f"expected a `pattern` of one line, with 1 to {LONGEST_PATTERN} characters")
    if not 0 < max_matches <= MOST_MATCHES:
        raise ValueError(f"expected `max_matches` to be between 1 and {MOST_MATCHES}")
    needle = _Needle(pattern, ignore_case, whole_word)
    walk = _Walk(ctx, path, Glob(glob if "/" in glob else f"**/{glob}"), include_ignored)
    matches: list[dict[str, Any]] = []
    searched = 0
    async with aclosing(walk.files()) as files:
        async for name, place in files:
            try:
                data = await ctx.fs.read_bytes(place, LARGEST_FILE)
            except (OSError, Refused):  # removed or grown since it was listed
                continue
            searched += 1
            for line, text in needle.lines(data, max_matches + 1 - len(matches)):
                matches.append({"path": shown(name), "line": line, "text": text})
            await asyncio.sleep(0)  # let other tasks run, and the deadline take effect
            if len(matches) > max_matches:
                walk.cut = f"there are more than {max_matches} matches: narrow the search, or raise `max_matches`"
                break
    answer = {"matches": matches[:max_matches], "files_searched": searched}
    return {**answer, "more": walk.cut} if walk.cut else answer


class _Place(Struct, frozen=True):
    """A file or directory below the root: its names, its ignore rules, and the directories above it."""

    names: tuple[str, ...]
    rules: tuple[Ignored, ...]
    above: tuple[tuple[float, int, list[str]], ...]


class _Walk:
    """The files below a directory, in order, without ignored ones."""

    def __init__(self, ctx: Context, root: str, glob: Glob, include_ignored: bool) -> None:
        self._ctx = ctx
        self._root = root
        self._glob = glob
        self._include_ignored = include_ignored
        self._meter = StepMeter(MOST_STEPS, MOST_STEPS_AT_ONCE)
        self.cut = ""  # why not everything was searched

    async def files(self) -> AsyncGenerator[tuple[str, str]]:
        """Each file: its path for other tools, and the path to open."""
        try:
            async with aclosing(self._files()) as files:
                async for one in files:
                    yield one
        except TooManySteps:
            self.cut = "`glob` or the ignore files take too long: search in a narrower `path`, or `include_ignored`"

    async def _files(self) -> AsyncGenerator[tuple[str, str]]:
        clean = posixpath.normpath(self._root)
        prefix = "" if clean == "." else f"{clean.rstrip('/')}/"
        waiting = [_Place((), (), ())]
        seen = 0
        while waiting:
            place = waiting.pop()
            seen += 1
            if seen > MOST_PATHS:
                self.cut = f"there are more than {MOST_PATHS} files and directories: search in a narrower `path`"
                return
            if seen % 256 == 0 or self._meter.now > _TURN:  # also if nothing is searched
                await self._rest()
            names, path = place.names, "/".join((self._root, *place.names))
            try:
                found = await self._ctx.fs.stat(path)
                directory = found.kind == "directory"
                if is_ignored(place.rules, names, directory, self._meter):
                    continue
                if directory:
                    waiting += reversed(await self._entries(place, path, (found.modified, found.size)))
                elif not names:
                    yield clean, self._root
                elif found.size <= LARGEST_FILE and self._glob.matches(names, self._meter):
                    yield prefix + "/".join(names), path
            except (OSError, Refused):
                # A broken link, a link that leads outside, a device. For the root itself, the error goes to the caller.
                if not names:
                    raise

    async def _entries(self, place: _Place, path: str, looks: tuple[float, int]) -> list[_Place]:
        entries = await self._ctx.fs.list(path)
        # A link may lead back up, so a directory with the same status as one above it is not entered again.
        mark = (*looks, entries)
        if mark in place.above or len(place.names) >= DEEPEST:
            return []
        rules, above = place.rules, (*place.above, mark)
        if not self._include_ignored:
            rules += tuple(await self._rules(path, entries, len(place.names)))
            if len(rules) > MOST_RULES:
                raise TooManySteps
        return [_Place((*place.names, name), rules, above) for name in entries if name not in _NEVER]

    async def _rules(self, path: str, entries: list[str], depth: int) -> list[Ignored]:
        rules: list[Ignored] = []
        for name in _IGNORE_FILES:
            if name in entries:
                try:
                    data = await self._ctx.fs.read_bytes(f"{path}/{name}", LARGEST_IGNORE_FILE)
                except (OSError, Refused):
                    continue
                self._meter.take(len(data))
                rules += ignore_rules(data.decode(errors="replace"), depth)
                await self._rest()
        return rules

    async def _rest(self) -> None:
        """Let other tasks run, and the deadline take effect."""
        await asyncio.sleep(0)
        self._meter.rest()


class _Needle:
    """The text to find. Searching takes linear time."""

    def __init__(self, pattern: str, ignore_case: bool, whole_word: bool) -> None:
        self._fold = ignore_case
        self._whole_word = whole_word
        self._text = pattern.casefold() if ignore_case else pattern
        self._bytes = self._text.encode(errors="replace")
        self._tries = 0

    def lines(self, data: bytes, most: int) -> list[tuple[int, str]]:
        """The first `most` lines that contain it, each with its number."""
        if b"\0" in data[:_START] or (not self._fold and self._bytes not in data):
            return []
        text = data.decode(errors="replace")
        original = text.split("\n")
        # Split into lines only if there is a match; case folding keeps line ends.
        folded = text.casefold().split("\n") if self._fold else original
        found: list[tuple[int, str]] = []
        self._tries = MOST_TRIES
        for number, line in enumerate(folded):
            if self._text in line and (at := self._place(line)) >= 0:
                found.append((number + 1, _excerpt(original[number], at)))
                if len(found) >= most:
                    break
        return found

    def _place(self, line: str) -> int:
        """The position of the first match in a line, or -1."""
        at = line.find(self._text)
        if not self._whole_word:
            return at
        while at >= 0 and self._tries:
            self._tries -= 1
            end, inside = at + len(self._text), _in_word(line[max(at - 1, 0) : at])
            if not inside and not _in_word(line[end : end + 1]):
                return at
            start = at + 1
            if inside and _in_word(self._text[0]):  # no match can begin before the end of this word
                edge = _EDGE.search(line, at)
                start = edge.start() if edge else len(line)
            at = line.find(self._text, start)
        return -1


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _excerpt(line: str, at: int) -> str:
    """A line, or the part of a long line around a position."""
    line = line.rstrip("\r")
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(at - LONGEST_LINE // 3, len(line) - LONGEST_LINE))
    end = start + LONGEST_LINE
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
