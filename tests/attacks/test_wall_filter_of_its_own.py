"""A tool puts a filter on itself that hands its calls to another process, which may answer as it likes."""

import ctypes
import struct

from attacks.behind_walls import Outside, raw

FILTER, WITH_LISTENER, SET_NO_NEW_PRIVS = 1, 8, 38


def attack() -> int:
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), 8)
    raw("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return raw("seccomp", FILTER, WITH_LISTENER, struct.pack("=H6xQ", 1, ctypes.addressof(allow)))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True)
