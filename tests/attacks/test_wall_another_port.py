"""A tool that may connect to one port asks the host for another."""

import socket

from attacks.behind_walls import Outside


def attack(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 10).close()


def test_the_walls_stop_it(outside: Outside) -> None:
    other = "network:tcp:127.0.0.1:9"
    outside.shows(attack, lambda _: outside.arrived(outside.listener), needs=[other])
