"""A tool takes back that its process dies with its parent."""

import ctypes

from attacks.behind_walls import Outside, raw

SET_DEATH_SIGNAL, GET_DEATH_SIGNAL = 1, 2


def attack() -> int:
    now = ctypes.create_string_buffer(4)
    raw("prctl", SET_DEATH_SIGNAL, 0, 0, 0, 0)
    raw("prctl", GET_DEATH_SIGNAL, now, 0, 0, 0)
    return int.from_bytes(now.raw, "little")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda signal: signal == 0)
