"""The contract of process backends, on the memory twin and on this machine; and what real processes add to it."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attacks.programs import alive
from descriptors import left_open, open_files
from licet.guard.execution import Command, Ending, Finished, Layers, Processes, Streams
from licet.guard.ports import Unavailable
from licet.sandbox.programs.function_programs import MemoryProcesses
from licet.sandbox.programs.runner import LocalProcesses

SHELL = "/bin/sh"


class NoWalls:
    layers = Layers()

    def around(self, command: Command) -> Command:
        return command


class Swapped:
    """Walls that start the program through another."""

    layers = Layers()

    def around(self, command: Command) -> Command:
        return replace(command, argv=("sh", "-c", "echo walled"))


def shell(script: str, **given: object) -> Command:
    command = Command(SHELL, ("sh", "-c", script), {}, "/", b"", 10.0, 1 << 16)
    return replace(command, **given)


async def twin(command: Command) -> Finished:
    """A shell that knows the few scripts of the contract."""
    script = command.argv[-1]
    if script == "sleep 60":
        await asyncio.sleep(60)
    said: dict[str, Callable[[], Finished]] = {
        "echo out; echo err >&2; exit 3": lambda: Finished(3, b"out\n", b"err\n"),
        "cat": lambda: Finished(0, command.stdin, b""),
        "env": lambda: Finished(0, os.fsencode("".join(f"{k}={v}\n" for k, v in command.environment.items())), b""),
        "pwd": lambda: Finished(0, command.directory.encode() + b"\n", b""),
        "echo $0": lambda: Finished(0, command.argv[0].encode() + b"\n", b""),
        "kill -15 $$": lambda: Finished(-15, b"", b""),
        "echo walled": lambda: Finished(0, b"walled\n", b""),
        "head -c 100000 /dev/zero": lambda: Finished(0, bytes(100000), b""),
        "head -c 100000 /dev/zero >&2": lambda: Finished(0, b"", bytes(100000)),
    }
    return said[script]()


@pytest.fixture(params=["memory", "local"])
def processes(request: pytest.FixtureRequest) -> Processes:
    return MemoryProcesses({SHELL: twin}, {"sh": SHELL}) if request.param == "memory" else LocalProcesses("/bin")


def run(processes: Processes, command: Command) -> Finished:
    return asyncio.run(processes.run(command, NoWalls()))


def test_output_errors_and_code_come_back(processes: Processes) -> None:
    assert run(processes, shell("echo out; echo err >&2; exit 3")) == Finished(3, b"out\n", b"err\n")


def test_input_goes_in_and_large_input_too(processes: Processes) -> None:
    for data in (b"", b"a\0b\xff", bytes(range(256)) * 4000):
        finished = run(processes, shell("cat", stdin=data, output_bytes=1 << 21))
        assert finished == Finished(0, data, b"")


def test_the_environment_is_what_was_given(processes: Processes) -> None:
    os.environ["LICET_TEST_LEAK"] = "leak"
    try:
        finished = run(processes, shell("env", environment={"A": "b=c", "B": "\udcff"}))
    finally:
        del os.environ["LICET_TEST_LEAK"]
    own = (b"PWD=", b"_=", b"OLDPWD=", b"SHLVL=")  # what a shell adds
    assert {line for line in finished.stdout_bytes.splitlines() if not line.startswith(own)} == {b"A=b=c", b"B=\xff"}


def test_it_starts_in_its_directory_under_its_name(processes: Processes) -> None:
    assert run(processes, shell("pwd", directory="/usr")).stdout_bytes == b"/usr\n"
    assert run(processes, shell("echo $0", argv=("my-name", "-c", "echo $0"))).stdout_bytes == b"my-name\n"


def test_a_program_that_was_killed_says_by_what(processes: Processes) -> None:
    assert run(processes, shell("kill -15 $$")).exit_code == -15


def test_walls_have_the_last_word_on_what_is_started(processes: Processes) -> None:
    assert asyncio.run(processes.run(shell("cat"), Swapped())).stdout_bytes == b"walled\n"


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_output_beyond_the_cap_is_cut(processes: Processes, stream: str) -> None:
    finished = run(processes, shell(f"head -c 100000 /dev/zero{stream}", output_bytes=1000))
    assert finished.truncated
    assert not finished.timed_out
    assert finished.exit_code == 0
    assert len(finished.stderr if stream else finished.stdout) == 1000
    whole = run(processes, shell(f"head -c 100000 /dev/zero{stream}", output_bytes=100000))
    assert not whole.truncated


def test_a_program_that_takes_too_long_is_ended(processes: Processes) -> None:
    finished = run(processes, shell("sleep 60", seconds=0.2))
    assert finished.timed_out
    assert finished.exit_code == -9


def test_what_is_not_there_is_the_system_s_error(processes: Processes) -> None:
    with pytest.raises(FileNotFoundError):
        run(processes, replace(shell("x"), binary="/nowhere/at/all"))


@pytest.mark.parametrize(
    "broken",
    [
        {"binary": "sh"},
        {"argv": ("sh", "a\0b")},
        {"environment": {"A": "a\0b"}},
    ],
)
def test_what_is_no_command_is_refused(processes: Processes, broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        run(processes, shell("cat", **broken))


# While it runs


STREAMED = {
    "all of them": (Streams(True, True, True), "cat", (b"in", b"")),
    "only what it says": (Streams(stdout=True), "echo out; echo err >&2; exit 3", (b"out\n",)),
    "only its errors": (Streams(stderr=True), "echo out; echo err >&2; exit 3", (b"err\n",)),
    "errors among the rest": (Streams(stdout=True, joined=True), "echo out; echo err >&2; exit 3", (b"out\nerr\n",)),
    "nothing, and no input": (Streams(), "cat", ()),
    "more than a pipe holds": (Streams(stdout=True), "head -c 100000 /dev/zero", (bytes(100000),)),
    "more, which nobody wants": (Streams(), "head -c 100000 /dev/zero", ()),
}


async def talked(processes: Processes, command: Command, streams: Streams) -> tuple[int, tuple[bytes, ...]]:
    async with processes.start(command, NoWalls(), streams) as running:
        files = running.handed()
        if streams.stdin:
            os.write(files[0], b"in")
            os.close(files[0])
        said = [await asyncio.to_thread(whole, file) for file in files[streams.stdin :]]
        return await running.ended(), tuple(said)


def whole(file: int) -> bytes:
    with open(file, "rb") as read:
        return read.read()


@pytest.mark.parametrize("case", STREAMED)
def test_streams_are_handed_over_while_it_runs(processes: Processes, case: str) -> None:
    streams, script, said = STREAMED[case]
    code = 3 if "exit 3" in script else 0
    assert asyncio.run(talked(processes, shell(script), streams)) == (code, said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_it(processes: Processes, number: int) -> None:
    async def scene() -> tuple[int, bytes]:
        async with processes.start(shell("exec sleep 60", seconds=50), NoWalls(), Streams(stdout=True)) as running:
            (said,) = running.handed()
            running.signal(number)
            code = await running.ended()
            return code, await asyncio.to_thread(whole, said)

    assert asyncio.run(scene()) == (-number, b"")


def test_what_is_left_is_ended_and_nothing_stays_open(processes: Processes) -> None:
    async def scene() -> None:
        before = open_files()
        async with processes.start(shell("sleep 60"), NoWalls(), Streams(stdin=True, stdout=True)) as running:
            files = running.handed()
        assert await asyncio.to_thread(whole, files[1]) == b""
        os.close(files[0])
        async with processes.start(shell("sleep 60"), NoWalls(), Streams(True, True, True)):
            pass  # and nobody takes the pipes
        with pytest.raises(FileNotFoundError):
            await talked(processes, replace(shell("x"), binary="/nowhere/at/all"), Streams(True, True, True))
        assert left_open(before) == set()

    others = children()
    asyncio.run(scene())
    assert children() == others


def test_one_that_runs_too_long_is_ended(processes: Processes) -> None:
    assert asyncio.run(talked(processes, shell("sleep 60", seconds=0.2), Streams())) == (-9, ())


ENDINGS: dict[str, tuple[Command, Ending | None]] = {
    "with a code": (shell("echo out; echo err >&2; exit 3"), Ending(3, "")),
    "by a signal": (shell("kill -15 $$"), Ending(-15, "")),
    "too late": (shell("sleep 60", seconds=0.2), Ending(-9, "LIMIT_TIME")),
    "because nobody waits": (shell("sleep 60"), None),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_how_it_ended_is_known_once_it_was_left(processes: Processes, how: str) -> None:
    command, ending = ENDINGS[how]

    async def scene() -> tuple[Ending | None, Ending | None]:
        async with processes.start(command, NoWalls(), Streams()) as running:
            if ending is not None:
                assert await running.ended() == ending.returncode
            early = running.ending
        return early, running.ending

    assert asyncio.run(scene()) == (None, ending)


def test_programs_are_found_by_name_and_by_path(processes: Processes) -> None:
    found = processes.find("sh")
    assert found in (SHELL, os.path.realpath(SHELL))
    assert processes.find(found) == found
    for name in ("no-such-program", "", "./sh", "bin/sh", "/nowhere/at/all"):
        assert processes.find(name) is None


# This machine ---------------------------------------------------------------------------------------------------------

LOCAL = LocalProcesses("/usr/bin:/bin")


def test_only_absolute_directories_of_the_path_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho tool\n")
    monkeypatch.chdir(program.parent)
    for path in ("", ".", ":", "bin", f"{tmp_path}/bin"):
        assert LocalProcesses(path).find("tool") is None  # it is not executable yet
    program.chmod(0o755)
    for path in ("", ".", ":", "bin", "/usr/bin:"):
        assert LocalProcesses(path).find("tool") is None
    assert LocalProcesses(f".:{tmp_path}/bin").find("tool") == str(program)
    (tmp_path / "link").symlink_to(program)
    assert LocalProcesses(str(tmp_path)).find("link") == str(program)
    assert LocalProcesses(str(tmp_path)).find("bin") is None  # a directory
    assert run(LOCAL, Command(str(program), ("tool",), {}, "/", b"", 10, 100)).stdout_bytes == b"tool\n"


def test_the_child_inherits_nothing_open(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        listed = run(LOCAL, shell("ls /proc/self/fd; ls -l /proc/self/fd"))
    assert listed.stdout_bytes.split()[:4] == [b"0", b"1", b"2", b"3"]  # the last is the directory that `ls` reads
    assert str(tmp_path).encode() not in listed.stdout_bytes


def test_the_child_has_a_session_of_its_own_and_plain_signals() -> None:
    finished = run(LOCAL, shell("echo $$; cat /proc/$$/stat; grep -E 'Sig(Blk|Ign)|NoNewPrivs' /proc/self/status"))
    own, stat, *rest = finished.stdout_bytes.splitlines()
    assert stat.split()[4:6] == [own, own]  # its process group and its session
    told = dict(line.split(b":\t") for line in rest)
    known = sum(1 << number - 1 for number in signal.valid_signals())  # the C library keeps two more for itself
    assert (int(told[b"SigBlk"], 16) & known, int(told[b"SigIgn"], 16) & known) == (0, 0)
    assert told[b"NoNewPrivs"] == b"1"


def test_what_stands_between_knows_nothing_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICET_TEST_LEAK", "leak")
    finished = run(LOCAL, shell("cat /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline; ls -l /proc/$PPID/cwd"))
    assert b"leak" not in finished.stdout_bytes
    assert b"programs.supervisor" in finished.stdout_bytes


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_nothing_is_left_behind_whatever_happens() -> None:
    others = children()  # of tests before this one

    async def many() -> None:
        before = open_files()
        commands = [shell("exit 0"), shell("sleep 60", seconds=0.1), shell("yes", seconds=0.1)] * 3
        commands += [replace(shell("x"), binary="/nowhere"), shell("cat", stdin=bytes(1 << 20), output_bytes=10)]
        await asyncio.gather(*(LOCAL.run(command, NoWalls()) for command in commands), return_exceptions=True)
        with pytest.raises(ValueError, match="expected"):
            await LOCAL.run(replace(shell("x"), binary="x"), NoWalls())
        assert left_open(before) == set()

    asyncio.run(many())
    assert children() == others


def test_input_that_is_not_read_blocks_nobody() -> None:
    assert run(LOCAL, shell("exit 4", stdin=bytes(1 << 22))).exit_code == 4


def test_the_host_dies_and_so_does_the_program(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    host = f"""
import asyncio, os
from licet.sandbox.programs.runner import LocalProcesses
from licet.guard.execution import Command

class NoWalls:
    def around(self, command): return command

script = "trap '' TERM HUP INT; echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60; sleep 60"
command = Command("/bin/sh", ("sh", "-c", script), {{"PATH": "/usr/bin:/bin"}}, "/", b"", 50, 100)
asyncio.run(LocalProcesses().run(command, NoWalls()))
"""

    async def scene() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", host)
        await until(mark.exists)
        program = int(mark.read_text())
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await until(lambda: not alive(program))
        return program

    assert not alive(asyncio.run(scene()))


def test_a_supervisor_that_is_killed_is_no_success() -> None:
    try:
        ended = run(LOCAL, shell("kill -9 $PPID; sleep 60"))
    except Unavailable:  # a program may be quicker than its supervisor, which then has not said yet that it runs
        return
    assert (ended.exit_code, ended.timed_out) == (-signal.SIGKILL, False)  # the kernel ends it with its supervisor


async def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_ends_the_program_however_often(tmp_path: Path, times: int) -> None:
    mark, others = tmp_path / "pid", children()

    async def scene() -> None:
        before = open_files()
        script = f"trap '' TERM HUP INT; echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60; sleep 60"
        task = asyncio.ensure_future(LOCAL.run(shell(script), NoWalls()))
        await until(mark.exists)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(int(mark.read_text()))
        assert left_open(before) == set()

    asyncio.run(scene())
    assert children() == others
