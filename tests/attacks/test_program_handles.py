"""Attacks on the handle for programs: daemons, floods of output, variables, names on the PATH, times."""

import asyncio
import os
import signal
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from attacks.granted import refused
from attacks.programs import alive, programs, spawned, until
from attacks.walled_programs import Programs, needs_walls
from licet import Refused

# A program leaves a daemon behind: forked twice, in a session of its own, deaf to signals, holding the output open.


# Every generation does what daemons do to get away; the last says who it is.
DAEMON = """
import os, signal, sys, time
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        signal.signal(number, signal.SIG_IGN)
for _ in range(int(sys.argv[2])):
    if os.fork():
        if sys.argv[3] == "stay":
            time.sleep(600)
        os._exit(0)
    os.setsid()
with open(sys.argv[1] + ".new", "w") as mark:
    mark.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
# Lets the daemon start before the program itself ends.
WAIT = "while [ ! -e {mark} ]; do sleep 0.01; done; echo done"


def script(mark: Path, generations: int, parents: str = "go") -> str:
    started = f"{sys.executable} -I -S -c '{DAEMON}' {mark} {generations} {parents} &"
    return f"PATH=/usr/bin:/bin; {started} {WAIT.format(mark=mark)}"


def test_the_daemon_outlives_everything_without_the_guard(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    # With the output in a pipe, even waiting for the program would take as long as the daemon wants.
    process = subprocess.Popen(["/bin/sh", "-c", script(mark, 2)], start_new_session=True, stdout=subprocess.PIPE)
    until(mark.exists)
    until(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.1)
    os.killpg(process.pid, signal.SIGTERM)
    daemon = int(mark.read_text())
    try:
        assert process.wait() == 0
        assert alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
    until(lambda: not alive(daemon))


@pytest.mark.parametrize("generations", [1, 2, 5])
@pytest.mark.sampled(2)
def test_it_is_gone_when_the_program_has_ended(tmp_path: Path, generations: int) -> None:
    mark = tmp_path / "pid"
    finished = spawned(programs("process:exec:sh"), "sh", ["-c", script(mark, generations)])
    assert (finished.exit_code, finished.stdout_bytes, finished.timed_out) == (0, b"done\n", False)
    assert not alive(int(mark.read_text()))


@pytest.mark.parametrize("parents", ["go", "stay"])
@pytest.mark.sampled(1)
def test_it_is_gone_at_the_deadline(tmp_path: Path, parents: str) -> None:
    mark = tmp_path / "pid"
    stubborn = f"trap '' TERM HUP INT QUIT; {script(mark, 3, parents)}; sleep 600; sleep 600"
    for seconds in (0.5, 2, 8, 32):  # longer where the machine has no time to start the daemon before
        mark.unlink(missing_ok=True)
        finished = spawned(programs("process:exec:sh"), "sh", ["-c", stubborn], timeout=seconds)
        assert finished.timed_out
        if finished.stdout_bytes:
            break
    assert finished.stdout_bytes == b"done\n"
    assert not alive(int(mark.read_text()))


def test_one_that_never_stands_still_is_caught(tmp_path: Path) -> None:
    # Each generation lives just long enough to make the next: whoever is named in a list is gone already.
    mark = tmp_path / "pid"
    hydra = f"import os\nopen({str(mark)!r}, 'w').close()\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()"
    source = tmp_path / "hydra.py"
    source.write_text(hydra)
    started = f"PATH=/usr/bin:/bin; {sys.executable} -I -S {source} & {WAIT.format(mark=mark)}"
    finished = spawned(programs("process:exec:sh"), "sh", ["-c", started])
    assert finished.stdout_bytes == b"done\n"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and str(source) in command_line(pid)]


def command_line(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


# A program writes without end: the host's memory grows, or the program blocks and everybody waits ---------------------


LIMIT = 100_000
FLOOD = "head -c 20000000 /dev/zero"


@pytest.mark.parametrize("stream", ["", " >&2", " | tee /dev/stderr"])
@pytest.mark.sampled(2)
def test_a_flood_is_cut_and_the_program_goes_on(stream: str) -> None:
    attack = subprocess.run(["/bin/sh", "-c", FLOOD + stream], capture_output=True, check=True)
    assert len(attack.stdout) + len(attack.stderr) >= 20_000_000

    handle = programs("process:exec:sh", output_bytes=LIMIT)
    tracemalloc.start()
    try:
        finished = spawned(handle, "sh", ["-c", f"PATH=/usr/bin:/bin; {FLOOD}{stream}; exit 7"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finished.exit_code == 7  # it was read to its end
    assert finished.truncated
    assert max(len(finished.stdout_bytes), len(finished.stderr_bytes)) == LIMIT
    assert peak < 30 * LIMIT  # of 20 MB; asyncio, in debug mode, writes out the result once more


def test_a_flood_without_end_ends_and_others_run_meanwhile() -> None:
    handle = programs("process:exec:yes", output_bytes=LIMIT)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    async def scene() -> None:
        ticking = asyncio.ensure_future(tick())
        finished = await handle.spawn("yes", timeout=1)
        ticking.cancel()
        assert finished.timed_out
        assert finished.truncated
        assert len(finished.stdout_bytes) == LIMIT

    asyncio.run(scene())
    assert ticks > 10


# A variable makes the loader, a shell or an interpreter run the caller's code inside a permitted program --------------


@pytest.mark.parametrize("rules", [(), ("env:read:LANG",), ("env:read:*",)], ids=["nothing", "another", "all"])
def test_the_loader_takes_no_orders(tmp_path: Path, rules: tuple[str, ...]) -> None:
    library = str(tmp_path / "evil.so")
    evil = {"LD_PRELOAD": library}
    # The loader looks for the library, and says so as there is none: with one, it would run it.
    assert library in subprocess.run(["/bin/cat"], env=evil, input="", capture_output=True, text=True).stderr

    handle = programs("process:exec:cat", *rules)
    assert refused(handle.spawn("cat", env=evil)) == "ENV_NOT_ALLOWED"


def test_the_host_s_own_environment_does_not_come_along(tmp_path: Path) -> None:
    host = {"LD_PRELOAD": str(tmp_path / "evil.so"), "AWS_SECRET_ACCESS_KEY": "hunter2", "LANG": "C"}
    attack = subprocess.run(["/usr/bin/env"], env=host, capture_output=True, text=True, check=True)
    assert "hunter2" in attack.stdout

    handle = programs("process:exec:env", "env:read:LANG", environ=host)
    finished = spawned(handle, "env")
    assert finished.stdout_bytes == b"LANG=C\n"
    assert finished.stderr_bytes == b""
    assert spawned(programs("process:exec:env", "env:read:*", environ=host), "env").stdout_bytes == b""


@pytest.mark.parametrize("name", ["BASH_ENV", "ENV", "GIT_CONFIG_COUNT", "PYTHONSTARTUP", "LD_AUDIT", "GCONV_PATH"])
def test_other_variables_that_run_code_are_no_different(name: str) -> None:
    handle = programs("process:exec:env", "env:read:LANG", "env:read:*")
    assert refused(handle.spawn("env", env={name: "/tmp/evil"})) == "ENV_NOT_ALLOWED"


def test_a_shell_reads_the_caller_s_file_without_the_guard(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text("echo STOLEN\n")
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    attack = subprocess.run(
        [shell, *(["-c", ":"] if shell == "/bin/bash" else ["-i"])],
        env={"BASH_ENV": str(evil), "ENV": str(evil)},
        input="",
        capture_output=True,
        text=True,
    )
    assert "STOLEN" in attack.stdout
    handle = programs(f"process:exec:{shell}")
    assert refused(handle.spawn(shell, ["-c", ":"], env={"BASH_ENV": str(evil)})) == "ENV_NOT_ALLOWED"


# A variable or a later file on the PATH makes a permitted name mean another program -----------------------------------


def planted(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\necho STOLEN\n")
    program.chmod(0o755)
    return program


def test_a_variable_of_the_caller_does_not_choose_the_program(tmp_path: Path) -> None:
    planted(tmp_path, "cat")
    evil = {"PATH": str(tmp_path)}
    attack = subprocess.run(
        ["env", "cat"], env=evil | {"PATH": f"{tmp_path}:/usr/bin"}, capture_output=True, check=True
    )
    assert attack.stdout == b"STOLEN\n"

    assert refused(programs("process:exec:cat").spawn("cat", env=evil)) == "ENV_NOT_ALLOWED"

    # Even where the variable may be set, it is the child's alone: the program was found before.
    handle = programs("process:exec:cat", "env:read:PATH")
    assert spawned(handle, "cat", stdin=b"input", env=evil).stdout_bytes == b"input"


def test_a_program_that_appears_on_the_path_later_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    handle = programs("process:exec:cat", path=path)
    planted(tmp_path, "cat")
    assert subprocess.run(["cat"], input=b"", capture_output=True, check=True).stdout == b"STOLEN\n"

    assert spawned(handle, "cat", stdin=b"input").stdout_bytes == b"input"


def test_a_program_in_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, "own-tool")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", ":/usr/bin"):
        monkeypatch.setenv("PATH", path)
        if path == ".":
            assert subprocess.run(["own-tool"], capture_output=True, check=True).stdout == b"STOLEN\n"
        handle = programs("process:exec:own-tool", path=os.environ["PATH"])
        assert refused(handle.spawn("own-tool")) == "BACKEND_MISSING"


# A tool asks for a program to run until a time that never comes -------------------------------------------------------


TIMES: list[Any] = ["nan", "inf", "-nan", "1e999", float("nan"), float("inf"), -1, 0, True, "5", Decimal("NaN")]


@needs_walls
@pytest.mark.parametrize("timeout", TIMES, ids=repr)
def test_a_program_whose_time_is_no_time_is_refused(timeout: Any) -> None:
    programs = Programs("no-namespaces", seconds=5)
    with pytest.raises(Refused) as refused:
        programs.run("true", timeout=timeout)
    assert refused.value.code == "INPUT_INVALID"
    assert programs.grant.ended == ()
