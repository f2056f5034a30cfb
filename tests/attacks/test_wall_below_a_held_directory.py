"""A tool takes hold of a directory without opening it, and opens what is below."""

import os

from attacks.behind_walls import Outside


def attack(secret: str) -> str:
    held = os.open(os.path.dirname(secret), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=held), 100).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
