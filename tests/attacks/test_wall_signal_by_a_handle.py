"""A tool signals another process by a file that stands for it (`pidfd`)."""

import signal

from attacks.behind_walls import Outside, raw


def attack(pid: int) -> None:
    raw("pidfd_send_signal", raw("pidfd_open", pid, 0), signal.SIGKILL, None, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
