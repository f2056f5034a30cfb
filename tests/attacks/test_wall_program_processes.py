"""A program turns against other processes: it signals, traces, reads and outlives them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.programs import alive, until
from attacks.walled_programs import CANARY, Programs, both_kinds, open_programs


@pytest.fixture
def victim() -> Iterator[str]:
    """A process of the same user, with a secret in its environment and its memory."""
    code = "import sys, time; secret = 'CAN' + 'ARY'; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], env={"TOKEN": CANARY}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield str(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()


READS = {
    "environ": "print(open(f'/proc/{sys.argv[1]}/environ').read())",
    "mem": """
for line in open(f'/proc/{sys.argv[1]}/maps'):
    where, flags = line.split()[:2]
    if flags.startswith('rw') and ('heap' in line or 'stack' in line):
        first, last = (int(x, 16) for x in where.split('-'))
        with open(f'/proc/{sys.argv[1]}/mem', 'rb') as memory:
            memory.seek(first)
            if b'CANARY' in memory.read(last - first): print('CAN' + 'ARY')
""",
    "process_vm_readv": """
import ctypes
class V(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
for line in open(f'/proc/{sys.argv[1]}/maps'):
    if 'stack' in line:
        first, last = (int(x, 16) for x in line.split()[0].split('-'))
        buffer = ctypes.create_string_buffer(last - first)
        mine, theirs = V(ctypes.addressof(buffer), last - first), V(first, last - first)
        libc.process_vm_readv(int(sys.argv[1]), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
        if b'CANARY' in buffer.raw: print('CAN' + 'ARY')
""",
    "ptrace": """
import ctypes
if ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) == 0: print('CAN' + 'ARY')
""",
    "pidfd_getfd": """
import ctypes
if ctypes.CDLL(None).syscall(438, os.pidfd_open(int(sys.argv[1])), 1, 0) >= 0: print('CAN' + 'ARY')
""",
    "cmdline": "print('CAN' + 'ARY' if 'secret' in open(f'/proc/{sys.argv[1]}/cmdline').read() else '')",
    "a file that it has open": "print('CAN' + 'ARY' if os.readlink(f'/proc/{sys.argv[1]}/fd/1') else '')",
    "its root": "print('CAN' + 'ARY' if os.listdir(f'/proc/{sys.argv[1]}/root/etc') else '')",
    "its priority": "os.setpriority(0, int(sys.argv[1]), 19); print('CAN' + 'ARY')",
    "its limits": "import resource; resource.prlimit(int(sys.argv[1]), 7, (9, 9)); print('CAN' + 'ARY')",
    "its processors": "os.sched_setaffinity(int(sys.argv[1]), os.sched_getaffinity(0)); print('CAN' + 'ARY')",
}


@both_kinds
@pytest.mark.parametrize("code", READS.values(), ids=READS.keys())
@pytest.mark.sampled(4)
def test_looking_into_another_process(kind: str, code: str, victim: str) -> None:
    assert CANARY in open_programs("fs:read:*").python(code, victim)
    assert CANARY not in Programs(kind, ("fs:read:*",)).python(code, victim)


SIGNALS = {
    "kill": "os.kill(int(sys.argv[1]), 9)",
    "pidfd_send_signal": "import signal; signal.pidfd_send_signal(os.pidfd_open(int(sys.argv[1])), 9)",
    "tgkill": "import ctypes; ctypes.CDLL(None).syscall(234, int(sys.argv[1]), int(sys.argv[1]), 9)",
    "sigqueue": "import ctypes; ctypes.CDLL(None).sigqueue(int(sys.argv[1]), 9, 0)",
}


@both_kinds
@pytest.mark.parametrize("code", SIGNALS.values(), ids=SIGNALS.keys())
@pytest.mark.sampled(4)
def test_ending_another_process(kind: str, code: str) -> None:
    if "234" in code and os.uname().machine != "x86_64":
        pytest.skip("the number is that of x86_64")
    for walls in ("open", kind):
        with subprocess.Popen(["sleep", "60"]) as process:
            Programs(walls).python(code, str(process.pid))
            if walls == "open":
                assert process.wait(60) == -9
            else:
                assert process.poll() is None
            process.kill()


@both_kinds
def test_killing_everything_reaches_itself_alone(kind: str) -> None:
    # Without walls this would end the test too: it is not shown.
    with subprocess.Popen(["sleep", "60"]) as process:
        Programs(kind).run("sh", "-c", "kill -9 -1; kill -9 1; kill -9 $PPID; echo on")
        assert process.poll() is None
        process.kill()


DAEMON = """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + '.pid', 'w') as own: own.write(str(os.getpid()))
        end = time.time() + 30
        while time.time() < end:
            with open(sys.argv[1], 'a') as mark: mark.write('.')
            time.sleep(0.02)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


def grows(mark: Path) -> bool:
    before = mark.stat().st_size if mark.exists() else 0
    time.sleep(0.3)
    return (mark.stat().st_size if mark.exists() else 0) > before


@both_kinds
@pytest.mark.parametrize("stays", ["0", "60"], ids=["leaves a daemon", "and runs past its deadline"])
@pytest.mark.sampled(2)
def test_a_daemon_does_not_outlive_its_call(kind: str, stays: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = subprocess.Popen([sys.executable, "-I", "-c", f"import os, sys\n{DAEMON}", str(mark), "0"])
    process.wait()
    until(lambda: grows(mark))  # without anybody to stop it
    os.kill(int(mark.with_suffix(".pid").read_text()), signal.SIGKILL)
    until(lambda: not grows(mark))
    mark.unlink()
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    for seconds in (0.5, 2.0, 8.0, 32.0):  # longer where the machine has no time to start the daemon before
        Programs(kind, rules, seconds=seconds).python(DAEMON, str(mark), stays)
        if mark.exists() and mark.stat().st_size:
            break
    assert mark.stat().st_size > 0
    assert not grows(mark)


@both_kinds
def test_nothing_is_left_of_a_program(kind: str) -> None:
    before = set(_children())
    for seconds in (0.3, 1.0, 5.0, 30.0):  # longer where the machine has no time to start them before
        ended = Programs(kind, seconds=seconds).run("sh", "-c", "sleep 50 & sleep 60 & echo up; wait")
        assert ended.timed_out
        if ended.stdout_bytes:
            break
    assert ended.stdout_bytes == b"up\n"
    until(lambda: set(_children()) <= before)
    assert not [child for child in _children() if child not in before and alive(child)]


def _children() -> list[int]:
    return [int(one) for one in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
