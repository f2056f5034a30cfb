"""A tool ends a process of the same user."""

import os
import signal

from attacks.behind_walls import Outside


def attack(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
