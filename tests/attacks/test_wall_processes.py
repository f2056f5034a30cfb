"""New processes and programs."""

import ctypes
import glob
import os
import struct
import subprocess

from attacks.behind_walls import Outside, raw, scratch


def become_a_program(target: str) -> None:
    """A tool becomes a program in its own process: nothing is started, only exchanged."""
    os.execv("/bin/sh", ["sh", "-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'"])


def test_become_a_program(outside: Outside) -> None:
    outside.shows(become_a_program, lambda _: outside.changed)


SIGCHLD = 17


def clone3() -> int:
    """A tool makes a process by the newest call for it, whose flags no filter can see."""
    child = raw("clone3", struct.pack("=8Q", 0, 0, 0, 0, SIGCHLD, 0, 0, 0), 64)
    if not child:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_clone3(outside: Outside) -> None:
    outside.shows(clone3, lambda code: code == 7, refused="not implemented", rare=True)


def fork() -> int:
    """A tool makes a process, which would stay when its call is over."""
    child = os.fork()
    if not child:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork(outside: Outside) -> None:
    outside.shows(fork, lambda code: code == 7)


def spawn(target: str) -> None:
    """A tool starts a program by the C library alone (`posix_spawn`): neither `fork` nor Python's subprocess."""
    child = os.posix_spawn("/bin/sh", ["sh", "-c", f"echo after > '{target}'"], {})
    os.waitpid(child, 0)


def test_spawn(outside: Outside) -> None:
    outside.shows(spawn, lambda _: outside.changed)


def start_a_program() -> str:
    """A tool starts a program."""
    return subprocess.run(["/bin/sh", "-c", "echo started"], capture_output=True, text=True, check=True).stdout


def test_start_a_program(outside: Outside) -> None:
    outside.shows(
        start_a_program, lambda said: said == "started\n", refused="PermissionError|PROCESS_NOT_ALLOWED|not permitted"
    )


EMPTY_PATH = 0x1000


def start_by_its_file(target: str) -> None:
    """A tool starts a program by an open file and an empty name (`execveat`)."""
    words = (ctypes.c_char_p * 4)(
        b"sh", b"-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'".encode(), None
    )
    raw(
        "execveat", os.open("/bin/sh", os.O_PATH), b"", ctypes.cast(words, ctypes.c_void_p).value or 0, None, EMPTY_PATH
    )


def test_start_by_its_file(outside: Outside) -> None:
    outside.shows(start_by_its_file, lambda _: outside.changed)


LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", *glob.glob("/lib/ld-musl-*.so.1"))


def start_by_the_loader(target: str) -> None:
    """A tool has the loader of the system start a program, so that the program itself is only read."""
    loader = next(path for path in LOADERS if os.path.exists(path))
    os.execv(loader, [loader, "/bin/sh", "-c", f"echo after > '{target}'; echo; echo '{{\"value\": 1}}'"])


def test_start_by_the_loader(outside: Outside) -> None:
    outside.shows(start_by_the_loader, lambda _: outside.changed)


def start_its_own_program(target: str) -> None:
    """A tool writes a program into its scratch directory and starts it."""
    program = os.open(scratch("program"), os.O_CREAT | os.O_WRONLY, 0o700)
    os.write(program, f"#!/bin/sh\necho after > '{target}'; echo; echo '{{\"value\": 1}}'\n".encode())
    os.close(program)
    os.execv(scratch("program"), ["program"])


def test_start_its_own_program(outside: Outside) -> None:
    outside.shows(start_its_own_program, lambda _: outside.changed)


def start_what_has_no_name() -> str:
    """A tool starts a program that lies in memory alone, past every list of programs."""
    program = raw("memfd_create", b"program", 0)
    with open("/bin/echo", "rb") as file:
        os.write(program, file.read())
    child = os.fork()
    if not child:
        os.execve(program, ["echo"], {})
    return "started" if os.waitpid(child, 0)[1] == 0 else "no"


def test_start_what_has_no_name(outside: Outside) -> None:
    outside.shows(start_what_has_no_name, lambda said: said == "started")


def set_user_id_program() -> str:
    """A tool starts a program that makes whoever starts it root."""
    found = [f"/usr/bin/{name}" for name in ("passwd", "chsh", "su", "sudo", "newgrp", "mount")]
    program = next(path for path in found if os.path.exists(path) and os.stat(path).st_mode & 0o4000)
    subprocess.run([program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=30)
    return "started"


def test_set_user_id_program(outside: Outside) -> None:
    outside.shows(
        set_user_id_program,
        lambda said: said == "started",
        refused="PermissionError|PROCESS_NOT_ALLOWED|not permitted|StopIteration",
        rare=True,
    )


SET_DEATH_SIGNAL, GET_DEATH_SIGNAL = 1, 2


def outlive_the_host() -> int:
    """A tool takes back that its process dies with its parent."""
    now = ctypes.create_string_buffer(4)
    raw("prctl", SET_DEATH_SIGNAL, 0, 0, 0, 0)
    raw("prctl", GET_DEATH_SIGNAL, now, 0, 0, 0)
    return int.from_bytes(now.raw, "little")


def test_outlive_the_host(outside: Outside) -> None:
    outside.shows(outlive_the_host, lambda signal: signal == 0)
