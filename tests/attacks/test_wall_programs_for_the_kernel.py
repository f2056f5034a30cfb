"""A tool gives the kernel something to keep that outlives it, or a program to run (`bpf`)."""

import struct

from attacks.behind_walls import Outside, raw

MAP_CREATE, ARRAY = 0, 2


def attack() -> int:
    return raw("bpf", MAP_CREATE, struct.pack("=IIII", ARRAY, 4, 4, 1) + bytes(104), 120)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, root=True, rare=True)
