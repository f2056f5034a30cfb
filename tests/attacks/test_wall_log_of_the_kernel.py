"""A tool reads the log of the kernel, with addresses, devices and programs of everybody."""

import ctypes

from attacks.behind_walls import Outside, raw

READ_ALL = 3


def attack() -> int:
    return raw("syslog", READ_ALL, ctypes.create_string_buffer(4096), 4096)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda size: size is not None and size >= 0, root=True, rare=True)
