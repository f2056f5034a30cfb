"""A tool lets other processes of the user look into its worker, which the host had forbidden."""

from attacks.behind_walls import Outside, raw

SET_DUMPABLE, GET_DUMPABLE = 4, 3


def attack() -> int:
    raw("prctl", SET_DUMPABLE, 1, 0, 0, 0)
    return raw("prctl", GET_DUMPABLE, 0, 0, 0, 0)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda now: now == 1)
