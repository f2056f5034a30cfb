"""A tool reads through `/proc/self/root`, where everything has a second path."""

from attacks.behind_walls import Outside


def attack(secret: str) -> str:
    with open(f"/proc/self/root{secret}", encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
