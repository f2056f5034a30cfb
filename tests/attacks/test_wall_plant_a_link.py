"""A tool plants a link where somebody else will write."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.symlink("/etc/passwd", f"{target}.log")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.path.lexists(f"{outside.target}.log"))
