"""A tool of root makes another directory its root, from which `..` leads anywhere."""

import os

from attacks.behind_walls import Outside


def attack(granted: str) -> str:
    os.chroot(granted)
    return str(os.listdir("/"))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda names: names and "file" in names, root=True, rare=True)
