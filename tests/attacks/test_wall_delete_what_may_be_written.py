"""A tool that may write to a directory, and not delete, deletes there."""

import os

from attacks.behind_walls import Outside


def attack(granted: str) -> None:
    os.unlink(f"{granted}/file")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: not os.path.exists(f"{outside.granted}/file"))
