"""A tool writes something beside a file, where few look: into its extended attributes."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    os.setxattr(target, "user.note", b"here")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: "user.note" in os.listxattr(outside.target), rare=True)
