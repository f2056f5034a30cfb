"""A tool starts a program by the C library alone (`posix_spawn`), which uses neither `fork` nor Python's subprocess."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", f"echo after > '{target}'"], {})
    os.waitpid(child, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
