"""A tool takes an open file out of another process (`pidfd_getfd`)."""

import os

from attacks.behind_walls import Outside, raw


def attack(pid: int) -> str:
    taken = raw("pidfd_getfd", raw("pidfd_open", pid, 0), 100, 0)
    return os.pread(taken, 100, 0).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, rare=True)
