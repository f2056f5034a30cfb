"""Reads values in configurations of git, as `git config` does: hooks, further files, and those that a caller names.

Git itself is not asked: it would read, and could run, what the project names.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress

from licet.core.late_pattern import late_pattern
from licet.own_files import read_regular
from licet.policy_files.limits import MOST_BYTES

_SECTION = late_pattern(r"[ \t]*\[[ \t]*([\w.-]+)[ \t]*(?:\"(?:[^\"\\\\\n]|\\\\.)*\")?[ \t]*\]")
_KEY = late_pattern(r"[ \t]*([A-Za-z][\w-]*)[ \t]*=[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}
_LEADING = ("core.hookspath", "include.path", "includeif.path")


def own_configurations(home: str) -> tuple[str, ...]:
    """The configuration files of the user and of the machine, there or not."""
    if path := os.environ.get("GIT_CONFIG_GLOBAL"):
        of_user = [path]
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        of_user = [os.path.join(base, "git", "config"), os.path.join(home, ".gitconfig")] if home else []
    return (os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig", *map(os.path.abspath, of_user))


def settings(file: str) -> Iterator[tuple[str, str]]:
    """What a configuration names: `core.hookspath` and `include.path`, also under a condition, each with its value."""
    for key, value in values_of(file, _LEADING):
        yield ("include.path" if key == "includeif.path" else key), value


def values_of(file: str, keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """The values of some keys in lower case, in the order of the file, whatever the name in quotes of a section is."""
    section, text = "", ""
    with suppress(OSError):  # there is none
        text = os.fsdecode(read_regular(file, MOST_BYTES)).removeprefix("\ufeff").replace("\r\n", "\n")
    place = 0
    while place < len(text):
        if header := _SECTION.match(text, place):
            section, place = header[1].casefold(), header.end()
        elif setting := _KEY.match(text, place):
            value, place = _value(text, setting.end())
            if (key := f"{section}.{setting[1].casefold()}") in keys:
                yield key, value
        else:
            place = text.find("\n", place) + 1 or len(text)


def _value(text: str, place: int) -> tuple[str, int]:
    """A value, and where it ends: quotes keep what is in them, a backslash joins lines, `#` and `;` begin a comment."""
    value, blank, is_quoted = "", "", False
    while place < len(text) and text[place] != "\n":
        sign = text[place]
        place += 1
        if sign == "\\":
            escaped, place = text[place : place + 1], place + 1
            if escaped != "\n":
                value, blank = value + blank + _ESCAPES.get(escaped, escaped), ""
        elif sign == '"':
            is_quoted = not is_quoted
            value, blank = value + blank, ""
        elif sign in "#;" and not is_quoted:
            return value, text.find("\n", place) + 1 or len(text)
        elif sign in " \t" and not is_quoted:
            blank += sign if value else ""
        else:
            value, blank = value + blank + sign, ""
    return value, place
