"""A tool reads memory that another process shares under a number (System V)."""

import ctypes
from contextlib import ExitStack

from attacks.behind_walls import CANARY, Outside

CREATE, REMOVE = 0o1600, 0


def libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    found.shmat.restype = ctypes.c_void_p
    return found


def attack(number: int) -> str:
    place = libc().shmat(number, None, 0o10000)
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(place, len(CANARY)).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    number = libc().shmget(0, 4096, CREATE)
    with ExitStack() as kept:
        kept.callback(libc().shmctl, number, REMOVE, None)
        place = libc().shmat(number, None, 0)
        ctypes.memmove(place, CANARY.encode(), len(CANARY))
        outside.shows(attack, number=number)
