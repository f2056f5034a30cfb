"""A tool writes to a file that nobody granted."""

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    with open(target, "a", encoding="utf-8") as file:
        file.write("after")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
