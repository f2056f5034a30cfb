"""A tool takes hold of a file without opening it (`O_PATH`, which no wall forbids), and opens what it holds."""

import os

from attacks.behind_walls import Outside


def attack(secret: str) -> str:
    held = os.open(secret, os.O_PATH)
    with open(f"/proc/self/fd/{held}", encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
