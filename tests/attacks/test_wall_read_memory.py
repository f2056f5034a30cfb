"""A tool reads the memory of another process (`process_vm_readv`)."""

import ctypes
import struct

from attacks.behind_walls import CANARY, Outside, raw


def attack(pid: int, address: int) -> str:
    mine = ctypes.create_string_buffer(len(CANARY))
    there = struct.pack("=QQ", address, len(CANARY))
    raw("process_vm_readv", pid, struct.pack("=QQ", ctypes.addressof(mine), len(CANARY)), 1, there, 1, 0)
    return mine.raw.decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, rare=True)
