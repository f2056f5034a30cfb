"""A tool makes a pipe with a name where the host may come by, which then waits forever."""

import os

from attacks.behind_walls import Outside


def attack(granted: str) -> None:
    os.mkfifo(f"{granted}/pipe")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: os.path.exists(f"{outside.granted}/pipe"))
