"""A tool puts a link to a file where it may write, and opens that."""

import os

from attacks.behind_walls import Outside, scratch


def attack(secret: str) -> str:
    os.symlink(secret, scratch("link"))
    with open(scratch("link"), encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
