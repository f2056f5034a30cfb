"""Programs turn against other processes and the kernel, and use up what there is."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.programs import alive, until
from attacks.walled_programs import CANARY, Programs, both_kinds, needs_namespaces, open_programs, place

# A program turns against other processes: it signals, traces, reads and outlives them ---------------------------------


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
    "behind all others": "os.sched_setscheduler(int(sys.argv[1]), 5, os.sched_param(0)); print('CAN' + 'ARY')",
    "its processors": "os.sched_setaffinity(int(sys.argv[1]), os.sched_getaffinity(0)); print('CAN' + 'ARY')",
}


@both_kinds
@pytest.mark.parametrize("code", READS.values(), ids=READS.keys())
@pytest.mark.sampled(4)
def test_looking_into_another_process(kind: str, code: str, victim: str) -> None:
    if kind == "no-namespaces" and "cmdline" in code:
        pytest.skip("command lines are seen without namespaces, which the page says")
    assert CANARY in open_programs("fs:read:*").python(code, victim)
    assert CANARY not in Programs(kind, ("fs:read:*",)).python(code, victim)


@both_kinds
def test_how_another_process_is_scheduled_stays(kind: str) -> None:
    """The call to schedule a thread as all others are succeeds, and does nothing."""
    code = "os.sched_setscheduler(int(sys.argv[1]), os.SCHED_OTHER, os.sched_param(0)); print('set')"
    for walls, expected in (("open", os.SCHED_OTHER), (kind, os.SCHED_BATCH)):
        with subprocess.Popen(["sleep", "60"]) as process:
            os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))
            assert Programs(walls).python(code, str(process.pid)) == "set\n"
            assert os.sched_getscheduler(process.pid) == expected
            process.kill()


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


# A program uses up what there is: processes, memory, time, files, output, scratch -------------------------------------


FORKS = """
import time
made = 0
for _ in range(120):
    try:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
    except OSError as e:
        break
    made += 1
time.sleep(float(sys.argv[1]))
print('made', made, flush=True)
os._exit(0)
"""


@pytest.mark.who
@both_kinds
def test_a_fork_bomb(kind: str) -> None:
    if os.getuid() == 0:
        pytest.skip("the kernel does not hold root to a number of processes; see below, and the run as another user")
    assert "made 120" in open_programs().python(FORKS, "0")
    made = int(Programs(kind, limits={"processes": 30}).python(FORKS, "0").split()[1])
    assert 10 < made <= 40  # the kernel counts all tasks of the user: whichever of them end meanwhile leave room


@needs_namespaces
@pytest.mark.skipif(os.getuid() != 0, reason="the kernel holds everybody else to a number of processes; see above")
def test_a_fork_bomb_of_root_is_ended() -> None:
    walled = Programs("namespaces", limits={"processes": 30})
    assert "made 120" in open_programs().python(FORKS, "0")
    assert "made" not in walled.python(FORKS, "20")  # it is ended before it says so, however late somebody counts
    assert "made 20" in walled.python(FORKS.replace("120", "20"), "1")


@both_kinds
@pytest.mark.sampled(1)
def test_memory(kind: str) -> None:
    code = "x = bytearray(600 << 20); print('GOT', len(x))"
    assert "GOT" in open_programs().python(code)
    assert "MemoryError" in Programs(kind, limits={"memory_mb": 200}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_time_of_the_processor(kind: str) -> None:
    ended = Programs(kind, limits={"cpu_seconds": 1}, seconds=20.0).run("sh", "-c", "while :; do :; done")
    assert (ended.exit_code, ended.timed_out) in ((-24, False), (-9, False))


@both_kinds
@pytest.mark.sampled(1)
def test_open_files(kind: str) -> None:
    code = "x = []\nwhile True: x.append(os.dup(0))" if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64 else "1/0"
    assert "Too many open files" in Programs(kind, limits={"open_files": 32}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_the_size_of_a_file(kind: str) -> None:
    code = "with open(os.environ['TMPDIR'] + '/x', 'wb') as f: f.write(bytes(8 << 20))\nprint('ALL')"
    assert "ALL" in Programs(kind, limits={"file_mb": 16}).python(code)
    assert "ALL" not in Programs(kind, limits={"file_mb": 4}).python(code)


@needs_namespaces
def test_scratch_is_full_at_some_point() -> None:
    code = "for i in range(8): open(os.environ['TMPDIR'] + f'/{i}', 'wb').write(bytes(1 << 20))\nprint('ALL')"
    assert "No space left" in Programs("namespaces", limits={"scratch_mb": 4}).python(code)
    assert "ALL" in Programs("namespaces", limits={"scratch_mb": 16}).python(code)


@both_kinds
@pytest.mark.sampled(1)
def test_a_flood_of_output(kind: str) -> None:
    for seconds in (0.3, 2.0, 8.0, 32.0):  # longer where the machine has no time to start it before
        ended = Programs(kind, output_bytes=1000, seconds=seconds).run("yes")
        if ended.stdout_bytes:
            break
    assert (len(ended.stdout_bytes), ended.truncated, ended.timed_out) == (1000, True, True)


@both_kinds
def test_scratch_is_not_shared_and_does_not_stay(kind: str) -> None:
    leave = "open(os.environ['TMPDIR'] + '/left', 'w').write('x'); print(os.listdir(os.environ['TMPDIR']))"
    walled = Programs(kind)
    assert walled.python(leave) == "['left']\n"
    assert walled.python("print(os.listdir(os.environ['TMPDIR']))") == "[]\n"


# A program asks the kernel for ways around its walls ------------------------------------------------------------------


CALL = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
IF_DONE = "print('DO' + 'NE' if {} else os.strerror(ctypes.get_errno()))"
ATTEMPTS = {
    "a user namespace": CALL + IF_DONE.format("libc.unshare(0x10000000) == 0"),
    "a child in a namespace": CALL + IF_DONE.format("libc.syscall(56, 0x10000011, 0, 0, 0, 0) >= 0"),
    "io_uring": CALL + IF_DONE.format("libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0"),
    "keys of the kernel": CALL + IF_DONE.format("libc.syscall(248, b'user', b'licet-x', b'y', 1, -2) > 0"),
    "much shared memory": CALL + IF_DONE.format("libc.shmctl(libc.shmget(0, 1 << 20, 0o1600), 0, None) == 0"),
    "semaphores": CALL + IF_DONE.format("libc.semctl(libc.semget(0, 1, 0o1600), 0, 0) == 0"),
    "BPF": CALL + IF_DONE.format("libc.syscall(321, 0, ctypes.create_string_buffer(120), 120) >= -0"),
    "a name for a file handle": CALL
    + "b = (ctypes.c_uint * 40)(128)\n"
    + IF_DONE.format("libc.name_to_handle_at(-100, b'/usr', b, ctypes.byref(ctypes.c_int()), 0) == 0"),
    "the time of the host": CALL + IF_DONE.format("libc.adjtimex(ctypes.create_string_buffer(208)) >= 0"),
    "dumps of its parent": CALL + IF_DONE.format("libc.syscall(312, os.getpid(), os.getppid(), 2, 0, 0) >= 0"),
    "a file that signals somebody": "import fcntl; r, w = os.pipe(); fcntl.fcntl(r, 8, 1); print('DO' + 'NE')",
}
# Not given to tests either on most machines.
_RARE = ("BPF", "keys of the kernel", "io_uring", "a user namespace", "a child in a namespace")


@pytest.mark.who
@both_kinds
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.sampled(6)
def test_calls_that_lead_around_walls(kind: str, name: str) -> None:
    code = ATTEMPTS[name]
    if "DONE" not in open_programs().python(code):
        assert name in _RARE or os.getuid(), name
        pytest.skip("this machine refuses it to everybody")
    assert "DONE" not in Programs(kind).python(code)


@both_kinds
def test_shared_memory_is_that_of_the_run_and_little(kind: str) -> None:
    """System V shared memory has numbers that every process of a machine knows."""
    libc, key = ctypes.CDLL(None, use_errno=True), 0x4C000000 | os.getpid()
    number = libc.shmget(key, 4096, 0o1666)
    assert number >= 0
    try:
        reach = CALL + f"print(libc.shmget({key}, 0, 0) >= 0)"
        assert (open_programs().python(reach), Programs(kind).python(reach)) == ("True\n", "False\n")
    finally:
        libc.shmctl(number, 0, None)
    fill = CALL + "n = 0\nwhile libc.shmget(0, 60000, 0o1600) >= 0: n += 1\nprint(n)"
    assert int(Programs(kind).python(fill)) <= (4096 if kind == "namespaces" else 0)


@both_kinds
def test_what_the_host_has_open_is_not_inherited(kind: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    held = os.open(where / "out" / "secret", os.O_RDONLY)
    os.set_inheritable(held, True)
    code = """
for number in range(3, 200):
    try:
        print(number, os.pread(number, 100, 0) if os.fstat(number) else '')
    except OSError as e:
        if e.errno != 9: print(number, e)
"""
    try:
        assert CANARY not in Programs(kind).python(code)
        assert Programs(kind).python(code) == ""
    finally:
        os.close(held)


@both_kinds
@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "LD_AUDIT"])
@pytest.mark.sampled(4)
def test_variables_do_not_reach_what_builds_the_walls(kind: str, name: str, tmp_path: Path) -> None:
    # Code that ran before the walls stood would be outside of them.
    (tmp_path / "json.py").write_text("print('DONE')")
    (tmp_path / "socket.py").write_text("print('DONE')")
    value = str(tmp_path / "none.so") if name in ("LD_PRELOAD", "LD_AUDIT") else str(tmp_path)
    rules = (f"env:read:{name}", f"fs:read:{tmp_path}")
    seen = [Programs(walls, rules).run("sh", "-c", f"echo ${name}", env={name: value}) for walls in ("open", kind)]
    assert [one.stdout_bytes.decode().strip() for one in seen] == [value, value]
    # The loader complains once for each program that it starts with the variable: the launcher is not one of them.
    assert seen[1].stderr_bytes.count(b"none.so") == seen[0].stderr_bytes.count(b"none.so")


@pytest.mark.who
@both_kinds
def test_privileges_do_not_come_back(kind: str) -> None:
    status = Programs(kind, ("fs:read:*",)).python("""
import ctypes
names = {1: 'dumpable', 39: 'no_new_privs', 21: 'seccomp'}
print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0), ctypes.CDLL(None).prctl(21, 0, 0, 0, 0))
print([ctypes.CDLL(None).prctl(23, number, 0, 0, 0) for number in range(41)])
""")
    first, bounding = status.splitlines()
    assert first == "1 2"
    if os.getuid() == 0 or kind == "namespaces":
        assert "1" not in bounding.replace("-1", "")
