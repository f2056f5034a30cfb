"""A tool attaches to another process as a debugger does, and stops it."""

from attacks.behind_walls import Outside, raw

ATTACH = 16


def attack(pid: int) -> int:
    return raw("ptrace", ATTACH, pid, 0, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, rare=True)
