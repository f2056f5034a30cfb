"""A tool lets another process read and write only when nobody else does (`ioprio_set`)."""

from attacks.behind_walls import Outside, raw

PROCESS, IDLE = 1, 3 << 13


def attack(pid: int) -> None:
    raw("ioprio_set", PROCESS, pid, IDLE)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: raw("ioprio_get", PROCESS, outside.pid) == IDLE)
