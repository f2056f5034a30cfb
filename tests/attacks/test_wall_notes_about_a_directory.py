"""A tool has the kernel signal it whenever a granted directory changes (`F_NOTIFY`), which needs no watch."""

import fcntl
import os

from attacks.behind_walls import Outside, scratch


def attack() -> str:
    fcntl.fcntl(os.open(scratch(), os.O_RDONLY), 1026, 0x4)
    return "watching"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "watching", rare=True)
