"""A program with nothing granted changes the files behind its streams: the operator's, whom it was started by."""

import fcntl
import os
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import PYTHON, both_kinds

HOST = Path(__file__).with_name("attached_host.py")
BEGIN = """
import ctypes, fcntl, os, struct, sys, termios
n = {}
def again(flags): return os.open(f"/proc/self/fd/{{n}}", flags)
"""
# What is tried with `n`, the number of a stream; each is one line of Python.
ATTACKS = {
    "its mode": "os.fchmod(n, 0o777)",
    "its mode by name": "os.chmod(f'/proc/self/fd/{n}', 0o777)",
    "its mode by a copy": "os.fchmod(os.dup(n), 0o777)",
    "its mode by another name": "os.chmod(f'/dev/fd/{n}', 0o777)",
    "its mode, opened again": "os.fchmod(again(os.O_RDWR), 0o777)",
    "its owner": "os.fchown(n, os.getuid(), os.getgid())",
    "its times": "os.utime(n)",
    "its times exactly": "os.utime(n, (1, 1))",
    "its times by name": "os.utime(f'/proc/self/fd/{n}', (1, 1))",
    "an attribute": "os.setxattr(n, 'user.licet', b'x')",
    "its flags": "fcntl.ioctl(n, 0x40086602, struct.pack('l', 0x80))",  # FS_IOC_SETFLAGS, never to be dumped
    "its size": "os.ftruncate(n, 1)",
    "its size, opened again": "os.truncate(again(os.O_RDWR), 1)",
    "what it holds": "os.pwrite(n, b'X', 0)",
    "what it holds, although only added to": (
        "fcntl.fcntl(n, fcntl.F_SETFL, fcntl.fcntl(n, fcntl.F_GETFL) & ~os.O_APPEND), os.pwrite(n, b'X', 0)"
    ),
    "what it holds, opened again": "os.pwrite(again(os.O_RDWR), b'X', 0)",
    "its room": "os.posix_fallocate(n, 0, 1 << 16)",
    "how others wait for it": "os.set_blocking(n, False)",
    "where others read and write": "os.lseek(n, 3, os.SEEK_SET)",
    "who may lock it": "fcntl.flock(n, fcntl.LOCK_EX)",
}


def state(file: int) -> tuple[Any, ...]:
    """All that can be told of an open file but when it was read last."""
    found = os.fstat(file)
    told: list[Any] = [found.st_mode, found.st_uid, found.st_gid, fcntl.fcntl(file, fcntl.F_GETFL)]
    if os.isatty(file):  # its times are when somebody typed
        return (*told, found.st_mtime != 1, termios.tcgetattr(file))
    told += [found.st_mtime_ns, found.st_ctime_ns]
    if os.path.isfile(f"/proc/self/fd/{file}"):
        flags = bytearray(8)
        try:
            fcntl.ioctl(file, 0x80086601, flags)  # FS_IOC_GETFLAGS
        except OSError:
            flags = bytearray()
        whole = Path(f"/proc/self/fd/{file}").read_bytes()
        told += [os.lseek(file, 0, os.SEEK_CUR), found.st_size, found.st_blocks, bytes(flags), whole]
        told.append([os.getxattr(file, name) for name in os.listxattr(file)])
    return tuple(told)


def attacked(kind: str, stream: int, file: int, *attacks: str) -> None:
    """Run a program with a file as one of its streams; the others are nothing."""
    tries = "".join(f"try: {attack}\nexcept OSError: pass\n" for attack in attacks)
    code = f"{BEGIN.format(stream)}{tries}"
    command = [PYTHON, "-I", "-S", "-c", code] if kind == "open" else [sys.executable, str(HOST), kind, code]
    nothing = subprocess.DEVNULL
    given = [nothing, nothing, nothing]
    given[stream] = file
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOST.parent.parent), *filter(None, sys.path)])}
    ended = subprocess.run(
        command, stdin=given[0], stdout=given[1], stderr=given[2], env=environment, timeout=600, check=False
    )
    assert ended.returncode == 0


FLAGS = {"<": os.O_RDONLY, "<>": os.O_RDWR, ">": os.O_WRONLY, ">>": os.O_WRONLY | os.O_APPEND}


@contextmanager
def regular(where: Path, how: str) -> Iterator[int]:
    path = where / "file"
    path.write_text("the operator's text\n")
    path.chmod(0o640)
    file = os.open(path, FLAGS[how])
    try:
        yield file
    finally:
        os.close(file)


# Where an attack can be seen to work, if it is not on a file that is opened for reading and writing.
OTHERWISE = {"what it holds, although only added to": (1, ">>")}
NEVER_SEEN = {"its flags", "an attribute", "who may lock it"}  # not on every file system, and not from outside


@both_kinds
@pytest.mark.parametrize("what", ATTACKS)
@pytest.mark.sampled(1)
def test_changing_the_file_behind_a_stream(kind: str, what: str, tmp_path: Path) -> None:
    stream, how = OTHERWISE.get(what, (0, "<>"))
    for walls in ("open", kind):
        with regular(tmp_path, how) as file:
            before = state(file)
            attacked(walls, stream, file, ATTACKS[what])
            changed = state(file) != before
        assert changed is (walls == "open") or (walls == "open" and what in NEVER_SEEN), walls


@contextmanager
def pipe(writing: bool) -> Iterator[int]:
    ends = os.pipe()
    try:
        if not writing:
            os.set_blocking(ends[1], False)
        yield ends[writing]
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def connection() -> Iterator[int]:
    near, far = socket.socketpair()
    with near, far:
        far.shutdown(socket.SHUT_WR)
        yield near.fileno()


@contextmanager
def terminal() -> Iterator[int]:
    near, far = os.openpty()
    os.fchmod(far, 0o620)
    try:
        yield far
    finally:
        os.close(near)
        os.close(far)


@contextmanager
def fifo(where: Path) -> Iterator[int]:
    os.mkfifo(where / "fifo", 0o640)
    file = os.open(where / "fifo", os.O_RDWR)
    try:
        yield file
    finally:
        os.close(file)


STREAMS: dict[str, tuple[int, Callable[[Path], Any]]] = {
    "input from a file": (0, lambda where: regular(where, "<")),
    "input from a file that can be written": (0, lambda where: regular(where, "<>")),
    "output to a file": (1, lambda where: regular(where, ">")),
    "output to the end of a file": (1, lambda where: regular(where, ">>")),
    "errors to a file": (2, lambda where: regular(where, ">>")),
    "output to a pipe": (1, lambda where: pipe(True)),
    "input from a connection": (0, lambda where: connection()),
    "output to a named pipe": (1, fifo),
    "input from a terminal": (0, lambda where: terminal()),
    "output to a terminal": (1, lambda where: terminal()),
    "errors to a terminal": (2, lambda where: terminal()),
}


@both_kinds
@pytest.mark.parametrize(("stream", "opened"), STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.sampled(2)
def test_changing_whatever_is_behind_a_stream(
    kind: str, stream: int, opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    with opened(tmp_path) as file:
        before = state(file)
        attacked(kind, stream, file, *ATTACKS.values())
        assert state(file) == before


@both_kinds
@pytest.mark.parametrize(
    "attack",
    [
        "fcntl.ioctl(n, 0x5412, b'x')",  # TIOCSTI, which types
        "fcntl.ioctl(n, 0x541C, b'\\x02')",  # TIOCLINUX, which pastes
        "fcntl.ioctl(n, 0x5414, struct.pack('HHHH', 3, 3, 0, 0))",  # TIOCSWINSZ, which resizes
        "fcntl.ioctl(n, 0x540E, 1)",  # TIOCSCTTY, which takes it for itself
        "fcntl.ioctl(n, 0x5423, struct.pack('i', 2))",  # TIOCSETD, which has another part of the kernel interpret it
        "fcntl.ioctl(n, 0x5437, 0)",  # TIOCVHANGUP, which takes it from everybody
        "termios.tcsetattr(n, 0, [*termios.tcgetattr(n)[:3], 0, *termios.tcgetattr(n)[4:]])",  # undone at the end
    ],
)
@pytest.mark.sampled(1)
def test_doing_something_to_the_terminal(kind: str, attack: str) -> None:
    with terminal() as file:
        termios.tcsetwinsize(file, (24, 80))
        before = state(file)
        attacked(kind, 0, file, attack)
        assert (state(file), termios.tcgetwinsize(file)) == (before, (24, 80))
        os.set_blocking(file, False)
        with pytest.raises(BlockingIOError):  # nothing was typed
            os.read(file, 10)
