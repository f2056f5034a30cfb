"""A tool makes closing a connection wait, and sends it to the host: whoever closes it last is held up."""

import _socket
import socket
import struct
from typing import Any

from attacks.behind_walls import Outside

ON = struct.pack("ii", 1, 600)


def attack(port: int) -> Any:
    end = socket.create_connection(("127.0.0.1", port), 10)
    _socket.socket.setsockopt(end, socket.SOL_SOCKET, socket.SO_LINGER, ON)  # past whatever stands before it
    return list(end.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(ON)))


def test_the_walls_stop_it(outside: Outside) -> None:
    here = f"network:tcp:127.0.0.1:{outside.port}"
    outside.shows(attack, lambda found: found == list(ON), needs=[here])
