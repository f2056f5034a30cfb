"""A tool makes a file in a granted directory unchangeable, for its owner too (`chattr +i`)."""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from attacks.behind_walls import Outside

GET_FLAGS, SET_FLAGS, NO_DUMP = 0x80086601, 0x40086602, 0x40  # a harmless one: the others need root to undo


def attack(granted: str) -> None:
    file = os.open(f"{granted}/file", os.O_RDONLY)
    fcntl.ioctl(file, SET_FLAGS, struct.pack("=q", NO_DUMP))


def test_the_walls_stop_it(outside: Outside) -> None:
    def flagged(_: object) -> bool:
        with suppress(OSError), Path(outside.granted, "file").open() as file:
            found = fcntl.ioctl(file, GET_FLAGS, bytes(8))
            return bool(struct.unpack("=q", found)[0] & NO_DUMP)
        return False

    outside.shows(attack, flagged, refused="PermissionError|Inappropriate ioctl", rare=True)
