"""A tool changes a mode by `fchmodat2`, through a file that it holds and has not opened."""

import os
import stat

from attacks.behind_walls import Outside, raw

EMPTY_PATH = 0x1000


def attack(target: str) -> None:
    raw("fchmodat2", os.open(target, os.O_PATH), "", 0o777, EMPTY_PATH)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777, rare=True)
