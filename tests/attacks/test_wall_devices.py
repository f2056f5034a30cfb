"""Devices and terminals."""

import fcntl
import os
import select
import stat

from attacks.behind_walls import Outside, scratch


def make_a_device() -> bool:
    """A tool of root makes the machine's memory a file in its scratch directory."""
    os.mknod(scratch("memory"), stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return stat.S_ISCHR(os.stat(scratch("memory")).st_mode)


def test_make_a_device(outside: Outside) -> None:
    outside.shows(make_a_device, lambda made: made, root=True, rare=True)


def open_a_device() -> int:
    """A tool opens a device: here the one that makes terminals."""
    return os.major(os.fstat(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)).st_rdev)


def test_open_a_device(outside: Outside) -> None:
    outside.shows(open_a_device, lambda device: device, rare=True)


TIOCSTI = 0x5412


def type_into_a_terminal(terminal: str) -> None:
    """A tool types into the terminal of whoever started the host (`TIOCSTI`)."""
    os.setsid() if os.getpgrp() != os.getpid() else None
    typed = os.open(terminal, os.O_RDWR)
    for letter in b"rm -rf\n":
        fcntl.ioctl(typed, TIOCSTI, bytes([letter]))


def test_type_into_a_terminal(outside: Outside) -> None:
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        outside.shows(type_into_a_terminal, lambda _: select.select([slave], [], [], 0)[0], rare=True, terminal=name)
    finally:
        os.close(master)
        os.close(slave)
