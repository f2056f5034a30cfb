"""A tool asks for, and as root sets, how fast the clock of the machine goes."""

import ctypes

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("adjtimex", ctypes.create_string_buffer(208))  # all zeros: it is only told


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda state: state is not None and state >= 0, rare=True)
