"""A tool of root becomes another user, whose files it then has."""

import os

from attacks.behind_walls import Outside


def attack() -> int:
    os.setresuid(65534, 65534, 65534)
    return os.getuid()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda user: user == 65534, root=True)
