"""A tool removes a file."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.unlink(target)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
