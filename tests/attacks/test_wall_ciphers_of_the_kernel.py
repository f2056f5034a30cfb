"""A tool uses ciphers of the kernel by a socket (`AF_ALG`), a part of it with a history of holes."""

import socket

from attacks.behind_walls import Outside


def attack() -> str:
    made = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)
    made.bind(("hash", "sha256"))
    return "made"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "made", rare=True)
