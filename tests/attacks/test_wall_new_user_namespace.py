"""A tool makes a namespace in which it is root, and from there uses parts of the kernel that others may not."""

from attacks.behind_walls import Outside, raw

NEW_USER = 0x10000000


def attack() -> int:
    return raw("unshare", NEW_USER)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, rare=True)
