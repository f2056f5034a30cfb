"""A tool of root makes the machine's memory a file in its scratch directory."""

import os
import stat

from attacks.behind_walls import Outside, scratch


def attack() -> bool:
    os.mknod(scratch("memory"), stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return stat.S_ISCHR(os.stat(scratch("memory")).st_mode)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda made: made, root=True, rare=True)
