"""A tool signals a thread of another process, which older filters for `kill` leave out."""

import signal

from attacks.behind_walls import Outside, raw


def attack(pid: int) -> None:
    raw("tgkill", pid, pid, signal.SIGKILL)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
