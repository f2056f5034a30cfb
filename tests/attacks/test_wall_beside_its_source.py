"""A tool reads what lies beside its own source file: `.env`, policy, other tools."""

import os

from attacks.behind_walls import Outside


def attack() -> str:
    with open(os.path.join(os.path.dirname(__file__), "nets.py"), encoding="utf-8") as file:
        return file.read()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda text: text and "import" in text)
