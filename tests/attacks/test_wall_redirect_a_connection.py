"""A tool gets a connection to where it may connect, disconnects it (`AF_UNSPEC`), and connects it to elsewhere."""

import socket
import struct

from attacks.behind_walls import Outside, raw


def attack(port: int, allowed: int) -> None:
    made = socket.create_connection(("127.0.0.1", allowed), 10)
    raw("connect", made.fileno(), struct.pack("=H14x", 0), 16)
    elsewhere = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
    made.setblocking(True)
    raw("connect", made.fileno(), elsewhere, 16)


def test_the_walls_stop_it(outside: Outside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as allowed:
        port = int(allowed.getsockname()[1])
        needs = [f"network:tcp:127.0.0.1:{port}"]
        outside.shows(attack, lambda _: outside.arrived(outside.listener), needs=needs, allowed=port)
        if outside.walls == "isolated":
            assert outside.arrived(allowed)  # so far it came
