"""A tool moves the memory of another process about, and learns where it is (`move_pages`)."""

import ctypes
import struct

from attacks.behind_walls import Outside, raw


def attack(pid: int, address: int) -> int:
    told = ctypes.create_string_buffer(4)
    return raw("move_pages", pid, 1, struct.pack("=Q", address), None, told, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done is not None and done >= 0, rare=True)
