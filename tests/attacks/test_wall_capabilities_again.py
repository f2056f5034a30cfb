"""A tool takes back capabilities that its process gave up."""

import ctypes
import struct

from attacks.behind_walls import Outside, raw

VERSION = 0x20080522


def attack() -> int:
    header, sets = struct.pack("=Ii", VERSION, 0), ctypes.create_string_buffer(24)
    raw("capget", header, sets)
    _, permitted, _, *_ = struct.unpack("=6I", sets.raw)
    raw("capset", header, struct.pack("=6I", permitted or 1, permitted or 1, 0, 0, 0, 0))
    return int(permitted)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda held: held, root=True, rare=True)
