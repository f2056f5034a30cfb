"""Lets unmodified libraries start programs with `subprocess` and `os` in a worker: the host starts them.

A convenience, not a wall: the kernel allows neither `fork` nor `exec` here. A program gets a pid that no process has,
and pipes that the host made. A file or socket that a library passes instead of a pipe stays here and is copied: no open
file of the worker is passed to a program.

Lets unmodified libraries connect over TCP from a worker: the host connects, and passes the socket in.

A convenience, not a wall: the kernel allows no sockets here. A socket is a placeholder until it is connected. Names are
resolved by the host when it connects.
"""

import contextlib
import errno
import inspect
import ipaddress
import os
import select
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from licet.declare.context import Path
from licet.sandbox.streams import copy


def copy_in_thread(source: int, sink: int) -> threading.Thread:
    """Copy one open file to another in a thread, until one of them ends; both are closed then."""
    thread = threading.Thread(target=_copy, args=(source, sink), name="licet-copy", daemon=True)
    try:
        thread.start()
    except BaseException:
        os.close(source)
        os.close(sink)
        raise
    return thread


def _copy(source: int, sink: int) -> None:
    try:
        copy(source, sink)
    except OSError:
        return  # one of them was closed
    finally:
        os.close(source)
        os.close(sink)


Start = Callable[
    [Mapping[str, Any]], tuple[int, tuple[int, ...]]
]  # the question; returns a number and files, or raises OSError
Send = Callable[[int, int], None]  # number of the program, signal

_FIRST = 1 << 22  # above every pid of the kernel
_SHELL = "/bin/sh"
_NOT_HANDED_ON = {
    "pass_fds": "open files",
    "preexec_fn": "a function to be called before it starts",
    "gid": "a group",
    "gids": "groups",
    "uid": "a user",
    "umask": "a mask for new files",
}


def install_subprocess(start: Start, send: Send, variables: Iterable[str]) -> None:
    """Have the host start the programs of Python code from now on. `variables` names the variables they may get."""
    programs = _Programs(start, send, frozenset(variables))
    real = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

    def execute_child(popen: Any, *args: object, **named: object) -> None:
        given = real.bind(popen, *args, **named).arguments
        popen.pid = programs.popen(given)
        popen._child_created = True
        popen._close_pipe_fds(*(given[name] for name in _PIPES))

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]
    if hasattr(subprocess, "_del_safe"):  # Python 3.12 and newer keep a second reference to `waitpid`
        subprocess._del_safe.waitpid = programs.waitpid
    else:
        poll: Any = subprocess.Popen._internal_poll  # type: ignore[attr-defined]
        poll.__defaults__ = tuple(
            programs.waitpid if value is os.waitpid else value for value in poll.__defaults__ or ()
        )
    for name in ("waitpid", "kill", "killpg", "getpgid", "posix_spawn", "posix_spawnp"):
        setattr(os, name, getattr(programs, name))
    os.system = _system


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


class _StartedProgram:
    """A program that was started: its exit status, and the threads that copy its output."""

    def __init__(self, number: int, status_pipe: int) -> None:
        self.number = number
        self._status_pipe = status_pipe
        self._copying: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._status: int | None = None

    def copying(self, thread: threading.Thread) -> None:
        """Add a thread that copies output: the program counts as running until it has ended."""
        self._copying.append(thread)

    def status(self, wait: bool) -> int | None:
        """The wait status; None if the program still runs."""
        if not self._lock.acquire(blocking=wait):
            return None
        try:
            if self._status is None:
                if not wait and not select.select([self._status_pipe], [], [], 0)[0]:
                    return None
                with open(self._status_pipe, "rb", buffering=0) as pipe:
                    said = pipe.readall() or b""
                code = int(said) if said else -signal.SIGKILL  # an empty pipe: the program ended with its call
                self._status = code << 8 if code >= 0 else -code
            for thread in self._copying:
                if wait:
                    thread.join()
                elif thread.is_alive():
                    return None
            return self._status
        finally:
            self._lock.release()


class _Programs:
    """Replacements for the functions of `os` and `subprocess`."""

    def __init__(self, start: Start, send: Send, variables: frozenset[str]) -> None:
        self._start, self._send, self._variables = start, send, variables
        self._known: dict[int, _StartedProgram] = {}
        self._directory = os.getcwd()
        self._environment = dict(os.environ)
        self._waitpid, self._kill, self._killpg, self._getpgid = os.waitpid, os.kill, os.killpg, os.getpgid

    # Starting --------------------------------------------------------------------------------------------------------

    def popen(self, given: Mapping[str, Any]) -> int:
        """Start a program with the arguments of `Popen._execute_child`; returns its pid."""
        for name, what in _NOT_HANDED_ON.items():
            if given.get(name) not in (None, (), -1):
                raise PermissionError(errno.EACCES, f"{what} cannot be given to a program behind walls (`{name}`)")
        args, executable = given["args"], given["executable"]
        argv = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        if given["shell"]:
            argv = [executable or _SHELL, "-c", *argv]
        ends = (given["p2cread"], given["c2pwrite"], given["errwrite"])
        near = (given["p2cwrite"], given["c2pread"], given["errread"])
        return self.start(executable or argv[0], argv, given["env"], given["cwd"], ends, near)

    def start(
        self,
        program: Path,
        argv: Sequence[Path],
        env: Mapping[Any, Any] | None,
        cwd: Path | None,
        ends: Sequence[int],
        near: Sequence[int],
    ) -> int:
        """Start a program: `ends` are its streams, `near` our ends of those that are new pipes; returns its pid."""
        ends = [number if end == -1 else end for number, end in enumerate(ends)]
        joined = near[2] == -1 and ends[2] == ends[1]
        wanted = [other != -1 or not _is_nothing(end) for end, other in zip(ends, near, strict=True)]
        wanted[2] = wanted[2] and not joined
        number, files = self._start(
            {
                "name": _path(program, cwd),
                "args": [os.fsdecode(arg) for arg in argv[1:]],
                "env": self._given(os.environ if env is None else env),
                "cwd": self._where(cwd),
                **dict(zip(("stdin", "stdout", "stderr"), wanted, strict=True)),
                "joined": joined,
            }
        )
        *streams, status_pipe = files
        started = self._known[_FIRST + number] = _StartedProgram(number, status_pipe)
        left = iter(streams)
        for stream, file in ((stream, next(left)) for stream in range(3) if wanted[stream]):
            if near[stream] != -1:  # the library's pipe is replaced by the host's, under the same descriptor
                os.dup2(file, near[stream], inheritable=False)
                os.close(file)
            elif stream == 0:
                copy_in_thread(os.dup(ends[0]), file)
            else:
                started.copying(copy_in_thread(file, os.dup(ends[stream])))
        return _FIRST + number

    def _given(self, env: Mapping[Any, Any]) -> dict[str, str]:
        """The declared variables whose values the tool has changed."""
        texts = ((os.fsdecode(name), os.fsdecode(value)) for name, value in env.items())
        before = self._environment
        return {name: text for name, text in texts if name in self._variables and before.get(name) != text}

    def _where(self, cwd: Path | None) -> str | None:
        """The directory to start in; None if the tool has not chosen one."""
        here = os.getcwd()
        if cwd is None:
            return None if here == self._directory else here
        return os.path.join(here, os.fsdecode(cwd))

    def posix_spawn(
        self,
        path: Path,
        argv: Sequence[Path],
        env: Mapping[Any, Any],
        /,
        *,
        file_actions: Iterable[tuple[Any, ...]] | None = (),
        **_: object,
    ) -> int:
        """As `os.posix_spawn`; groups, sessions and signals of a program behind walls are its own in any case."""
        ends = {0: 0, 1: 1, 2: 2}
        opened: list[int] = []
        try:
            for action, *rest in file_actions or ():
                if action == os.POSIX_SPAWN_DUP2:
                    ends[rest[1]] = ends.get(rest[0], rest[0])
                elif action == os.POSIX_SPAWN_OPEN:
                    opened.append(os.open(*rest[1:]))
                    ends[rest[0]] = opened[-1]
            return self.start(path, argv, env, None, [ends[stream] for stream in range(3)], (-1, -1, -1))
        finally:
            for file in opened:
                os.close(file)

    def posix_spawnp(self, path: Path, argv: Sequence[Path], env: Mapping[Any, Any], /, **options: Any) -> int:
        """As `os.posix_spawnp`: names are looked up by the host."""
        return self.posix_spawn(path, argv, env, **options)

    # Waiting and signals ---------------------------------------------------------------------------------------------

    def waitpid(self, pid: int, options: int, /) -> tuple[int, int]:
        """As `os.waitpid`."""
        program = self._known.get(pid)
        if program is None:
            return self._waitpid(pid, options)
        status = program.status(wait=not options & os.WNOHANG)
        if status is None:
            return 0, 0
        if self._known.pop(pid, None) is None:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))  # another thread has waited for it
        return pid, status

    def kill(self, pid: int, number: int, /) -> None:
        """As `os.kill`; no error for a program that has ended and was not waited for."""
        program = self._known.get(pid)
        if program is None:
            self._kill(pid, number)
        elif number:
            with contextlib.suppress(ProcessLookupError):
                self._send(program.number, int(number))

    def killpg(self, group: int, number: int, /) -> None:
        """As `os.killpg`; the group of a program is the program alone."""
        if group in self._known:
            self.kill(group, number)
        else:
            self._killpg(group, number)

    def getpgid(self, pid: int, /) -> int:
        """As `os.getpgid`."""
        return pid if pid in self._known else self._getpgid(pid)


def _system(command: Path) -> int:
    """As `os.system`, but raises if the shell may not be started."""
    code = subprocess.call(command, shell=True)  # noqa: S602 - the tool asked for a shell
    return code << 8 if code >= 0 else -code


def _path(program: Path, cwd: Path | None) -> str:
    """A name unchanged; a path made absolute from the directory that the program starts in."""
    name = os.fsdecode(program)
    return os.path.abspath(os.path.join(os.fsdecode(cwd or "."), name)) if "/" in name else name


def _is_nothing(file: int) -> bool:
    """Whether a file is the null device, or closed: then nothing is copied."""
    try:
        found = os.fstat(file)
    except OSError:
        return True
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)


Address = tuple[Any, ...]  # of a socket: host and port
Connect = Callable[[str, int], int]  # returns the fd of a connection, or raises OSError

_STREAM = 0xF  # the bits of a socket type without flags
_SERVICES = {"http": 80, "https": 443, "postgresql": 5432, "redis": 6379, "mysql": 3306, "amqp": 5672}


def install_socket(connect: Connect) -> None:
    """Have the host connect the sockets of Python code from now on."""
    names = _Names()
    vars(socket).update(
        socket=_shimmed(connect, names),
        getaddrinfo=names.getaddrinfo,
        gethostbyname=names.stand_in,
        has_ipv6=False,
    )


class _Names:
    """Placeholder addresses for names, from a reserved range that is never routed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def stand_in(self, host: str) -> str:
        """The placeholder address for a name; an address is returned unchanged."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        with self._lock:
            if host not in self._addresses:
                address = str(ipaddress.IPv4Address((240 << 24) + len(self._addresses) + 1))
                self._addresses[host], self._names[address] = address, host
            return self._addresses[host]

    def meant(self, address: str) -> str:
        """The name behind a placeholder address, or the address."""
        return self._names.get(address, address)

    def getaddrinfo(
        self,
        host: str | bytes | None,
        port: str | bytes | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[int, int, int, str, tuple[Any, ...]]]:
        """As `socket.getaddrinfo`, without a resolver."""
        text = host.decode("ascii") if isinstance(host, bytes) else "127.0.0.1" if host is None else str(host)
        address = self.stand_in(text)
        found = socket.AF_INET6 if ":" in address else socket.AF_INET
        if family not in (0, found) or (type and type & _STREAM != socket.SOCK_STREAM):
            raise socket.gaierror(socket.EAI_NONAME, "only TCP addresses are available behind walls")
        number = _port(port)
        end = (address, number, 0, 0) if found == socket.AF_INET6 else (address, number)
        return [(found, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", end)]


def _port(port: str | bytes | int | None) -> int:
    text = port.decode("ascii") if isinstance(port, bytes) else port
    if isinstance(text, str) and not text.isdecimal():
        if text not in _SERVICES:
            raise socket.gaierror(socket.EAI_SERVICE, "this service name is not known behind walls")
        return _SERVICES[text]
    return int(text or 0)


def _shimmed(connect: Connect, names: _Names) -> type[socket.socket]:
    real = socket.socket

    class Socket(real):  # type: ignore[misc, valid-type]
        """A socket that the host connects."""

        __slots__ = ("_options", "_other_end")

        def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:  # noqa: A002
            self._other_end: socket.socket | None = None
            self._options: list[tuple[Any, ...]] = []
            if fileno is not None or family == socket.AF_UNIX:
                super().__init__(family, type, proto, fileno)
                return
            other = family not in (-1, socket.AF_INET, socket.AF_INET6)
            if other or (type not in (-1, 0) and type & _STREAM != socket.SOCK_STREAM):
                raise PermissionError(errno.EACCES, "only TCP sockets are available behind walls")
            near, self._other_end = socket.socketpair()
            family = socket.AF_INET if family == -1 else family
            super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, near.detach())

        def connect(self, address: Address) -> None:
            if self._other_end is None:
                super().connect(address)
                return
            made = connect(names.meant(str(address[0])), int(address[1]))
            try:
                os.dup2(made, self.fileno(), inheritable=False)
            finally:
                os.close(made)
            self._other_end.close()
            self._other_end = None
            self.settimeout(self.gettimeout())  # the new socket does not have the blocking mode of the placeholder
            for option in self._options:
                self.setsockopt(*option)

        def connect_ex(self, address: Address) -> int:
            try:
                self.connect(address)
            except OSError as wrong:
                return wrong.errno or errno.EACCES
            return 0

        def setsockopt(self, *option: Any) -> None:
            if option[:2] == (socket.SOL_SOCKET, socket.SO_LINGER):
                return  # the seccomp filter refuses it; only the peer would notice
            if self._other_end is None:
                super().setsockopt(*option)
            else:
                self._options.append(option)  # set on the real socket after connecting

        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "listening sockets are not available behind walls")

        def close(self) -> None:
            if self._other_end is not None:
                self._other_end.close()
                self._other_end = None
            super().close()

    Socket.__name__ = Socket.__qualname__ = "socket"
    return Socket
