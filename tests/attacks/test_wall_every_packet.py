"""A tool of root listens to every packet of the machine."""

import socket

from attacks.behind_walls import Outside


def attack() -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
    return "listening"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "listening", root=True, rare=True)
