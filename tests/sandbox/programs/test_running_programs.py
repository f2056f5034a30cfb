"""Programs behind walls while they run: they are told of when they really run, and every signal arrives."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, both_kinds
from descriptors import left_open, open_files
from licet.errors import Refused
from licet.guard.execution import Streams
from licet.guard.handles.processes import started

SAID = Streams(stdout=True)


def whole(file: int) -> bytes:
    with open(file, "rb") as read:
        return read.read()


def first_line(file: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(file, 1)
    return line


def started_and_sent(kind: str, script: str, *numbers: int) -> tuple[int, bytes]:
    """The code of a shell that is sent signals, each after it has said a line, and what it says after the last."""

    async def scene() -> tuple[int, bytes]:
        programs = Programs(kind, seconds=100)
        async with started(programs.handle, "sh", ["-c", script], SAID, None, None) as running:
            (said,) = running.handed()
            for number in numbers:
                await asyncio.to_thread(first_line, said)
                running.signal(number)
            code = await running.ended()
            return code, await asyncio.to_thread(whole, said)

    return asyncio.run(scene())


@both_kinds
@pytest.mark.parametrize("name", ["TERM", "KILL", "INT", "HUP", "QUIT", "USR1", "ALRM", "XCPU"])
@pytest.mark.sampled(5)
def test_a_signal_ends_it_as_it_would_outside(kind: str, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    assert started_and_sent(kind, "echo ready; sleep 60 & wait", number) == (-number, b"")


@both_kinds
def test_a_signal_can_be_handled(kind: str) -> None:
    script = "trap 'echo heard' USR1; trap 'echo ends; exit 7' TERM; echo ready; while :; do sleep 60 & wait; done"
    assert started_and_sent(kind, script, signal.SIGTERM) == (7, b"ends\n")
    code, said = started_and_sent(kind, script, signal.SIGUSR1, signal.SIGTERM)
    assert (code, said.splitlines()[-1]) == (7, b"ends")  # a new child of the shell may have heard the first one, too


@both_kinds
def test_a_program_that_is_no_program_never_starts(kind: str, tmp_path: Path) -> None:
    broken = tmp_path.resolve() / "broken"
    broken.write_text("neither binary nor script")
    broken.chmod(0o755)

    async def scene() -> None:
        async with started(Programs(kind, (f"fs:read:{broken}",)).handle, str(broken), [], SAID, None, None):
            raise AssertionError("it runs")

    before = open_files()
    with pytest.raises(Refused, match="could not be started: Exec format error"):
        asyncio.run(scene())
    assert left_open(before) == set()


@both_kinds
def test_whoever_leaves_ends_all_of_it(kind: str) -> None:
    script = "trap '' TERM HUP INT; (trap '' TERM HUP; sleep 600) & echo ready; sleep 600; sleep 600"

    async def scene() -> bytes:
        async with started(Programs(kind, seconds=100).handle, "sh", ["-c", script], SAID, None, None) as running:
            (said,) = running.handed()
            await asyncio.to_thread(first_line, said)
        return await asyncio.to_thread(whole, said)  # which ends only when nobody is left who could write

    assert asyncio.run(scene()) == b""
