"""A tool asks the host for a connection behind the back of its context, at a level that has none, or to elsewhere."""

import socket
from typing import Any

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext, port: int) -> None:
    inside: Any = ctx
    try:
        host = inside._target._host
    except AttributeError:  # without walls there is nobody to ask
        socket.create_connection(("127.0.0.1", port)).close()
        return
    host.ask_now("connect", host="127.0.0.1", port=port)


def test_the_walls_stop_it(outside: Outside) -> None:
    port = 9 if outside.walls == "isolated" else outside.port
    refused = "SIDE_EFFECT_EXCEEDED|HOST_NOT_ALLOWED|RuntimeError|TOOL_CRASHED"
    needs = [f"network:tcp:127.0.0.1:{port}"]
    outside.shows(attack, lambda _: outside.arrived(outside.listener), refused=refused, needs=needs)
