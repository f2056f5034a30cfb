"""A tool queues a signal for another process and claims that the kernel sent it."""

import signal
import struct

from attacks.behind_walls import Outside, raw

FROM_A_QUEUE = -1


def attack(pid: int) -> None:
    raw("rt_sigqueueinfo", pid, signal.SIGKILL, struct.pack("=iii116x", signal.SIGKILL, 0, FROM_A_QUEUE))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.ended)
