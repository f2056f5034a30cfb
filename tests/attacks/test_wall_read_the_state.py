"""A tool that may read everything around the state of the host reads keys and records."""

from attacks.behind_walls import Outside


def attack(state: str) -> str:
    with open(state, encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, needs=[f"fs:read:{outside.place}"])
