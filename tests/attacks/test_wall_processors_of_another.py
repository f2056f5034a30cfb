"""A tool puts another process on one processor with everybody else."""

import os

from attacks.behind_walls import Outside


def attack(pid: int, processor: int) -> None:
    os.sched_setaffinity(pid, {processor})


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    usable = os.sched_getaffinity(0)
    if len(usable) == 1:
        pytest.skip("there is one processor")
    outside.shows(attack, lambda _: len(os.sched_getaffinity(outside.pid)) == 1, processor=min(usable))
