"""A tool lets another process run only when nobody else wants to."""

import os

from attacks.behind_walls import Outside


def attack(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.sched_getscheduler(outside.pid) == os.SCHED_IDLE)
