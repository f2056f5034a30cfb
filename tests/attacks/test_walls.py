"""Attacks of tools on what is outside of their walls: each works without walls, and is stopped by those of each level.

The attacks are in the modules of `attacks.walls`. Here is what is tried with them, and those that need more than a row.
"""

import importlib.util
import os
import pkgutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from attacks import walls
from attacks.behind_walls import ATTACKS, NO_WALLS, Outside, called, made
from attacks.walls import network, processes
from licet.sandbox.kernel import landlock
from sandbox.levels import needs_walls

for theme in pkgutil.iter_modules(walls.__path__):
    import_module(f"attacks.walls.{theme.name}")

HARMFUL = sorted(name for name, one in ATTACKS.items() if one.harmful)


@pytest.mark.parametrize("attack", sorted(ATTACKS.keys() - HARMFUL))
def test_the_walls_stop_it(outside: Outside, attack: str) -> None:
    outside.stops(attack)


@pytest.mark.parametrize("attack", HARMFUL)
def test_the_walls_stop_what_would_end_the_test_without_them(inside: Outside, attack: str) -> None:
    inside.stops(attack)


# Attacks that some version of Landlock stops by itself, and others not: on an older machine they are stopped too.
OLDER = (
    *("files.truncate_a_file", "files.truncate_while_reading", "files.replace_a_file", "files.exchange_two_files"),
    *("network.tcp_to_a_service", "network.listen_for_connections", "network.abstract_unix_socket"),
    *("processes.end_a_process", "processes.signal_a_group", "processes.signal_a_thread"),
    *("processes.signal_with_a_value", "kernel.type_into_a_terminal"),
)


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("name", OLDER)
@pytest.mark.sampled(9)
def test_the_walls_of_every_version_of_landlock_stop_it(name: str, version: int, tmp_path: Path) -> None:
    needs_walls()
    if landlock.abi() < version:
        pytest.skip(f"Landlock {version} is not in this kernel")
    with closing(Outside("isolated", tmp_path.resolve(), version)) as there:
        there.stops(name)


# Attacks that need more than a row ------------------------------------------------------------------------------------


def test_forged_connection(outside: Outside) -> None:
    port = 9 if outside.walls == "isolated" else outside.port
    refused = "SIDE_EFFECT_EXCEEDED|HOST_NOT_ALLOWED|RuntimeError|TOOL_CRASHED"
    needs = [f"network:tcp:127.0.0.1:{port}"]
    outside.shows(network.forged_connection, lambda _: outside.arrived(outside.listener), refused=refused, needs=needs)


def test_redirect_a_connection(outside: Outside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as allowed:
        port = int(allowed.getsockname()[1])
        reached = lambda _: outside.arrived(outside.listener)  # noqa: E731
        needs = [f"network:tcp:127.0.0.1:{port}"]
        outside.shows(network.redirect_a_connection, reached, needs=needs, allowed=port)
        if outside.walls == "isolated":
            assert outside.arrived(allowed)  # so far it came


def test_priority_of_another(outside: Outside) -> None:
    before = os.getpriority(os.PRIO_PROCESS, outside.pid)
    lowest = before == 19  # from there only root leads back
    priority = 18 if lowest else before + 1
    changed = lambda _: os.getpriority(os.PRIO_PROCESS, outside.pid) == priority  # noqa: E731
    outside.shows(processes.priority_of_another, changed, root=lowest, priority=priority)


OWN_SOURCE = """
def attack():
    with open(__file__, "a", encoding="utf-8") as file:
        file.write("# more")
"""


@pytest.mark.parametrize("granted", [False, True], ids=["without a grant", "with one over its directory"])
def test_rewrite_its_own_source(outside: Outside, granted: bool) -> None:
    """A tool rewrites its own source file, for its next start."""
    path = Path(outside.place, "out", "planted.py")
    path.write_text(OWN_SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    needs = [f"fs:write:{outside.place}"] if granted else []
    outside.shows(module.attack, lambda _: path.read_text() != OWN_SOURCE, needs=needs)


LEFT: list[str] = []


def leave(word: str) -> list[str]:
    """A tool leaves something for its next call: in its module, in the environment, in its scratch directory."""
    path = os.path.join(tempfile.gettempdir(), "licet-test-left")
    found = [*LEFT, os.environ.get("LICET_TEST_LEFT", ""), getattr(sys, "licet_test_left", "")]
    found.append("a file" if os.path.exists(path) else "")
    LEFT.append(word)
    os.environ["LICET_TEST_LEFT"] = sys.licet_test_left = word  # type: ignore[attr-defined]
    with open(path, "w", encoding="utf-8") as file:
        file.write(word)
    return [each for each in found if each]


def test_left_for_the_next_call(outside: Outside) -> None:
    level = "native" if outside.walls == NO_WALLS else outside.walls
    tool = made(leave)
    try:
        for _ in range(3):
            found = called(tool, Path(outside.place), level, {"arguments": {"word": "left"}}).unwrap()
        assert found == (["left", "left", "left", "left", "a file"] if level == "native" else [])
    finally:
        LEFT.clear()
        os.environ.pop("LICET_TEST_LEFT", None)
        vars(sys).pop("licet_test_left", None)
        if level == "native":
            os.unlink(os.path.join(tempfile.gettempdir(), "licet-test-left"))


# The yardstick itself: an attack that works behind walls, or works nowhere, does not pass -----------------------------


def harmless(granted: str) -> str:
    return "canary-outside-of-the-walls" if granted else ""


def hopeless() -> str:
    raise PermissionError(1, "nobody may")


def mistaken() -> str:
    raise TypeError("a mistake in the attack itself")


def quiet() -> str:
    return "nothing"


PASSES: dict[Callable[..., Any], tuple[bool, bool]] = {
    harmless: (True, False),
    hopeless: (False, True),
    mistaken: (False, False),
    quiet: (False, False),
}


@pytest.mark.parametrize("yardstick", PASSES, ids=lambda attack: attack.__name__)
def test_what_is_no_attack_does_not_pass(outside: Outside, yardstick: Callable[..., Any]) -> None:
    if PASSES[yardstick][outside.walls != NO_WALLS]:
        outside.shows(yardstick)
    else:
        with pytest.raises(AssertionError):
            outside.shows(yardstick)
