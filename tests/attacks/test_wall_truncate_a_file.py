"""A tool cuts a file to nothing without opening it."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.truncate(target, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
