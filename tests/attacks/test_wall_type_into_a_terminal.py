"""A tool types into the terminal of whoever started the host (`TIOCSTI`)."""

import fcntl
import os
import select

from attacks.behind_walls import Outside

TIOCSTI = 0x5412


def attack(terminal: str) -> None:
    os.setsid() if os.getpgrp() != os.getpid() else None
    typed = os.open(terminal, os.O_RDWR)
    for letter in b"rm -rf\n":
        fcntl.ioctl(typed, TIOCSTI, bytes([letter]))


def test_the_walls_stop_it(outside: Outside) -> None:
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        outside.shows(attack, lambda _: select.select([slave], [], [], 0)[0], rare=True, terminal=name)
    finally:
        os.close(master)
        os.close(slave)
