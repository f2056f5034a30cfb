"""A tool leaves a new file outside of its scratch directory."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    with open(f"{target}.new", "w", encoding="utf-8") as file:
        file.write("here")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.path.exists(f"{outside.target}.new"))
