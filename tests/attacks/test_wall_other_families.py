"""A tool tries every family of sockets that the kernel may have."""

import socket

from attacks.behind_walls import Outside


def attack() -> list[int]:
    made, refused = [], OSError()
    for family in range(1, 64):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
                made.append(family)
            except PermissionError as error:
                refused = error
            except OSError:
                continue
    if not made:
        raise refused
    return made


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda made: made)
