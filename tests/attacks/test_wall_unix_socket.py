"""A tool talks to a service of the machine by its unix socket, as to Docker's or a database's."""

import socket

from attacks.behind_walls import Outside


def attack(door: str) -> None:
    socket.socket(socket.AF_UNIX).connect(door)


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.arrived(outside.unix))
