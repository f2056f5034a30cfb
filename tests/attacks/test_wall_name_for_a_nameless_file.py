"""A tool makes a file without a name in its scratch directory, and gives it a name elsewhere."""

import os

from attacks.behind_walls import Outside, raw, scratch

FOLLOW = 0x400


def attack(target: str) -> None:
    nameless = os.open(scratch(), os.O_TMPFILE | os.O_WRONLY)
    raw("linkat", -100, f"/proc/self/fd/{nameless}", -100, f"{target}.new", FOLLOW)


def test_the_walls_stop_it(outside: Outside) -> None:
    refused = "PermissionError|cross-device link|not supported"
    outside.shows(attack, lambda _: os.path.exists(f"{outside.target}.new"), refused=refused, rare=True)
