"""What could switch the hooks off from inside: settings, hooks, plugins, skills and server lists of the agents.

None of it is writable for any call of an agent, whether it is there or not. `core/review/sensitive.py` has the list,
which the preset for coding agents, `licet learn` and `licet lint` use as well. Agents look into the directory that they
are started in and into those above it, so it is closed in each of these. Missing directories are made there, empty, so
that they are closed also while no line runs: git does not see them. Elsewhere, `hooks/set_aside.py` looks for new ones.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from licet.core.algebra.scope import inside
from licet.core.review.sensitive import (
    ELSEWHERE,
    HOME_SWITCHES,
    HOME_WRITTEN,
    MACHINE_SWITCHES,
    SWITCHES,
    is_switch,
)
from licet.guard.held_paths import ProtectedPath
from licet.hooks.limits import MOST_LINKS
from licet.own_files import create_file
from licet.policy_files.policy_paths import home_directory

# OpenCode writes this file into its directory when it starts, and cannot start behind walls without it.
OPENCODE_IGNORES = b"node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore"
CONFIGURES = "it configures a coding agent, and could switch off its hook"


def directories_around(*places: str) -> tuple[str, ...]:
    """Some directories with all directories above them, the inner ones first."""
    found: dict[str, None] = {}
    for place in places:
        while place:
            found[place] = None
            place = "" if place == "/" else os.path.dirname(place)
    return tuple(sorted(found, key=lambda path: -len(path)))


def closed_to_agents(workdir: str, start: str, writable: Iterable[str] = ()) -> tuple[ProtectedPath, ...]:
    """What configures an agent that was started in a directory, in the home and on this machine, there or not.

    `writable` is what the policy grants. In the home, what agents' own tools write stays open, if the policy names it.
    """
    home = home_directory()
    names = [os.path.join(place, one.path) for place in directories_around(start, workdir) for one in SWITCHES]
    own = {path for path, _ in _in_home(home)}
    names = [path for path in names if path not in own]  # of these, a part may stay open
    names += [*MACHINE_SWITCHES, *_closed_in_home(home, workdir, tuple(writable))]
    return closed_with_links(names, workdir)


def closed_with_links(names: Iterable[str], workdir: str) -> tuple[ProtectedPath, ...]:
    """Some names, with what they and the links inside them lead to: lines could write that, and agents follow links."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys((name, os.path.realpath(name), *(_linked(name, workdir) if os.path.isdir(name) else ())))
    return tuple(ProtectedPath(path, CONFIGURES) for path in found)


def _linked(directory: str, workdir: str) -> Iterator[str]:
    left = MOST_LINKS
    for place, folders, files in os.walk(directory):
        for path in (os.path.join(place, name) for name in (*folders, *files)):
            left -= 1
            if left < 0:
                return
            if os.path.islink(path) and not inside(workdir, ((real := os.path.realpath(path)),)):
                yield real


def _closed_in_home(home: str, workdir: str, writable: tuple[str, ...]) -> Iterator[str]:
    for path, written in _in_home(home):
        kept = (*written, *((workdir,) if inside(workdir, (path,)) else ()))
        kept = (*kept, *(os.path.realpath(one) for one in kept))
        is_covered = any(inside(path, (key,)) for key in writable)
        if is_covered or not any(inside(key, kept) for key in writable):
            yield path
        else:  # nothing else in it is granted
            yield from (key for key in writable if inside(key, (path,)) and not inside(key, kept))


def _in_home(home: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What configures agents for this user, wherever a variable puts it, with what their tools write in it."""
    for path in (path for paths in HOME_SWITCHES.values() for path in paths):
        below = [one[len(path) :] for one in HOME_WRITTEN if one.startswith(f"{path}/")]
        places = [os.path.join(home, path)] if home else []
        for one in ELSEWHERE:
            stated = os.environ.get(one.variable, "")
            if one.path == path and os.path.isabs(stated):
                places.append(os.path.normpath(os.path.join(stated, one.below)))
        for place in dict.fromkeys(places):
            yield place, tuple(place + end for end in below)


def configuration_directories(path: str) -> tuple[str, ...]:
    """Where a directory of the home, such as `.claude`, lies for this user."""
    home = home_directory()
    own = [os.path.join(home, path)] if home else []
    stated = [(os.environ.get(one.variable, ""), one.below) for one in ELSEWHERE if one.path == path]
    own += [os.path.normpath(os.path.join(value, below)) for value, below in stated if os.path.isabs(value)]
    return tuple(dict.fromkeys(own))


def is_closed(path: str, workdir: str) -> bool:
    """Whether no call of an agent may write a path: it configures agents that are started in any directory at all.

    Directories around the working directory do not count, since a project may lie in `~/.claude/worktrees`.
    """
    home = home_directory()
    for place, written in _in_home(home):
        if inside(path, (place,)) and not inside(workdir, (place,)):
            return not inside(path, written)
    around = [base for base in (workdir, home) if base and inside(path, (base,))]
    below = path[len(max(around, key=len)) :] if around else path
    return is_switch([name for name in below.split("/") if name])


def make_missing(project: str, start: str = "") -> list[str]:
    """Make the directories that configure agents, empty, in a project and around the start of an agent.

    That is in the start, and above it up to the project or the root of its git repository. Returns the new ones' names.
    Nothing is made in a home directory or above it, nor where a part of the name is a link or a file.
    """
    home = home_directory()
    around_home = directories_around(os.path.realpath(home)) if home else ()
    made: list[str] = []
    for place in _worked_in(project, start):
        if os.path.realpath(place) not in (*around_home, "/"):
            made += (os.path.relpath(path, project) for path in _make_missing_in(place))
    return made


def left_empty(project: str) -> tuple[list[str], list[str]]:
    """What `make_missing` makes in a project and nobody has used since: files, and directories, inner ones first."""
    files: list[str] = []
    found: list[str] = []
    for one in SWITCHES:
        path = Path(project, one.path)
        if not one.is_directory or path.resolve() != path or not path.is_dir():
            continue
        inside_it = os.listdir(path)
        ignores = path / ".gitignore"
        if inside_it == [ignores.name] and ignores.is_file() and ignores.read_bytes() == OPENCODE_IGNORES:
            files.append(str(ignores))
        elif inside_it:
            continue
        found.append(str(path))
    above = dict.fromkeys(place for path in found if (place := os.path.dirname(path)) != project)
    whole = (place for place in above if {os.path.join(place, name) for name in os.listdir(place)} <= set(found))
    return files, [*found, *whole]


def _worked_in(project: str, start: str) -> Iterator[str]:
    if not project:
        return
    above = directories_around(start) if start else ()
    root = next((path for path in above if os.path.lexists(os.path.join(path, ".git"))), project)
    yield project
    yield from (path for path in above if path != project and inside(path, (project, root)))


def _make_missing_in(directory: str) -> Iterator[str]:
    for one in SWITCHES:
        path = Path(directory, one.path)
        if not one.is_directory or os.path.lexists(path) or path.parent.is_symlink():
            continue
        with suppress(OSError):  # a file system that is read-only protects the name by itself
            path.mkdir(parents=True)
            yield str(path)
            if one.path == ".opencode":
                create_file(path / ".gitignore", OPENCODE_IGNORES)
