"""A program leaves a daemon behind: forked twice, in a session of its own, deaf to signals, holding the output open."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.programs import alive, programs, spawned, until

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
