"""A tool of root takes a detached copy of the whole tree of files, which no path leads to (`open_tree`)."""

import os

from attacks.behind_walls import Outside, raw

CLONE, RECURSIVE = 1, 0x8000


def attack(secret: str) -> str:
    tree = raw("open_tree", -100, b"/", CLONE | RECURSIVE)
    return os.read(os.open(secret[1:], os.O_RDONLY, dir_fd=tree), 100).decode()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, root=True, rare=True)
