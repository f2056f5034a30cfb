"""A tool talks to a service whose unix socket has no file, and so no permissions."""

import os
import socket

from attacks.behind_walls import Outside


def attack(name: str) -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0{name}")


def test_the_walls_stop_it(outside: Outside) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        name = f"licet-test-{os.getpid()}-{id(server)}"
        server.bind(f"\0{name}")
        server.listen()
        outside.shows(attack, lambda _: outside.arrived(server), name=name)
