"""A tool climbs out of a directory that it was granted."""

import os

from attacks.behind_walls import Outside, scratch


def attack(secret: str, granted: str) -> str:
    try:
        start = os.open(granted, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # at `restricted` there is scratch alone
        start = os.open(scratch(), os.O_RDONLY | os.O_DIRECTORY)
    return os.read(os.open("../" * 40 + secret[1:], os.O_RDONLY, dir_fd=start), 100).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
