"""Tries whether walls hold: builds each in a child, does the forbidden thing before and behind it, and compares.

Runs as a program of its own (see `probe`), because only a process without threads may fork and go on. It prints one
line of JSON, and believes nothing that the kernel says about itself.
"""

import errno
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from licet.sandbox import hardening, kernel, landlock, namespaces, seccomp, syscalls

if sys.platform != "win32":
    import resource


class World(NamedTuple):
    """What there is outside of the walls to be reached."""

    file: str  # one that can be read and written
    folder: str  # where it is
    port: int  # where somebody listens
    parent: int


class Attempt(NamedTuple):
    """One forbidden thing: which wall stands against it, what it is called, how to build, and how to do it."""

    wall: str
    about: str
    build: Callable[[World], None]
    do: Callable[[World], object]
    needs_abi: int = 1


def _landlock(world: World) -> None:
    hardening.no_new_privs()
    landlock.restrict(landlock.ruleset([]))


def _filter(world: World) -> None:
    hardening.no_new_privs()
    seccomp.install(seccomp.program(own_pid=os.getpid()))


def _hardened(world: World) -> None:
    limits = hardening.Limits(memory_bytes=64 << 20, open_files=_FILES, file_bytes=1 << 10)
    hardening.harden(limits=limits, keep_fds=(0, 1, 2, _REPORT), parent=world.parent)


def _namespaces(world: World) -> None:
    namespaces.enter()


def _private_root(world: World) -> None:
    namespaces.enter(processes=False)
    namespaces.private_root(["/usr"], [])


def _raw(name: str, *arguments: int | bytes | None) -> int:
    return kernel.syscall(name, syscalls.NUMBERS[kernel.machine()][name], *arguments)


def _connect(world: World) -> None:
    with socket.socket() as trying:
        trying.connect(("127.0.0.1", world.port))


def _write(world: World) -> None:
    with open(world.file, "a") as file:
        file.write("x")


def _execute(world: World) -> None:
    with suppress(FileNotFoundError):  # how far a call comes that nothing stops
        os.execv(world.file + ".missing", ["missing"])  # noqa: S606 - this is what is tried


def _fork(world: World) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def _see_parent(world: World) -> None:
    """Signal the parent from a child, which is where a namespace of processes begins."""
    child = os.fork()
    if not child:
        try:
            os.kill(world.parent, 0)
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError(errno.ESRCH, "the parent is not there")


def _many_bytes(world: World) -> None:
    # Private memory that is never touched: it is asked for, which is what is limited, and costs nothing.
    mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


def _many_files(world: World) -> None:
    held = []
    try:
        held = [os.dup(1) for _ in range(64)]
    finally:
        for fd in held:
            os.close(fd)


def _large_file(world: World) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(world.file, "ab", buffering=0) as file:
        if file.write(bytes(1 << 12)) < 1 << 12:
            raise OSError(errno.EFBIG, "cut")


def _more_again(world: World) -> None:
    """Set a limit to what is more than the wall left, and less than there was."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES + 1, _FILES + 1))
    except ValueError as wrong:
        raise OSError(errno.EPERM, str(wrong)) from None


def _new_file(world: World) -> None:
    os.close(os.open(world.file + "-new", os.O_CREAT | os.O_WRONLY, 0o600))


def _limits_of_parent(world: World) -> None:
    _raw("prlimit64", world.parent, resource.RLIMIT_NOFILE, None, None)


_REPORT, _INHERITED = 3, 9
_FILES = 32

ATTEMPTS = (
    Attempt("landlock", "read a file", _landlock, lambda world: os.close(os.open(world.file, os.O_RDONLY))),
    Attempt("landlock", "write to a file", _landlock, _write),
    Attempt("landlock", "create a file", _landlock, _new_file),
    Attempt("landlock", "list a directory", _landlock, lambda world: os.listdir(world.folder)),
    Attempt("landlock", "connect over TCP", _landlock, _connect, 4),
    Attempt("landlock", "signal another process", _landlock, lambda world: os.kill(world.parent, 0), 6),
    Attempt("seccomp", "open a socket", _filter, lambda world: socket.socket().close()),
    Attempt("seccomp", "open a unix socket", _filter, lambda world: socket.socket(socket.AF_UNIX).close()),
    Attempt("seccomp", "start a program", _filter, _execute),
    Attempt("seccomp", "make a process", _filter, _fork),
    Attempt("seccomp", "signal another process", _filter, lambda world: os.kill(world.parent, 0)),
    Attempt("seccomp", "change the mode of a file", _filter, lambda world: os.chmod(world.file, 0o600)),
    Attempt("seccomp", "change the limits of another", _filter, _limits_of_parent),
    Attempt("seccomp", "make a file without a name", _filter, lambda world: os.close(_raw("memfd_create", b"m", 0))),
    Attempt("hardening", "use an inherited file", _hardened, lambda world: os.fstat(_INHERITED)),
    Attempt("hardening", "take too much memory", _hardened, _many_bytes),
    Attempt("hardening", "open too many files", _hardened, _many_files),
    Attempt("hardening", "write too large a file", _hardened, _large_file),
    Attempt("hardening", "raise a limit again", _hardened, _more_again),
    Attempt("namespaces", "reach the network of the host", _namespaces, _connect),
    Attempt("namespaces", "see a process of the host", _namespaces, _see_parent),
    Attempt("private root", "look at a file", _private_root, lambda world: os.stat(world.file)),
)  # fmt: skip


def outcome(attempt: Attempt, world: World) -> str:
    """Say in a word how an attempt ended: `holds`, `holds already`, or what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(writing, _REPORT)
            os.dup2(1, _INHERITED)
            said = _tried(attempt, world)
        except BaseException as wrong:  # whatever it is, the wall was not seen to hold
            said = f"{type(wrong).__name__}: {wrong}"
        os.write(_REPORT, said.encode()[:500])
        os._exit(0)
    os.close(writing)
    try:
        said = os.read(reading, 500).decode(errors="replace")
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    return said or "the attempt ended without an answer"


def _tried(attempt: Attempt, world: World) -> str:
    held = "holds"
    try:
        attempt.do(world)
    except PermissionError:
        # Inside another sandbox. What it refuses this process it refuses to all that this process starts; the wall is
        # built all the same, and others of its attempts tell whether it stands.
        held = "holds already"
    except OSError as wrong:
        return f"could not be tried: {wrong}"
    try:
        attempt.build(world)
    except OSError as wrong:
        return f"cannot be built: {wrong}"
    try:
        attempt.do(world)
    except OSError:
        return held
    return "does not hold"


@contextmanager
def _folder() -> Iterator[str]:
    """A folder of our own. `tempfile` does more, and takes a tenth of all the time here to load."""
    folder = os.path.join(os.environ["TMPDIR"], f"licet-{os.urandom(8).hex()}")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def main() -> None:
    """Make all attempts and print what came of them."""
    signal.alarm(30)  # nothing waits for longer than that
    version = landlock.abi()
    found: list[dict[str, Any]] = []
    with _folder() as folder, ExitStack() as closed_later:
        path = os.path.join(folder, "file")
        port = 1
        with suppress(PermissionError):  # another sandbox around this; it is then the one that stops connections
            port = closed_later.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for attempt in ATTEMPTS:
            if version and version < attempt.needs_abi:
                continue
            with open(path, "w") as file:  # each finds the same
                file.write("text")
            world = World(path, folder, port, os.getpid())
            found.append({"wall": attempt.wall, "about": attempt.about, "outcome": outcome(attempt, world)})
    json.dump({"landlock": version, "attempts": found}, sys.stdout)
    sys.stdout.flush()
