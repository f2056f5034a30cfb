"""A program asks the kernel for ways around its walls."""

import os
from pathlib import Path

import pytest

from attacks.walled_programs import CANARY, Programs, both_kinds, open_programs, place

CALL = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
IF_DONE = "print('DO' + 'NE' if {} else os.strerror(ctypes.get_errno()))"
ATTEMPTS = {
    "a user namespace": CALL + IF_DONE.format("libc.unshare(0x10000000) == 0"),
    "a child in a namespace": CALL + IF_DONE.format("libc.syscall(56, 0x10000011, 0, 0, 0, 0) >= 0"),
    "io_uring": CALL + IF_DONE.format("libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0"),
    "keys of the kernel": CALL + IF_DONE.format("libc.syscall(248, b'user', b'licet-x', b'y', 1, -2) > 0"),
    "shared memory": CALL + IF_DONE.format("libc.shmget(0x4c696365, 4096, 0o1600) >= 0"),
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
