"""Tests whether walls hold: tries forbidden things in a child without walls and in a child behind each wall.

Runs in an interpreter of its own (see `probe`), because only a process without threads may fork safely. The result is
one line of JSON. What the kernel reports about its own features is not used.
"""

import array  # noqa: F401 - `send_fds` imports it, which is too late behind walls
import errno
import json
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from typing import NamedTuple

from licet.sandbox import scratch
from licet.sandbox.kernel import (
    connections,
    hardening,
    landlock,
    metadata,
    namespaces,
    notifications,
    seccomp,
    shared_sockets,
    signals,
    system_calls,
)
from licet.sandbox.kernel.counted_entries import count_entry
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.kernel.file_rights import FileRights
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import ATTEMPT_FILES, ATTEMPT_SECONDS

if sys.platform != "win32":
    import resource


class World(NamedTuple):
    """Things outside of the walls that attempts try to reach."""

    file: str  # one that can be read and written
    folder: str  # where it is
    port: int  # with a listener; and a unix socket with one is in the folder
    parent: int


class Attempt(NamedTuple):
    """One forbidden thing: the wall that must stop it, its name, how to build the wall, and how to try it."""

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
    limits = hardening.Limits(memory_bytes=64 << 20, open_files=ATTEMPT_FILES, file_bytes=1 << 10)
    hardening.harden(limits=limits, keep_fds=(0, 1, 2, _REPORT), parent=world.parent)


def _namespaces(world: World) -> None:
    namespaces.enter()


def _private_root(world: World) -> None:
    namespaces.enter(processes=False)
    namespaces.private_root(["/usr"], [])


def _connections(world: World) -> None:
    """Be a process whose connections another one makes, as the first process of a program's namespaces does."""
    namespaces.enter(processes=False)  # a process that is not in the namespace of its children can start no threads
    near, far = socket.socketpair()
    asking = os.fork()
    if asking:
        try:
            signal.alarm(ATTEMPT_SECONDS)
            far.close()
            hardening.drop_capabilities(connections.CAPABILITIES)
            (listener,) = socket.recv_fds(near, 1, 1)[1]
            SupervisedCalls(listener, (connections.Connections(),)).start()
            os.waitpid(asking, 0)
        finally:  # with the listener closed, the calls of the other process fail
            os._exit(0)
    near.close()
    hardening.no_new_privs()
    hardening.drop_capabilities()
    listener = notifications.install(_asking())
    socket.send_fds(far, [b"L"], [listener])
    os.close(listener)
    far.close()
    with _in_folder(world.folder), _listening("own"), socket.socket(socket.AF_UNIX) as trying:
        trying.connect("own")


def _supervised(world: World) -> None:
    """Be a process whose calls another one makes, as a program's supervisor does where there are no namespaces."""
    hardening.adopt_orphans()
    hardening.no_new_privs()
    diagnostics = shared_sockets.diagnostics()
    usable = [
        landlock.PathRule("/proc", landlock.READ),
        landlock.PathRule(world.folder, landlock.READ | landlock.WRITE),
    ]
    landlock.restrict(landlock.ruleset(usable, tcp_ports=None))
    near, far = socket.socketpair()
    asking = os.fork()
    if asking:
        try:
            signal.alarm(ATTEMPT_SECONDS)
            far.close()
            (listener,) = socket.recv_fds(near, 1, 1)[1]
            near.sendall(_looked_into(asking))
            rights = FileRights(())
            sockets = shared_sockets.SharedSockets(None, diagnostics, rights)
            judges = (sockets, metadata.Metadata(rights), signals.Signals())
            SupervisedCalls(listener, judges).start()
            os.waitpid(asking, 0)
        finally:  # with the listener closed, the calls of the other process fail
            os._exit(0)
    near.close()
    landlock.restrict(landlock.confinement())
    listener = notifications.install(_asking_beside())
    socket.send_fds(far, [b"L"], [listener])
    os.close(listener)
    if trouble := far.recv(1 << 10).decode(errors="replace").strip():
        raise OSError(errno.EPERM, f"its supervisor cannot look into it: {trouble}")
    far.close()
    with socket.create_server(("127.0.0.1", 0)) as own, socket.socket() as trying:
        trying.connect(own.getsockname())
        own.accept()[0].close()


def _looked_into(process: int) -> bytes:
    """Why this process cannot look into another one; a line break if it can."""
    try:
        os.close(notifications.open_file(process, _REPORT))
    except OSError as error:
        return str(error).encode() + b"\n"
    return b"\n"


def _entries(world: World) -> None:
    """Be a process whose entries another one counts, as the zygote does for workers, and that has made its last one."""
    near, far = socket.socketpair()
    judge = os.fork()
    if not judge:
        try:
            signal.alarm(ATTEMPT_SECONDS)
            far.close()
            (listener,) = socket.recv_fds(near, 1, 1)[1]
            count, poll = EntryCount(1), select.poll()
            poll.register(listener, select.POLLIN)
            while poll.poll()[0][1] & select.POLLIN:
                if notice := notifications.receive(listener):
                    count_entry(listener, notice, count)
        finally:  # with the listener closed, the calls of the other process fail
            os._exit(0)
    near.close()
    hardening.no_new_privs()
    listener = notifications.install(seccomp.program(execute=True, metadata=True, counts=True))
    socket.send_fds(far, [b"L"], [listener])
    os.close(listener)
    far.close()
    _new_directory(world)


def _asking() -> bytes:
    """The filter of programs; built before the attempts, it is there for the launcher too."""
    return seccomp.program(execute=True, fork=True, inet=True, metadata=True, unix="asks")


def _asking_beside() -> bytes:
    """The filter of programs that share processes with the machine. All signals ask, so that this is tried too."""
    return seccomp.program(execute=True, fork=True, unix="asks", beside=True, own_pid=1)


@contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Work in a directory: the address of a unix socket has at most 107 bytes."""
    before = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _listening(name: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    return listener


def _raw(name: str, *arguments: int | bytes | None) -> int:
    return system_calls.syscall(name, system_calls.NUMBERS[system_calls.machine()][name], *arguments)


def _connect(world: World) -> None:
    with socket.socket() as trying:
        trying.connect(("127.0.0.1", world.port))


def _connect_unix(world: World) -> None:
    with _in_folder(world.folder), socket.socket(socket.AF_UNIX) as trying:
        trying.connect(_DOOR)


def _listen_to_all(world: World) -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))  # noqa: S104 - this is the attempt
        server.listen()
        if server.getsockname()[0] != "0.0.0.0":  # noqa: S104
            raise PermissionError(errno.EACCES, "it listens on the loopback alone")


def _write(world: World) -> None:
    with open(world.file, "a") as file:
        file.write("x")


def _execute(world: World) -> None:
    with suppress(FileNotFoundError):  # without walls the call fails with this
        os.execv(world.file + ".missing", ["missing"])  # noqa: S606 - this is the attempt


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
    # Private memory that is never used: reserving it is limited, and costs nothing.
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
    """Raise a limit above that of the wall, but below the original one."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ATTEMPT_FILES + 1, ATTEMPT_FILES + 1))
    except ValueError as wrong:
        raise OSError(errno.EPERM, str(wrong)) from None


def _new_file(world: World) -> None:
    """Create a file without opening it: opening needs another right."""
    os.mknod(world.file + "-new", 0o600)
    with suppress(OSError):  # so that the next attempt can create it; a failure to remove it is no failed attempt
        os.unlink(world.file + "-new")


def _new_directory(world: World) -> None:
    path = world.file + "-new"
    os.mkdir(path)
    os.rmdir(path)


def _limits_of_parent(world: World) -> None:
    _raw("prlimit64", world.parent, resource.RLIMIT_NOFILE, None, None)


_REPORT, _INHERITED = 3, 9
_DOOR = "door"  # the unix socket in the folder
_DONE, _REFUSED, _STOPPED = "done", "refused", "stopped: "  # results of one attempt in a child

# Tried where there are no namespaces.
_BESIDE = (
    Attempt("supervised calls", "reach a port of the host", _supervised, _connect),
    Attempt("supervised calls", "listen at every address", _supervised, _listen_to_all),
    Attempt("supervised calls", "connect to a socket of the host", _supervised, _connect_unix),
    Attempt("supervised calls", "signal another process", _supervised, lambda world: os.kill(world.parent, 0)),
    Attempt("supervised calls", "change the mode of a file", _supervised, lambda world: os.chmod(world.file, 0o600)),
)  # fmt: skip
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
    *_BESIDE,
    Attempt("unix sockets", "connect to a socket of the host", _connections, _connect_unix),
    Attempt("limit of entries", "make one directory too many", _entries, _new_directory),
)  # fmt: skip


def outcomes(attempts: Sequence[Attempt], world: World) -> Iterator[str]:
    """The outcome of each attempt: `holds`, `holds already`, or an error."""
    without = iter(_answers(attempts, world, None))
    for build, group in groupby(attempts, key=lambda attempt: attempt.build):
        for behind, before in zip(_answers(list(group), world, build), without, strict=False):
            yield _outcome(before, behind)


def _outcome(before: str, behind: str) -> str:
    if before.startswith(_STOPPED):
        return f"could not be tried: {before.removeprefix(_STOPPED)}"
    if before not in (_DONE, _REFUSED):
        return before
    if behind == _REFUSED or behind.startswith(_STOPPED):
        # Refused without walls means that another sandbox is around this process, and refuses it to child processes
        # too. Other attempts test whether the wall itself holds.
        return "holds" if before == _DONE else "holds already"
    return "does not hold" if behind == _DONE else behind


def _answers(attempts: Sequence[Attempt], world: World, build: Callable[[World], None] | None) -> list[str]:
    """The results of all attempts. If a child ends early, another one makes the remaining attempts."""
    said: list[str] = []
    while len(said) < len(attempts):
        said += _in_child(attempts[len(said) :], world, build)
        if len(said) < len(attempts):
            said.append("the attempt ended without an answer")
    return said


def _in_child(attempts: Sequence[Attempt], world: World, build: Callable[[World], None] | None) -> list[str]:
    with open(world.file, "w") as file:  # each child starts with the same file
        file.write("text")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(writing, _REPORT)
            os.dup2(1, _INHERITED)
            wrong = _built(build, world) if build is not None else ""
            for attempt in attempts:
                said = (wrong or _done(attempt, world)).replace("\n", " ")
                os.write(_REPORT, said.encode(errors="replace")[:500] + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with open(reading, "rb") as results:
            return results.read().decode(errors="replace").split("\n")[:-1]
    finally:
        os.waitpid(child, 0)


def _built(build: Callable[[World], None], world: World) -> str:
    """Build a wall; returns an error, or an empty text."""
    try:
        build(world)
    except OSError as wrong:
        return f"cannot be built: {wrong}"
    except BaseException as wrong:  # any error: the wall was not seen to hold
        return f"{type(wrong).__name__}: {wrong}"
    return ""


def _done(attempt: Attempt, world: World) -> str:
    try:
        attempt.do(world)
    except PermissionError:
        return _REFUSED
    except OSError as wrong:
        return f"{_STOPPED}{wrong}"
    except BaseException as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return _DONE


@contextmanager
def _folder() -> Iterator[str]:
    """A new directory for the files that the attempts make."""
    folder = scratch.new()
    try:
        yield folder
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def tried(*, namespaces_wanted: bool = True) -> bytes:
    """Make all attempts; returns the results as one line of JSON.

    What takes the place of namespaces is tried only where they do not hold, or are not wanted.
    """
    signal.alarm(ATTEMPT_SECONDS)
    version = landlock.abi()
    with suppress(OSError):  # no filter for this architecture
        _asking()
    attempts = [attempt for attempt in ATTEMPTS if not version or version >= attempt.needs_abi]
    with _folder() as folder, ExitStack() as closed_later:
        port = 1
        with suppress(PermissionError):  # another sandbox around this process stops connections
            port = closed_later.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        with suppress(OSError), _in_folder(folder):  # without it, the attempt on unix sockets tells why
            closed_later.enter_context(_listening(_DOOR))
        world = World(os.path.join(folder, "file"), folder, port, os.getpid())
        spaces = [attempt for attempt in attempts if attempt.build in (_namespaces, _private_root)]
        others = [attempt for attempt in attempts if attempt not in spaces and attempt not in _BESIDE]
        results = dict(zip(spaces, outcomes(spaces, world), strict=True)) if namespaces_wanted else {}
        if not namespaces_wanted or any(outcome != "holds" for outcome in results.values()):
            others += _BESIDE
        results |= zip(others, outcomes(others, world), strict=True)
        found = [
            {"wall": attempt.wall, "about": attempt.about, "outcome": results[attempt]}
            for attempt in attempts
            if attempt in results
        ]
    signal.alarm(0)
    return json.dumps({"landlock": version, "attempts": found}).encode() + b"\n"


def main() -> None:
    """Make all attempts, and print the results; `without-namespaces` as if there were none."""
    os.write(1, tried(namespaces_wanted="without-namespaces" not in sys.argv[1:]))
