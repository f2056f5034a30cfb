"""A tool lets a pipe signal another process whenever there is something to read (`F_SETOWN`, `F_SETSIG`)."""

import fcntl
import os
import signal

from attacks.behind_walls import Outside

SET_SIGNAL = 10


def attack(pid: int) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
    fcntl.fcntl(reading, SET_SIGNAL, signal.SIGTERM)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
