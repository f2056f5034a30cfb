"""Supervisors that are started before it is known what they will run."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.programs import NoWalls, alive, until
from attacks.walled_programs import needs_walls
from descriptors import left_open, open_files
from licet.guard.execution import Command, Streams
from licet.guard.ports import Unavailable
from licet.sandbox import probe
from licet.sandbox.probe import Support
from licet.sandbox.programs import supervisor_client
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.supervisor_client import Supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are run on Linux only")


def shell(script: str) -> Command:
    return Command("/bin/sh", ("sh", "-c", script), {}, "/", b"", 60.0, 1 << 16)


def output(processes: LocalProcesses, script: str) -> bytes:
    return asyncio.run(processes.run(shell(script), NoWalls())).stdout_bytes


def test_the_first_program_has_the_one_that_is_ready() -> None:
    ready = Supervisor()
    processes = LocalProcesses("/usr/bin:/bin", ready=ready)
    parents = [int(output(processes, "echo $PPID")) for _ in range(2)]
    assert (parents[0] == ready.process.pid, parents[1] == ready.process.pid) == (True, False)
    assert ready.process.returncode == 0
    ready.discard()  # which is nothing to be done any more


def test_one_that_was_started_for_walls_starts_nothing_without_them() -> None:
    ready = Supervisor(walled=True)
    assert int(output(LocalProcesses("/usr/bin:/bin", ready=ready), "echo $PPID")) != ready.process.pid
    ready.discard()
    assert not alive(ready.process.pid)


def test_one_that_is_not_needed_is_gone() -> None:
    before = open_files()
    ready = supervisor_client.supervisor_in_advance()
    assert ready is not None
    assert alive(ready.process.pid)
    ready.discard()
    assert not alive(ready.process.pid)
    assert left_open(before) == set()


HOST = """
import os
from licet.sandbox.programs.supervisor_client import Supervisor
print(Supervisor().process.pid, flush=True)
os._exit(0)
"""


def test_one_ends_with_the_host() -> None:
    host = subprocess.run([sys.executable, "-c", HOST], capture_output=True, timeout=600, check=True)
    until(lambda: not alive(int(host.stdout)))


def test_one_that_is_dead_is_no_success() -> None:
    ready = Supervisor()
    ready.process.kill()
    ready.process.wait()
    with pytest.raises(Unavailable, match="supervisor"):
        output(LocalProcesses("/usr/bin:/bin", ready=ready), "true")


def test_a_program_that_ran_when_its_supervisor_was_killed_has_run() -> None:
    ready = Supervisor()

    async def killed() -> int:
        processes = LocalProcesses("/usr/bin:/bin", ready=ready)
        async with processes.start(shell("sleep 60"), NoWalls(), Streams(False, False, False)) as running:
            ready.process.kill()  # it has said that the program runs
            return await running.ended()

    assert asyncio.run(killed()) == -9


def test_nothing_is_left_behind_where_the_host_goes_without_having_read_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel then tells of a connection that was reset, and not of its end."""
    ends = socket.socketpair()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(socket, "socketpair", lambda: (ends[0], ends[1].dup()))
        ready = Supervisor()
    ends[1].sendall(b"what came of trying out the walls\n")
    left = tmp_path / "left"

    async def started() -> None:
        processes = LocalProcesses("/usr/bin:/bin", ready=ready)
        script = f"setsid sh -c 'echo $$ > {left}.new; mv {left}.new {left}; exec sleep 600' & exec sleep 600"
        async with processes.start(shell(script), NoWalls(), Streams(False, False, False)):
            until(left.exists)

    asyncio.run(started())
    ends[1].close()
    assert not alive(int(left.read_text()))


@needs_walls
def test_one_that_is_started_early_tries_out_the_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = supervisor_client.supervisor_in_advance()
    assert ready is not None
    monkeypatch.setattr(probe, "_known", None)
    monkeypatch.setattr(probe, "_under_way", None)
    monkeypatch.setattr(probe, "look", lambda: pytest.fail("they were tried twice"))
    probe.expect(ready.tried)
    found = probe.support()
    assert found.keeps("isolated")
    in_place = () if found.namespaces else (probe.SUPERVISED,)
    assert {finding.wall for finding in found.findings} == {*probe.WALLS} - {probe.SUPERVISED} | {*in_place}
    assert probe.support() is found
    ready.discard()
    assert not alive(ready.process.pid)


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b"{}\n", b'{"landlock": 7'])
def test_walls_are_tried_here_if_it_does_not_say_what_came_of_them(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    ready = Supervisor(trying=True)
    ready.control.close()
    ready.control, far = socket.socketpair()
    far.sendall(said)
    far.close()
    monkeypatch.setattr(probe, "_known", None)
    monkeypatch.setattr(probe, "_under_way", None)
    monkeypatch.setattr(probe, "look", lambda: Support(0, (), "tried here"))
    probe.expect(ready.tried)
    assert probe.support().trouble == "tried here"
    ready.discard()


def test_one_that_is_not_needed_clears_up_what_it_tries_walls_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ready = Supervisor(trying=True)
    until(lambda: bool(os.listdir(tmp_path)) or ready.process.poll() is not None)
    ready.discard()
    assert [os.listdir(tmp_path / name) for name in os.listdir(tmp_path)] == [[]]  # the parent of all scratch stays


def test_where_none_can_be_started_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = open_files()
    assert supervisor_client.supervisor_in_advance() is None
    assert left_open(before) == set()


def recording(tmp_path: Path) -> str:
    """This interpreter, which first writes down the libraries that it was told of."""
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho "$LD_LIBRARY_PATH" >> {tmp_path}/told\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@needs_walls
def test_only_our_own_interpreter_is_told_where_its_libraries_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = recording(tmp_path)
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert b"LD_LIBRARY_PATH" not in output(LocalProcesses("/usr/bin:/bin"), "env")
    assert probe.look().keeps("isolated")
    assert (tmp_path / "told").read_text().split() == [str(tmp_path)] * 2
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert os.fsencode(str(tmp_path)) not in output(LocalProcesses("/usr/bin:/bin"), "env")
