"""A tool reads who the users of the machine are."""

from attacks.behind_walls import Outside


def attack() -> str:
    with open("/etc/passwd", encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda text: text and "root:" in text)
