"""A tool counts what the processor does, finely enough to learn what others do (`perf_event_open`)."""

import struct

from attacks.behind_walls import Outside, raw

SOFTWARE, CPU_CLOCK, NOT_THE_KERNEL = 1, 0, 0b1100000


def attack() -> int:
    wanted = struct.pack("=IIQQQQQ", SOFTWARE, 64, CPU_CLOCK, 0, 0, 0, NOT_THE_KERNEL) + bytes(16)
    return raw("perf_event_open", wanted, 0, -1, -1, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True)
