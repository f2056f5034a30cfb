"""A tool puts a file of its own in the place of another."""

import os

from attacks.behind_walls import Outside, scratch


def attack(target: str) -> None:
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    os.replace(scratch("mine"), target)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed, refused="PermissionError|cross-device link")
