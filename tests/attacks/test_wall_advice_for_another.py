"""A tool advises the kernel to throw another process's memory out (`process_madvise`)."""

import struct

from attacks.behind_walls import Outside, raw

COLD = 20


def attack(pid: int, address: int) -> int:
    page = address & ~4095
    return raw("process_madvise", raw("pidfd_open", pid, 0), struct.pack("=QQ", page, 4096), 1, COLD, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done, root=True, rare=True)
