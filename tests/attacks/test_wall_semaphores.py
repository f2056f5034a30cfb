"""A tool sets semaphores of another, who then waits forever (System V)."""

import ctypes

from attacks.behind_walls import Outside

CREATE, REMOVE, GET_VALUE, SET_VALUE = 0o1600, 0, 12, 16


def attack(numbers: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.semctl(numbers, 0, SET_VALUE, 7) < 0:
        raise OSError(ctypes.get_errno(), "semctl")


def test_the_walls_stop_it(outside: Outside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = libc.semget(0, 1, CREATE)
    try:
        outside.shows(attack, lambda _: libc.semctl(numbers, 0, GET_VALUE) == 7, numbers=numbers)
    finally:
        libc.semctl(numbers, 0, REMOVE)
