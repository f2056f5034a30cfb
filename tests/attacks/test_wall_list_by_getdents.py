"""A tool lists the root of the machine without a library: by a held directory and `getdents64`."""

import ctypes
import os

from attacks.behind_walls import Outside, raw


def attack() -> str:
    names = ctypes.create_string_buffer(65536)
    raw("getdents64", raw("openat", -100, "/", os.O_RDONLY | os.O_DIRECTORY, 0), names, 65536)
    return names.raw.decode("latin-1")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda names: names and "etc\0" in names)
