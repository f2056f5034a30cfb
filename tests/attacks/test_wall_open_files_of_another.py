"""A tool opens what another process has open."""

from attacks.behind_walls import Outside


def attack(pid: int) -> str:
    with open(f"/proc/{pid}/fd/100", encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
