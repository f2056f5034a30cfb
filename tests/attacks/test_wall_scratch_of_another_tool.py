"""A tool looks into the scratch directories of other tools, which lie beside its own."""

import os

from attacks.behind_walls import Outside


def attack() -> list[str]:
    return os.listdir(os.path.dirname(os.environ["TMPDIR"]))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda names: names)
