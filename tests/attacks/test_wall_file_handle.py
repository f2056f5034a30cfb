"""A tool opens a file by the kernel's number for it, past every directory on the way."""

import ctypes
import os

from attacks.behind_walls import Outside, raw


def attack(secret: str, place: str) -> str:
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little"), 136)
    raw("name_to_handle_at", -100, secret, handle, ctypes.create_string_buffer(8), 0)
    mount = os.open(place, os.O_RDONLY)
    return os.read(raw("open_by_handle_at", mount, handle, os.O_RDONLY), 100).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, root=True)
