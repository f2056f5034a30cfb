"""A tool lists a directory."""

import os

from attacks.behind_walls import Outside


def attack(secret: str) -> list[str]:
    return os.listdir(os.path.dirname(secret))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda names: names and "secret" in names)
