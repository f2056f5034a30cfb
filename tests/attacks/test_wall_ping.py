"""A tool sends data out in pings, which need neither TCP nor UDP nor root."""

import socket

from attacks.behind_walls import Outside


def attack() -> int:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    return made.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", ("127.0.0.1", 0))


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda sent: sent, rare=True)
