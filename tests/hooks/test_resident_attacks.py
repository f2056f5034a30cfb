"""Clients that mean harm, or are none: other users, floods, half messages, garbage, descriptors, walled programs."""

import os
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from attacks.programs import alive, until
from attacks.walled_programs import Programs, both_kinds, open_programs
from hooks.installation import Installation
from hooks.residents import Connection, processes, stopped
from hooks.test_resident import answer
from licet.hooks import resident_wire as wire
from ordinary_user import NOBODY

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="residents need SO_PEERCRED and /proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("resident") / "it", START_SECONDS=60, HOOK_SECONDS=100)
    answer(made.hook())
    yield made
    stopped(made)


def is_the_same(installed: Installation, process: int) -> bool:
    return bool(answer(installed.hook())["pid"] == process)


def as_nobody(place: int, code: str) -> int:
    """Run code of this process as another user, in the directory of the sockets; returns its exit code."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            exec(code, {"socket": socket, "os": os, "here": f"/proc/self/fd/{place}/"})
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_root
def test_another_user_is_not_answered(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60)
    process = answer(installed.hook())["pid"]
    (path,) = installed.place.glob("*.sock")
    place = os.open(installed.place, os.O_PATH | os.O_DIRECTORY)
    asks = f"s = socket.socket(1); s.connect(here + {path.name!r}); s.send({wire.packed(wire.STATUS)!r})"
    ask = f"{asks}\nif s.recv(100): os._exit(7)"
    try:
        assert as_nobody(place, ask) == 1  # the directory is closed to others
        installed.place.chmod(0o755)
        path.chmod(0o777)
        assert as_nobody(place, ask) in (0, 1)  # no byte comes, or the connection is reset
        installed.place.chmod(0o700)
        assert is_the_same(installed, process)
    finally:
        os.close(place)
        stopped(installed)


@needs_root
def test_a_socket_of_another_user_is_not_asked(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60)
    answer(installed.hook())
    (path,) = installed.place.glob("*.sock")
    stopped(installed)
    path.unlink()
    place = os.open(installed.place, os.O_PATH | os.O_DIRECTORY)
    read, write = os.pipe()
    installed.place.chmod(0o777)
    allows = wire.packed(wire.ANSWER, b"FORGED", b"", wire.number(0))
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            server = socket.socket(socket.AF_UNIX)
            server.bind(f"/proc/self/fd/{place}/{path.name}")
            server.listen()
            os.write(write, b"1")
            while True:
                with suppress(OSError):
                    server.accept()[0].send(allows)
        finally:
            os._exit(1)
    try:
        os.close(write)
        assert os.read(read, 1) == b"1"
        installed.place.chmod(0o700)
        done = installed.hook()
        assert b"FORGED" not in done.stdout
        assert done.stdout.endswith(b" alone")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(place)


def test_a_slow_client_keeps_nobody_waiting_and_is_ended(tmp_path: Path) -> None:
    installed = Installation(tmp_path / "it", START_SECONDS=60)
    process = answer(installed.hook())["pid"]
    slow = Connection(installed)
    slow.end.send(wire.packed(wire.HOOK, b"claude", b"PreToolUse", b"/", b"{}")[:-1])
    assert is_the_same(installed, process)
    assert slow.said() == b""  # after `REQUEST_SECONDS`
    slow.end.close()
    stopped(installed)


def test_two_thousand_connections_do_not_take_it_down(installed: Installation) -> None:
    process = answer(installed.hook())["pid"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = []
    try:
        for _ in range(2000):
            with suppress(BlockingIOError, ConnectionError):
                held.append(Connection(installed))
    finally:
        for one in held:
            one.end.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: b" alone" not in installed.hook().stdout)
    assert is_the_same(installed, process)


@given(some.binary(max_size=300))
@settings(max_examples=30)
def test_garbage_is_answered_by_the_end_of_the_connection(installed: Installation, data: bytes) -> None:
    one = Connection(installed)
    with suppress(ConnectionError):
        one.end.send(data)
        one.end.shutdown(socket.SHUT_WR)
    assert one.said() in (b"", wire.packed(wire.LEAVING))
    one.end.close()


def test_it_is_there_after_garbage(installed: Installation) -> None:
    (process,) = processes(installed)
    assert is_the_same(installed, process)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">BBI", 1, wire.HOOK, (8 << 20) + (1 << 16)),  # too long
        struct.pack(">BBI", 1, wire.LINE, 1 << 31),
        wire.packed(wire.HOOK, b"claude", b"PreToolUse", b"/"),  # a field is missing
        wire.packed(wire.HOOK, b"c" * 257, b"PreToolUse", b"/", b"{}"),
        wire.packed(wire.HOOK, b"claude", b"Pre\0ToolUse", b"/", b"{}"),
        wire.packed(wire.LINE, b"", b"true", b"/"),  # without descriptors
        wire.packed(wire.VALUES, b"TOKEN", b"key"),  # that nobody asked for
        wire.packed(wire.SIGNAL, wire.number(9)),
        wire.packed(wire.ANSWER, b"", b"", wire.number(0)),
    ],
)
def test_a_request_that_is_none_ends_the_connection(installed: Installation, data: bytes) -> None:
    one = Connection(installed)
    one.end.send(data)
    assert one.said() == b""
    one.end.close()


@pytest.mark.parametrize("count", [1, 2, 4, 200])
@pytest.mark.parametrize("kind", [wire.HOOK, wire.LINE])
def test_descriptors_that_are_not_wanted_are_closed(installed: Installation, kind: int, count: int) -> None:
    read, write = os.pipe()
    one = Connection(installed)
    fields = (b"", b"true", b"/") if kind == wire.LINE else (b"claude", b"PreToolUse", b"/", b"{}")
    socket.send_fds(one.end, [wire.packed(kind, *fields)], [write] * count)
    assert one.said() == b""
    os.close(write)
    assert os.read(read, 1) == b""  # the resident has not kept it
    os.close(read)
    one.end.close()


CONNECT = "s = socket.socket(1); s.connect(sys.argv[1]); print('CONNECTED')"
LONG_WAY = (
    "d = os.open(os.path.dirname(sys.argv[1]), os.O_PATH); s = socket.socket(1); "
    "s.connect('/proc/self/fd/%d/%s' % (d, os.path.basename(sys.argv[1]))); print('CONNECTED')"
)


@both_kinds
@pytest.mark.parametrize("code", [CONNECT, LONG_WAY], ids=["by its path", "by its directory"])
def test_a_program_behind_walls_does_not_reach_it(
    installed: Installation, kind: str, code: str, tmp_path: Path
) -> None:
    home = tmp_path / "h"  # a short path to the same directory
    home.symlink_to(installed.place)
    (path,) = installed.place.glob("*.sock")
    rules = ("fs:read:/", "fs:write:/tmp", f"fs:write:{installed.place}", f"fs:write:{tmp_path}")
    for address in (str(home / path.name), str(path)):
        if len(address) > 100 and code == CONNECT:
            continue
        assert "CONNECTED" in open_programs(*rules).python(code, address)
        assert "CONNECTED" not in Programs(kind, rules).python(code, address)


def test_a_line_whose_client_sends_nonsense_is_ended(installed: Installation) -> None:
    read, write = os.pipe()
    one = Connection(installed)
    socket.send_fds(one.end, [wire.packed(wire.LINE, b"", b"echo $$; exec sleep 1000", b"/")], [read, write, write])
    shell = int(os.read(read, 100))
    one.end.send(wire.packed(wire.SIGNAL, wire.number(9)))  # not one that is passed on
    until(lambda: not alive(shell))
    for end in (read, write):
        os.close(end)
    one.end.close()
