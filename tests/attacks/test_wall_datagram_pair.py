"""A tool makes a pair of datagram sockets, which is no connection, and sends from one of them to a unix socket."""

import os
import socket
from pathlib import Path

from attacks.behind_walls import Outside


def attack(door: str) -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"out", door)


def test_the_walls_stop_it(outside: Outside) -> None:
    door = Path(f"/tmp/licet-{os.getpid()}-{id(outside):x}.d")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(door))
        try:
            outside.shows(attack, lambda _: outside.arrived(server), door=str(door))
        finally:
            door.unlink()
