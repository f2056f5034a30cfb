"""A tool reads what stands beside a file that it cannot open: where it was downloaded from, what somebody noted."""

import os
from collections.abc import Callable

import pytest

from attacks.behind_walls import CANARY, Outside


def attack(secret: str) -> list[str]:
    fd = os.open(secret, os.O_PATH)  # which opens nothing, and needs no rule
    ways: dict[str, Callable[[], object]] = {
        "by its path": lambda: os.getxattr(secret, "user.note"),
        "and no link followed": lambda: os.getxattr(secret, "user.note", follow_symlinks=False),
        "through what is no open file": lambda: os.getxattr(fd, "user.note"),
        "through its name in /proc": lambda: os.getxattr(f"/proc/self/fd/{fd}", "user.note"),
        "which there are": lambda: os.listxattr(secret),
        "which there are, no link followed": lambda: os.listxattr(secret, follow_symlinks=False),
    }
    said = []
    for name, way in ways.items():
        try:
            said.append(f"{name}: {way()!r}")
        except OSError:
            continue
    return said


def test_the_walls_stop_it(outside: Outside) -> None:
    try:
        os.setxattr(outside.secret, "user.note", CANARY.encode())
    except OSError as wrong:
        pytest.skip(f"files here have no extended attributes: {wrong.strerror}")
    outside.shows(attack, lambda said: said != [], refused=None)
