"""A tool makes a thread in a network of its own, where sockets would be harmless, or so a filter might think."""

from attacks.behind_walls import Outside, raw

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000


def attack() -> int:
    return raw("unshare", NEW_USER | NEW_NETWORK)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, rare=True)
