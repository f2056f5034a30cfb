"""A tool writes to the memory of another process (`process_vm_writev`)."""

import ctypes
import struct

from attacks.behind_walls import CANARY, Outside, raw


def attack(pid: int, address: int) -> None:
    mine = ctypes.create_string_buffer(b"changed")
    there = struct.pack("=QQ", address, 8)
    raw("process_vm_writev", pid, struct.pack("=QQ", ctypes.addressof(mine), 8), 1, there, 1, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.remembered != CANARY, rare=True)
