"""A tool looks at files through the root directory of another process."""

from attacks.behind_walls import Outside


def attack(pid: int, secret: str) -> str:
    with open(f"/proc/{pid}/root{secret}", encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack)
