"""Names the programs on PATH that a failed command of `licet run` looked for and could not see, and what shows them.

`licet run` lets the program that it starts read its own files. What that one starts in turn is within the grants:
`make` does not find a `pytest` of a virtual environment elsewhere. This is said only if the output of the command names
the program as not found, and no file of that name on PATH can be read.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from licet.core.algebra.scope import inside, visible
from licet.core.algebra.use import InvalidUse, Use, use_of_path
from licet.core.decision.reach import Reach
from licet.guard.held_paths import held_paths
from licet.sandbox.programs.files import SYSTEM
from licet.surfaces.cli.run_hints import MOST_SHOWN, because, last_lines

_NAME = r"['\"`‘“]?([\w.+-]+)['\"`’”]?"
# As sh, bash, zsh, make, env, Python and Node say it.
_NOT_FOUND = re.compile(
    rf": {_NAME}: (?:command )?not found\s*$|command not found: {_NAME}\s*$|spawn {_NAME} ENOENT"
    rf"|: {_NAME}: no such file or directory\s*$|no such file or directory: {_NAME}\s*$",
    re.IGNORECASE,
)
_OTHER_PYTHON = re.compile(r"(?:^|/)(python[\d.]*): No module named ")  # the next one on PATH was started instead


def programs_not_found(said: str, reach: Reach | None) -> list[str]:
    """The programs that the output of a command shows it did not find, each with what would show it."""
    if reach is None or not reach.grant.has(Use("env:read:PATH")):
        return []
    found: dict[str, None] = {}
    for line in last_lines(said):
        for match in _NOT_FOUND.finditer(line):
            name = next(filter(None, match.groups()))
            places = _on_path(name)
            if places and not any(_readable(place, reach) for place in places):
                found |= dict.fromkeys(_walls(name, places[0], reach))
        for match in _OTHER_PYTHON.finditer(line):
            places = _on_path(match[1])
            if places and not _readable(places[0], reach):
                found |= dict.fromkeys(_walls(match[1], places[0], reach))
    return list(found)[:MOST_SHOWN]


def _on_path(name: str) -> list[str]:
    """The files of a program on PATH, without those of version managers, which start another program."""
    folders = dict.fromkeys(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
    paths = [os.path.join(os.path.normpath(folder), name) for folder in folders if not folder.endswith("/shims")]
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]


def _readable(path: str, reach: Reach) -> bool:
    granted = held_paths(reach.grant)
    return all(inside(one, SYSTEM) or granted.covers("read", one) for one in (path, os.path.realpath(path)))


def _walls(name: str, path: str, reach: Reach) -> Iterator[str]:
    for file in _needed(path):
        if not _readable(file, reach):
            with suppress(InvalidUse):
                use = use_of_path("read", _installed_in(file))
                if reach.grant.has(use):
                    use = use_of_path("read", file)
                why = because(reach, use, "fs_reach.read")
                told = f"`{visible(name)}` is `{visible(path)}` on your PATH"
                yield f"{told}, and `{visible(use.target)}` may not be read: {why}"


def _needed(path: str) -> Iterator[str]:
    """A program, the interpreter in its first line, and where links from them lead."""
    from licet.backends.packages.programs import first_line  # reads packages, which takes long to import
    from licet.backends.packages.store import PackageError

    yield path
    yield os.path.realpath(path)
    with suppress(PackageError):
        starter, _ = first_line(path)
        if os.path.isabs(starter):
            yield starter
            yield os.path.realpath(starter)


def _installed_in(file: str) -> str:
    """The directory that a program is installed in, such as a virtual environment; the file itself if that is wide."""
    above, folder = os.path.split(os.path.dirname(file))
    is_wide = inside(os.path.expanduser("~"), (above,)) or inside(os.getcwd(), (above,))
    return above if folder == "bin" and above.count("/") >= 2 and not is_wide else file
