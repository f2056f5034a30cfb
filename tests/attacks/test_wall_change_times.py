"""A tool sets the time at which a file was changed, so that nobody looks at it, or a build runs again."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.utime(target, (1, 1))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.stat(outside.target).st_mtime == 1)
