"""A tool takes a lease on a file, and holds up whoever opens it."""

import fcntl
import os

from attacks.behind_walls import Outside, scratch


def attack() -> str:
    file = os.open(scratch("mine"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.fcntl(file, 1024, fcntl.F_WRLCK)
    return "held"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "held", rare=True)
