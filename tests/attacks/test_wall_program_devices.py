"""A program changes what the devices and /proc of the machine are for everybody else, or reads what they tell of it."""

import os
import shutil
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, both_kinds, needs_namespaces, open_programs
from licet.sandbox.kernel.namespaces import DEVICES, PROC_COVERED

# What is tried with `d`, a device. Its owner is root, who alone could do any of it.
CHANGES = {
    "its mode": "os.chmod(d, os.stat(d).st_mode)",
    "its owner": "os.chown(d, os.getuid(), os.getgid())",
    "its times": "os.utime(d)",
    "its times exactly": "os.utime(d, (1, 1))",
    "its mode by an open file": "os.fchmod(os.open(d, os.O_RDONLY), 0o666)",
    "its owner by an open file": "os.fchown(os.open(d, os.O_RDONLY), os.getuid(), os.getgid())",
    "its times by an open file": "os.utime(os.open(d, os.O_RDWR))",
    "its mode by the name of an open file": "os.chmod('/proc/self/fd/%d' % os.open(d, os.O_RDONLY), 0o666)",
    "an attribute of it": "os.setxattr(d, 'user.x', b'1')",
    "a trusted attribute of it": "os.setxattr(d, 'trusted.x', b'1')",
    "its name": "os.rename(d, d + '-gone')",
    "that it is there": "os.unlink(d)",
}
EACH = """
d = sys.argv[1]
for change in sys.argv[2:]:
    try:
        eval(change)
        print("done")
    except OSError:
        print("refused")
"""


def state(device: str) -> tuple[int, ...]:
    found = os.stat(device)
    return found.st_mode, found.st_uid, found.st_gid


@both_kinds
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.sampled(4)
def test_changing_a_device(kind: str, device: str) -> None:
    before = state(device)
    said = Programs(kind, effect="read_only").python(EACH, device, *CHANGES.values()).split()
    assert dict(zip(CHANGES, said, strict=True)) == dict.fromkeys(CHANGES, "refused")
    assert state(device) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change a device")
def test_without_walls_root_changes_a_device() -> None:
    assert open_programs().python(EACH, "/dev/full", *list(CHANGES.values())[:3]).split() == ["done"] * 3


@both_kinds
def test_devices_still_give_and_take(kind: str) -> None:
    code = """
with open("/dev/null", "wb") as file: file.write(b"x")
with open("/dev/zero", "r+b", 0) as file: print(file.read(2), file.write(b"x"))
print(len(open("/dev/urandom", "rb", 0).read(8)), len(open("/dev/random", "rb", 0).read(8)))
open("/dev/full", "wb", 0).write(b"x")
"""
    assert Programs(kind).python(code).split("\n")[:2] == ["b'\\x00\\x00' 1", "8 8"]
    assert "No space left" in Programs(kind).python(code)


@needs_namespaces
@pytest.mark.parametrize("name", PROC_COVERED)
@pytest.mark.sampled(4)
def test_what_proc_tells_of_the_machine_is_covered(name: str) -> None:
    code = f"""
path = "/proc/{name}"
if not os.path.lexists(path): print("nothing", "missing")
elif os.path.isdir(path): print("nothing" if not os.listdir(path) else os.listdir(path), "there")
else: print("nothing" if not open(path, "rb").read(1) else "something", "there")
"""
    here = "there" if Path("/proc", name).exists() else "missing"
    assert Programs("namespaces").python(code) == f"nothing {here}\n"


PROC_CHANGES = {
    "a setting of the kernel": "open('/proc/sys/kernel/hostname', 'w').write('x')",
    "a key that the kernel obeys": "open('/proc/sysrq-trigger', 'w').write('h')",
    "who is ended first": "open('/proc/self/oom_score_adj', 'w').write('0')",
    "its own name": "open('/proc/self/comm', 'w').write('x')",
    "a mode": "os.chmod('/proc/self/comm', 0o777)",
    "a time": "os.utime('/proc/version')",
    "a mode of what is covered": "os.chmod('/proc/kcore', 0o777)",
    "a time of what is covered": "os.utime('/proc/sys')",
    "a file in what is covered": "open('/proc/sys/new', 'w')",
}


@needs_namespaces
@pytest.mark.parametrize("change", PROC_CHANGES.values(), ids=PROC_CHANGES.keys())
@pytest.mark.sampled(4)
def test_proc_is_read_only(change: str) -> None:
    said = Programs("namespaces").python(f"{change}\nprint('done')")
    assert said.split()[0] in ("OSError", "PermissionError", "FileNotFoundError"), said


@needs_namespaces
def test_proc_is_that_of_its_own_processes() -> None:
    code = "print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()), os.getpid())"
    assert Programs("namespaces").python(code) == "[1, 2] 2\n"


USES = {
    "processors": ("python", "print(len(os.sched_getaffinity(0)) >= 1, os.cpu_count() >= 1)", "True True"),
    "memory": ("python", "print('MemTotal' in open('/proc/meminfo').read())", "True"),
    "load": ("python", "print(len(os.getloadavg()))", "3"),
    "its own files": ("python", "print(os.path.exists('/proc/self/fd/0'), len(os.listdir('/proc/self/task')))",
        "True 1"),
    "node": ("node", "console.log(require('os').cpus().length >= 1, require('os').totalmem() > 0)", "true true"),
    "git": ("git", "--version", "git version"),
    "ps": ("ps", "ax", "PID"),
}  # fmt: skip


@needs_namespaces
@pytest.mark.parametrize(("program", "code", "expected"), USES.values(), ids=USES.keys())
@pytest.mark.sampled(3)
def test_programs_find_in_proc_what_they_need(program: str, code: str, expected: str) -> None:
    programs = Programs("namespaces")
    if program == "python":
        assert programs.python(code) == f"{expected}\n"
        return
    if shutil.which(program, path="/usr/bin:/bin") is None:
        pytest.skip(f"there is no {program} here")
    words = {"node": ("-e", code)}.get(program, (code,))
    ended = programs.run(program, *words)
    assert (expected in ended.stdout_bytes.decode(), ended.stderr_bytes) == (True, b"")
