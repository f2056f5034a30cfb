"""A tool sends a datagram, which Landlock does not see."""

import socket

from attacks.behind_walls import Outside


def attack(udp_port: int) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", udp_port))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.arrived(outside.datagrams))
