"""Reads from the output of a program which paths it says it was refused, as `cat`, git, Python, Node and others say it.

What a program prints is its own word: it may name anything, and it may not even have tried. Whether the walls of the
run do refuse a path is decided elsewhere, from the grant.
"""

import os
import re
from collections.abc import Iterator
from itertools import islice

from licet.cli.limits import (
    NAME_WORDS_SEARCHED,
    OUTPUT_ERRORS_SEARCHED,
    OUTPUT_LINE_CHARACTERS,
    OUTPUT_LINES_SEARCHED,
    OUTPUT_NAMES_SEARCHED,
)
from licet.core.late_pattern import late_pattern

_REFUSED = late_pattern(
    r"operation not permitted|permission denied|read-only file system|invalid cross-device link|device or resource busy"
    r"|no such file or directory|directory nonexistent|\b(?:EPERM|EACCES|EROFS|EXDEV|EBUSY|ENOENT)\b",
    re.IGNORECASE,
)
REMOVING = "removing: "
# As coreutils, busybox, git and Node say it.
_REMOVING = late_pattern(
    r"\b(?:cannot|can't|could not|unable to|failed to) (?:remove|move|rename|unlink|delete)\b"
    r"|\bE[A-Z]{3,}: [a-z -]+, (?:unlink|rename|rmdir|rm)\b",
    re.IGNORECASE,
)
# Not the apostrophe of a word such as `can't`: a quote that opens has no letter before it, one that closes none after.
_QUOTED = late_pattern(r"""(?<!\w)['"`‘“](.+?)['"`’”](?!\w)""")
_CLOSING = late_pattern(r"""['"`’”](?!\w)""")
# Languages name the error first and the path after it: `OSError: [Errno 30] …: 'x'`, `Error: EACCES: …, open 'x'`.
_ERROR_FIRST = late_pattern(r"\[Errno -?\d+\]|(?:^|\s|\[)(?:\w+\.)*\w*(?:Error|Exception|Warning)\b|\bE[A-Z]{3,}:")


# Colours and movements, then titles and links up to their end, then other sequences; a letter that the next one is
# written over, as pages of manuals have them; other controls.
_UNSEEN = late_pattern(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)"
    r"|[^\n\x08]\x08|[\0-\x08\x0e-\x1f\x7f]"
)


def last_lines(said: str) -> list[str]:
    """The last lines of what a command said, as a person reads them at a terminal, none of them long."""
    lines = _UNSEEN.sub("", said).splitlines()
    return [line[:OUTPUT_LINE_CHARACTERS] for line in lines[-OUTPUT_LINES_SEARCHED:]]


def refused_paths(said: str, workdir: str) -> Iterator[tuple[str, str]]:
    """The paths, made absolute, in lines that also have an error that a wall causes, each with that error.

    The error of a line about removing or renaming begins with `REMOVING`.
    """
    for line in last_lines(said):
        quoted = list(islice(_quoted(line), OUTPUT_NAMES_SEARCHED))
        is_quoted = bool(quoted) or _ERROR_FIRST.search(line) is not None
        quoted = [name for name in quoted if not _REFUSED.search(name)]  # Node also quotes the error: `code: 'EROFS'`
        act = REMOVING if _REMOVING.search(line) else ""
        for error in islice(_REFUSED.finditer(line), OUTPUT_ERRORS_SEARCHED):
            for name in quoted if is_quoted else _name_before(line[: error.start()], workdir):
                if name and "\0" not in name:
                    yield os.path.normpath(os.path.join(workdir, name)), act + error[0].lower()


def _quoted(line: str) -> Iterator[str]:
    """The names in quotes, in a time that grows with the line: behind its last closing quote no name is looked for."""
    end = max((match.end() for match in _CLOSING.finditer(line)), default=0)
    for match in _QUOTED.finditer(line, 0, end):
        yield match[1]


def _name_before(text: str, workdir: str) -> list[str]:
    """The name at the end of a text, of as many words as a file has that is there, or of one."""
    # `cat: x: Permission denied`, `error: could not lock config file x: Read-only file system`, `open x: …`
    words = text.rstrip().removesuffix(":").rpartition(": ")[2].split()[-NAME_WORDS_SEARCHED:]
    ends = (" ".join(words[start:]) for start in range(len(words)))
    present = (name for name in ends if os.path.lexists(os.path.join(workdir, name)))
    return [next(present, words[-1])] if words else []
