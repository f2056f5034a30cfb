"""A tool of root talks to devices without the kernel (`ioperm`)."""

from attacks.behind_walls import Outside, raw


def attack() -> int:
    return raw("ioperm", 0x80, 1, 1)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, root=True, rare=True, only_on="x86_64")
