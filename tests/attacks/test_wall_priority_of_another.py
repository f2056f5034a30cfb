"""A tool makes another process wait for everybody else."""

import os

from attacks.behind_walls import Outside


def attack(pid: int, priority: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, priority)


def test_the_walls_stop_it(outside: Outside) -> None:
    before = os.getpriority(os.PRIO_PROCESS, outside.pid)
    lowest = before == 19  # from there only root leads back
    priority = 18 if lowest else before + 1

    def changed(_: object) -> bool:
        return os.getpriority(os.PRIO_PROCESS, outside.pid) == priority

    outside.shows(attack, changed, root=lowest, priority=priority)
