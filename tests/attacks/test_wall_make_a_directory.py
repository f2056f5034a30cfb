"""A tool makes a directory outside of its scratch directory."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.mkdir(f"{target}.d")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.path.exists(f"{outside.target}.d"))
