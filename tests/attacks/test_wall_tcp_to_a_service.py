"""A tool connects to a service of the machine, which takes it for a friend."""

import socket

from attacks.behind_walls import Outside


def attack(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 10).close()


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.arrived(outside.listener))
