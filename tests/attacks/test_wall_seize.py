"""A tool attaches to another process without stopping it (`PTRACE_SEIZE`)."""

from attacks.behind_walls import Outside, raw

SEIZE = 0x4206


def attack(pid: int) -> int:
    return raw("ptrace", SEIZE, pid, 0, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, rare=True)
