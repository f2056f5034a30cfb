"""A tool asks thousands of questions and takes no answer: it waits in line, and others are served."""

from typing import Any

from attacks.behind_walls import Outside, made
from licet import SyncContext

VALUE = "a" * 1000


def attack(ctx: SyncContext, many: int) -> str | None:
    from licet.sandbox.bridge.wire import packed

    inside: Any = ctx
    for number in range(many):
        question = packed({"op": "env.get", "name": "A", "id": 900 + number, "call": 1})
        inside._target._host.wire.socket.sendall(question)
    return None if many else ctx.env.get("A")


def test_the_host_goes_on(inside: Outside) -> None:
    from licet import Backends
    from sandbox.levels import call, gate

    tool = made(attack, needs=["env:read:A"])
    backends = Backends.memory(environ={"A": VALUE})
    at = gate(inside._place, inside.walls, tool, backends=backends, limits={"wall_seconds": 1})
    # The answers would fill many megabytes: what does not fit on the way to the tool is never made.
    result = call(at, "attack", {"many": 200_000})
    assert not result.ok
    assert result.reason in ("TOOL_CRASHED", "LIMIT_TIME"), result.error
    assert len(result.events) < 10_000
    at = gate(inside._place, inside.walls, tool, backends=backends)
    assert call(at, "attack", {"many": 0}).value == VALUE
