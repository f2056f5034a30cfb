"""The script that may start licet's interpreter with namespaces where AppArmor gives them to named programs alone.

`namespace_access` writes it, and says why. It is used only if nobody but root can have changed it.
"""

import os
import stat
import sys
from collections.abc import Sequence

LAUNCHERS = "usr/local/libexec/licet"  # the directory of the scripts, each with the id of its user as its name
_TEXT = """#!{} -IS
# Written by `licet doctor --fix`: starts the processes of licet that build walls. See /etc/apparmor.d/licet.
import sys
program = sys.argv[1]
sys.argv[:2] = ["-c"]
exec(program)
"""


def launcher_text() -> str:
    """The script for this interpreter, outside of a virtual environment."""
    return _TEXT.format(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def by_launcher(command: Sequence[str], root: str = "/", owner: int = 0) -> list[str]:
    """The command of an interpreter that runs a text, started by the script of this user if there is one."""
    path = os.path.join(root, LAUNCHERS, str(os.getuid()))
    try:
        is_safe = all(_is_of(owner, part) for part in (path, os.path.dirname(path)))
        if not is_safe or not os.access(path, os.X_OK):
            return [*command]
        with open(path, encoding="utf-8") as file:
            if file.read(1 << 16) != launcher_text():
                return [*command]
    except (OSError, ValueError):
        return [*command]
    return [path, *command[command.index("-c") + 1 :]]


def _is_of(owner: int, path: str) -> bool:
    about = os.lstat(path)
    writable = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return about.st_uid == owner and not writable and not stat.S_ISLNK(about.st_mode)
