"""A tool uses the older way to let the kernel read and write on its own (`io_setup`)."""

import ctypes

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("io_setup", 4, ctypes.create_string_buffer(8))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, rare=True)
