"""A tool compares what is in the memory of the kernel for other processes, bit by bit (`kcmp`)."""

from attacks.behind_walls import Outside, raw

FILES = 2


def attack(pid: int, host: int) -> str:
    raw("kcmp", pid, host, FILES, 0, 0)
    return "compared"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "compared", rare=True)
