"""A tool reads with which arguments the other processes of the machine were started."""

import os

from attacks.behind_walls import CANARY, Outside


def attack(secret: str) -> str:
    found = ""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", encoding="latin-1") as file:
                    found += file.read()
            except FileNotFoundError:
                continue
    return found


def test_the_walls_stop_it(outside: Outside) -> None:
    assert outside.victim.poll() is None  # it was told where the secret is
    outside.shows(attack, lambda text: text and (outside.secret in text or CANARY in text))
