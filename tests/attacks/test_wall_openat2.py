"""A tool opens a file by the newest call for it, which older lists of calls leave out."""

import os
import struct

from attacks.behind_walls import Outside, raw


def attack(secret: str) -> str:
    file = raw("openat2", -100, secret, struct.pack("=QQQ", os.O_RDONLY, 0, 0), 24)
    return os.read(file, 100).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, refused="not implemented")
