"""A tool makes calls by the numbers of another architecture (x32), which a filter for this one does not know."""

import os

from attacks.behind_walls import Outside, raw

X32 = 0x40000000


def attack() -> bool:
    return raw(X32 + 39) == os.getpid()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done, refused="SIGSYS", rare=True, only_on="x86_64")
