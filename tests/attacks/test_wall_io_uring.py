"""A tool has the kernel open a file or a socket for it by a ring, which no filter sees into."""

import ctypes

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("io_uring_setup", 4, ctypes.create_string_buffer(120))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda ring: ring, rare=True)
