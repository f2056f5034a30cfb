"""A tool gives a file a second name where it may read."""

import os

from attacks.behind_walls import Outside, scratch


def attack(secret: str) -> str:
    os.link(secret, scratch("name"))
    with open(scratch("name"), encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, refused="PermissionError|cross-device link")
