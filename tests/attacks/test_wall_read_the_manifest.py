"""A tool reads its manifest, to learn what to ask for."""

from attacks.behind_walls import Outside


def attack(manifest: str) -> str:
    with open(manifest, encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda text: text and "tester" in text)
