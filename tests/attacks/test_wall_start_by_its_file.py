"""A tool starts a program by an open file and an empty name (`execveat`)."""

import ctypes
import os

from attacks.behind_walls import Outside, raw

EMPTY_PATH = 0x1000


def attack(target: str) -> None:
    words = (ctypes.c_char_p * 4)(
        b"sh", b"-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'".encode(), None
    )
    raw(
        "execveat", os.open("/bin/sh", os.O_PATH), b"", ctypes.cast(words, ctypes.c_void_p).value or 0, None, EMPTY_PATH
    )


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
