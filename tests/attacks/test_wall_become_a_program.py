"""A tool becomes a program in its own process: nothing is started, only exchanged."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.execv("/bin/sh", ["sh", "-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'"])


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
