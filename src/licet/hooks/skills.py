"""Which file a call of a skill loads, and whether a call or a shell line could have written it.

Loading a skill of Claude Code runs the commands in its text, outside of all walls. So a skill is loaded only from files
that no tool may write: those in closed directories. One that is part of the agent has no file: a person can start it.
"""

import os
from collections.abc import Iterator
from typing import Any

from licet.core.algebra.rules import InvalidUse, use_of_path
from licet.core.algebra.set import CapabilitySet
from licet.core.review.sensitive import MACHINE_SWITCHES
from licet.hooks.limits import MOST_SEARCHED
from licet.hooks.set_aside import Watched, search
from licet.hooks.switches import configuration_directories, directories_around

_FOLDER = ".claude"


def why_not_loaded(named: Any, start: str, watched: Watched, ceiling: CapabilitySet) -> str:
    """Why a skill is not loaded; empty if every file that its name may mean is out of reach of all tools."""
    if not isinstance(named, str) or not (parts := _parts(named)):
        return "its name is not that of a skill"
    found = search(watched.roots).paths
    files = list(dict.fromkeys(path for path in _files(parts, start, found) if os.path.lexists(path)))
    if not files:
        return "no directory that is closed to agents has a skill of that name; a person can start what the agent has"
    for path in files:
        for name in (path, os.path.realpath(path)):
            if _is_writable(name, ceiling):
                return f"tools may write {name}: start the agent anew if it is yours"
    return ""


def _parts(named: str) -> list[str]:
    parts = named.removeprefix("/").replace("/", ":").split(":")
    return [] if any(part in ("", ".", "..") or "\0" in part for part in parts) else parts


def _is_writable(path: str, ceiling: CapabilitySet) -> bool:
    try:
        return ceiling.has(use_of_path("write", path))
    except InvalidUse:
        return True


def _files(parts: list[str], start: str, found: tuple[str, ...]) -> Iterator[str]:
    """Every file that the name may mean: of the directories around the start and below them, the home, and plugins."""
    own = configuration_directories(_FOLDER)
    nested = [path for path in found if os.path.basename(path).casefold() == _FOLDER]
    machine = [os.path.join(path, _FOLDER) for path in MACHINE_SWITCHES]
    around = [os.path.join(path, _FOLDER) for path in directories_around(start)]
    for folder in (*around, *own, *machine, *nested):
        yield from _in_folder(folder, parts)
    if len(parts) > 1:
        for folder in nested:  # `sub:deploy` is the skill `deploy` of a directory below
            above = os.path.dirname(folder).split("/")
            if above[1 - len(parts) :] == parts[:-1]:
                yield from _in_folder(folder, parts[-1:])
        for folder in own:
            yield from _of_plugins(os.path.join(folder, "plugins"), parts)


def _in_folder(folder: str, parts: list[str]) -> Iterator[str]:
    for kind in ("skills", "commands"):
        path = os.path.join(folder, kind, *parts)
        yield from (os.path.join(path, "SKILL.md"), f"{path}.md")


def _of_plugins(folder: str, parts: list[str]) -> Iterator[str]:
    """The files of a plugin's skill, whose name is that of the plugin and its own."""
    left = MOST_SEARCHED
    for directory, names, _ in os.walk(folder):
        left -= 1
        if not left:
            return
        names[:] = [name for name in names if name not in (".git", "node_modules")]
        if parts[0] in directory.split("/"):
            yield from _in_folder(directory, parts[1:])
