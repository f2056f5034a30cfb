"""A tool signals a whole group of processes."""

import os
import signal

from attacks.behind_walls import Outside


def attack(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)  # it leads a group of its own


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
