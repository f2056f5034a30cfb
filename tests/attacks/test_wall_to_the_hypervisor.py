"""A tool in a virtual machine talks to whoever runs the machine (`AF_VSOCK`)."""

import socket

from attacks.behind_walls import Outside


def attack() -> str:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "made"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "made", rare=True)
