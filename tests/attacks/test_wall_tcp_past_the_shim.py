"""A tool that may connect to one port takes the sockets of the kernel, past those that the host connects."""

import _socket
import socket

from attacks.behind_walls import Outside


def attack(port: int) -> None:
    _socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0).connect(("127.0.0.1", port))


def test_the_walls_stop_it(outside: Outside) -> None:
    other = "network:tcp:127.0.0.1:9"
    outside.shows(attack, lambda _: outside.arrived(outside.listener), needs=[other])
