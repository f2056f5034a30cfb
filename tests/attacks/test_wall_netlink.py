"""A tool asks the kernel for the network of the machine: interfaces, addresses, routes."""

import socket
import struct

from attacks.behind_walls import Outside

GET_LINK, DUMP = 18, 0x301


def attack() -> int:
    asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    asking.send(struct.pack("=IHHIIBxHiII", 32, GET_LINK, DUMP, 1, 0, 0, 0, 0, 0, 0))
    return len(asking.recv(65536))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda told: told and told > 32, rare=True)
