"""A tool opens a file that nobody granted."""

from attacks.behind_walls import Outside


def attack(secret: str) -> str:
    with open(secret, encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
