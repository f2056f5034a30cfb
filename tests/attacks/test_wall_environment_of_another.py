"""A tool reads the environment of another process, where people keep their keys."""

from attacks.behind_walls import Outside


def attack(pid: int) -> str:
    with open(f"/proc/{pid}/environ", encoding="latin-1") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
