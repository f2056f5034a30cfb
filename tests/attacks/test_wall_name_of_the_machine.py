"""A tool of root gives the machine another name."""

import socket

from attacks.behind_walls import Outside, raw


def attack() -> int:
    name = socket.gethostname()  # the one it has, so that nothing happens where nothing stops it
    return raw("sethostname", name, len(name))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda done: done == 0, root=True, rare=True)
