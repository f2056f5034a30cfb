"""A tool opens a port, and waits for whoever comes."""

import socket

from attacks.behind_walls import Outside


def attack() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda port: port)
