"""A tool goes to a directory, which no wall forbids, and opens by a name alone."""

import os

from attacks.behind_walls import Outside


def attack(secret: str) -> str:
    os.chdir(os.path.dirname(secret))
    with open(os.path.basename(secret), encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
