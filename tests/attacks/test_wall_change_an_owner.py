"""A tool gives a file away, or takes it, by a file that it holds and has not opened."""

import os

from attacks.behind_walls import Outside, raw

EMPTY_PATH = 0x1000


def attack(target: str) -> str:
    raw("fchownat", os.open(target, os.O_PATH), "", os.getuid(), os.getgid(), EMPTY_PATH)
    return "owned"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "owned")
