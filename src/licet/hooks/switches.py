"""What could switch the hooks off from inside: settings, hooks, plugins and server lists of the agents.

None of it is writable for any call of an agent, whether it is there or not. `core/review/sensitive.py` has the list,
which the preset for coding agents, `licet learn` and `licet lint` use as well. Directories that are missing are made,
empty, so that they are closed also while no line runs: git does not see them.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from licet.core.review.sensitive import HOME_SWITCHES, HOME_VARIABLES, MACHINE_SWITCHES, SWITCHES
from licet.guard.held_paths import ProtectedPath
from licet.own_files import create_file
from licet.policy_files.policy_paths import home_directory

# OpenCode writes this file into its directory when it starts, and cannot start behind walls without it.
OPENCODE_IGNORES = b"node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore"
CONFIGURES = "it configures a coding agent, and could switch off its hook"
_SOCKET = "the resident of licet listens there"


def closed_to_agents(*places: str) -> tuple[ProtectedPath, ...]:
    """What configures an agent in some directories, in the home directory and on this machine, there or not."""
    found = dict.fromkeys(path for name in _switches(places) for path in (name, os.path.realpath(name)))
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = [ProtectedPath(os.path.join(runtime, "licet"), _SOCKET, readable=False)] if os.path.isabs(runtime) else []
    return (*(ProtectedPath(path, CONFIGURES) for path in found), *own)


def _switches(places: tuple[str, ...]) -> Iterator[str]:
    home = home_directory()
    for place in dict.fromkeys(places):
        if place and place != home:  # there, the directory of the user has a part that agents write
            yield from (os.path.join(place, one.path) for one in SWITCHES)
    yield from MACHINE_SWITCHES
    if not home:
        return
    bases = {below: os.environ.get(variable, "") for variable, below in HOME_VARIABLES.items()}
    for path in (path for paths in HOME_SWITCHES.values() for path in paths):
        yield os.path.join(home, path)
        for below, stated in bases.items():
            if os.path.isabs(stated) and (path == below or path.startswith(f"{below}/")):
                yield os.path.join(stated, path[len(below) + 1 :]).rstrip("/")


def make_missing(project: str) -> list[str]:
    """Make the directories that configure agents in a project, empty. Returns the names of those that were made.

    Nothing is made in a home directory, nor where a part of the name is a link or a file.
    """
    home, made = home_directory(), []
    if not project or (home and os.path.realpath(project) == os.path.realpath(home)):
        return []
    for one in SWITCHES:
        path = Path(project, one.path)
        if not one.is_directory or os.path.lexists(path) or path.parent.is_symlink():
            continue
        with suppress(OSError):  # a file system that is read-only protects the name by itself
            path.mkdir(parents=True)
            made.append(one.path)
            if one.path == ".opencode":
                create_file(path / ".gitignore", OPENCODE_IGNORES)
    return made
