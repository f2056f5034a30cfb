"""Builds the walls of a program and becomes the program. Runs in a fork of the supervisor.

It reads orders from a socket, builds the walls that they describe, and executes the binary. The supervisor is an
interpreter with the standard library and a few modules of licet, so nothing of the host can be inherited. If a wall
cannot be built, the launcher reports why on the socket and ends; the binary never gets the socket.
"""

import array  # noqa: F401 - `send_fds` imports it, and the private root may lack it
import errno
import fcntl
import json
import os
import select
import signal
import socket
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from licet.sandbox.kernel import connections, hardening, landlock, namespaces, seccomp
from licet.sandbox.limits import LARGEST_ORDERS, LAUNCHER_BACKLOG, MEASURED_AT_ONCE, PROGRAM_LOOK_SECONDS

FAILED = 125  # like `env` and `timeout`; the reason goes to the socket
_PASSED_ON = signal.valid_signals() - {9, 19}  # without SIGKILL and SIGSTOP, which cannot be caught


def main(control: int, ending: int) -> None:
    """Follow the orders on a socket; does not return.

    `ending` is a pipe on which the walls report why the binary ended.
    """
    os.set_inheritable(control, False)
    host = socket.socket(fileno=control)
    try:
        hardening.close_all_but((0, 1, 2, control, ending))  # files of the supervisor
        orders = _orders(host)
        if orders["namespaces"]:
            _in_namespaces(orders, host, ending)
        if orders["own_terminal"]:
            _take_terminal()
        hardening.harden(limits=_limits(orders), keep_fds=(0, 1, 2, control), parent=None)
        _restrict_files(orders)
        seccomp.install(_filter(orders))
        _exec(orders)
    except OSError as wrong:
        _report_error(host, wrong)
    except Exception as wrong:  # no report would mean that the binary was started
        _report_error(host, OSError(errno.EINVAL, f"the orders cannot be followed: {wrong!r}"))


def prepare() -> None:
    """Build the seccomp filters in advance; forks of this process then have them."""
    orders = {"namespaces": True, "landlock": landlock.abi(), "unix": True}
    _filter(orders)
    _filter_of_first(orders)


def _orders(host: socket.socket) -> dict[str, Any]:
    """Read a length, and a JSON object of that length."""
    size = int.from_bytes(_exactly(host, 8), "big")
    if size > LARGEST_ORDERS:
        raise ValueError("the orders are too long")
    orders: dict[str, Any] = json.loads(_exactly(host, size))
    return orders


def _exactly(host: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = host.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ValueError("the host has closed the connection")
        data += more
    return bytes(data)


def _report_error(host: socket.socket, wrong: OSError) -> NoReturn:
    """Report why nothing was started. `stage` is `start` for a binary that cannot be run, else `walls`."""
    stage = getattr(wrong, "stage", "walls")
    said = {"stage": stage, "errno": wrong.errno or 0, "text": str(wrong)}
    try:
        host.sendall(json.dumps(said).encode())
    finally:
        os._exit(FAILED)


# Namespaces ----------------------------------------------------------------------------------------------------------


def _in_namespaces(orders: dict[str, Any], host: socket.socket, ending: int) -> NoReturn:
    """Enter new namespaces, wait for the program in them, and end as it ended."""
    namespaces.enter()
    if orders["network"]:
        _pass_out(host, _listening())
    alive, watched = os.pipe()
    said, saying = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # `_pass_on_until_the_end` takes them
    first = os.fork()
    if not first:
        try:
            os.close(watched)
            _first_process(orders, host, alive, saying)
        except OSError as wrong:
            _report_error(host, wrong)
        finally:
            os._exit(FAILED)
    host.close()
    os.close(saying)
    for stream in (0, 1, 2):  # only the binary has its pipes open, so that they end with it
        os.close(stream)
    _pass_on_until_the_end(first)  # the kernel then ends everything in its namespace
    status, _, limit = (os.read(said, 64) or str(FAILED << 8).encode()).partition(b" ")
    os.write(ending, limit)  # the limit that ended it; the exit status is that of this process
    _exit_like(int(status))


def _pass_on_until_the_end(first: int) -> None:
    """Pass signals on to the first process, which passes them on to the binary, until it ends."""
    while True:
        number = signal.sigwait(_PASSED_ON)
        if number != signal.SIGCHLD:
            os.kill(first, number)
        elif os.waitpid(first, os.WNOHANG)[0]:
            return


def _listening() -> socket.socket:
    """A listener on the loopback of the new network. The host accepts its connections."""
    listener = socket.socket()
    listener.bind(namespaces.PROXY)
    listener.listen(LAUNCHER_BACKLOG)
    return listener


def _pass_out(host: socket.socket, listener: socket.socket) -> None:
    socket.send_fds(host, [b"L"], [listener.fileno()])
    listener.close()


def _first_process(orders: dict[str, Any], host: socket.socket, alive: int, saying: int) -> NoReturn:
    """The init process of the new namespace, behind the same walls as the binary."""
    hardening.die_with(0)  # a parent in another namespace has no id here
    if select.select([alive], [], [], 0)[0]:  # the parent ended before `die_with`
        os._exit(FAILED)
    for stream in (0, 1, 2):
        namespaces.guard_terminal(stream)
    mounts = orders["mounts"]
    namespaces.private_root(
        mounts["read"],
        mounts["write"],
        found={path: (device, number) for path, (device, number) in mounts["found"]},
        hide=mounts["hide"],
        over=mounts["over"],
        hold=mounts["hold"],
        scratch=(orders["memory"], orders["scratch"][1]),
        lasting=orders["lasting"],
        made=mounts["made"],
        copies=list(_copies(mounts)),
        names=mounts.get("names", ()),
        proc=True,
    )
    keep = connections.CAPABILITIES if orders["unix"] else ()
    files = (0, 1, 2, host.fileno(), saying)
    hardening.harden(limits=_limits(orders), keep_fds=files, keep_capabilities=keep)
    _restrict_files(orders)
    kept = {path: _which(path) for path in mounts.get("keys", ())}
    near, far = socket.socketpair()
    binary = os.fork()
    if not binary:
        try:
            os.close(saying)
            near.close()
            _lead(orders["own_terminal"])
            _filter_binary(orders, far)
            _exec(orders)
        except OSError as wrong:
            _report_error(host, wrong)
        finally:
            os._exit(FAILED)
    host.close()
    far.close()
    for stream in (0, 1, 2):
        os.close(stream)
    # The init process of a namespace gets no unhandled signals from inside.
    _reset_signals()
    _, listeners, _, _ = socket.recv_fds(near, 1, 1)  # nothing comes if there is no filter
    near.close()
    seccomp.install(_filter_of_first(orders))
    judges = [connections.Connections(listener) for listener in listeners]
    for judge in judges:
        judge.start()
    status, crowded = _wait_for(binary, orders["limits"], judges, kept)
    limit = "LIMIT_PROCESSES" if crowded else "LIMIT_DISK" if _full(orders["scratch"][0][0]) else ""
    os.write(saying, f"{status} {limit if status else ''}".encode())
    os._exit(0)


def _copies(mounts: dict[str, Any]) -> Iterator[namespaces.Copy]:
    """The files that are shown with other contents; the orders have each content once, and each byte as a letter."""
    for path, number, mode in mounts.get("copies", ()):
        yield namespaces.Copy(path, mounts["contents"][number].encode("latin-1"), mode)


def _lead(own_terminal: bool) -> None:
    """Lead a group of processes, which Ctrl-C is passed on to; with a terminal of its own, lead a session there."""
    if own_terminal:
        os.setsid()
        _take_terminal()
    else:
        os.setpgid(0, 0)


def _take_terminal() -> None:
    """Make the terminal among the streams the one that controls this session: then there are jobs and `/dev/tty`."""
    for stream in (0, 1, 2):
        if os.isatty(stream):
            fcntl.ioctl(stream, termios.TIOCSCTTY, 0)
            return


def _filter_binary(orders: dict[str, Any], first: socket.socket) -> None:
    """Install the filter of the binary, and give its listener to the first process, which makes the connections."""
    hardening.drop_capabilities()
    if orders["unix"]:
        listener = connections.install(_filter(orders))
        socket.send_fds(first, [b"L"], [listener])
        os.close(listener)
    else:
        seccomp.install(_filter(orders))
    first.close()


def _full(scratch: str) -> bool:
    """Whether scratch is full."""
    try:
        return os.statvfs(scratch).f_bavail == 0
    except OSError:
        return False


def _which(path: str) -> tuple[int, int] | None:
    """The device and inode of a file; None if it is missing."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _wait_for(
    binary: int,
    limits: Mapping[str, int],
    judges: Sequence[connections.Connections],
    kept: Mapping[str, tuple[int, int] | None],
) -> tuple[int, bool]:
    """The wait status of the binary, and whether the limit of processes was reached; reaps other processes meanwhile.

    The kernel enforces the limit for every user but root. If root exceeds it, all processes here are killed. It has no
    limit for shared memory: a process that has more than `memory_bytes` of it mapped is killed.

    All are killed too if a file in `kept` is another one: when somebody on the host replaces a file, the kernel removes
    what is mounted over it here, and the new file has a key in it.
    """
    crowded, most, turn = False, limits["processes"], 0
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == binary:
            return status, crowded
        if ended:
            continue
        for judge in judges:
            judge.interrupt_abandoned()
        found = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]  # without this one
        crowded = crowded or len(found) >= most
        if len(found) > most + 1 or any(_which(path) != file for path, file in kept.items()):
            os.kill(-1, signal.SIGKILL)  # every process of the namespace but this one
        turn = turn + MEASURED_AT_ONCE if turn + MEASURED_AT_ONCE < len(found) else 0
        for name in found[turn : turn + MEASURED_AT_ONCE]:
            if _shares_more_than(limits["memory_bytes"], name):
                with suppress(ProcessLookupError):
                    os.kill(int(name), signal.SIGKILL)
        came = signal.sigtimedwait(_PASSED_ON, PROGRAM_LOOK_SECONDS)
        # A sender outside of the namespace has no pid here. Signals from inside are not passed on.
        if came is not None and came.si_signo != signal.SIGCHLD and not came.si_pid:
            _send(binary, came.si_signo)


def _shares_more_than(most: int, process: str) -> bool:
    """Whether a process has more shared memory mapped than so many bytes; files on a disk do not count."""
    with suppress(OSError):  # it has ended
        with open(f"/proc/{process}/statm", "rb", buffering=0) as file:
            _, _, shared, *_ = file.read(128).split()  # with mapped files; `status` takes far longer to read
        if int(shared) * os.sysconf("SC_PAGE_SIZE") > most:
            with open(f"/proc/{process}/status", "rb") as file:
                return any(line.startswith(b"RssShmem:") and int(line.split()[1]) << 10 > most for line in file)
    return False


def _send(binary: int, number: int) -> None:
    """Send a signal to the binary; Ctrl-C also to what it has started, as a terminal does."""
    try:
        os.kill(-binary if number == signal.SIGINT else binary, number)
    except ProcessLookupError:  # it has no group yet
        os.kill(binary, number)


def _exit_like(status: int) -> NoReturn:
    """End as another process ended: with its code, or by its signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hardening.limit(hardening.Limits())  # no core file of this process
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


# Walls ---------------------------------------------------------------------------------------------------------------


def _limits(orders: dict[str, Any]) -> hardening.Limits:
    limits = dict(orders["limits"])
    # A namespace counts its own processes, with these two and the threads of one; without one, all tasks of the user.
    others = 2 + connections.THREADS * orders["unix"] if orders["namespaces"] else hardening.tasks_of_user()
    limits["processes"] = None if others is None else limits["processes"] + others
    return hardening.Limits(**limits)


def _restrict_files(orders: dict[str, Any]) -> None:
    """Restrict this process with Landlock."""
    opened = [_checked(path, access, identity) for path, access, identity in orders["rules"]]
    try:
        # In a network of its own a program may listen and connect on any port: there is only its loopback, and the
        # proxy, if it has one. Without such a network it may do neither.
        ports = None if orders["namespaces"] else ()
        ruleset = landlock.ruleset([rule for rule, _ in opened], tcp_ports=ports, version=orders["landlock"])
    finally:
        for _, fd in opened:
            if fd is not None:
                os.close(fd)
    landlock.restrict(ruleset)
    os.close(ruleset)


def _filter(orders: dict[str, Any]) -> bytes:
    """The seccomp filter of a program, which also closes the gaps of a version of Landlock."""
    spaces, version = orders["namespaces"], orders["landlock"]
    own_pid = None if spaces or version >= landlock.SIGNALS_SINCE else os.getpid()
    unix: seccomp.Unix = "asks" if orders["unix"] else "none"
    return seccomp.program(
        execute=True, fork=True, inet=spaces, metadata=spaces, own_pid=own_pid, abi=version, unix=unix
    )


def _filter_of_first(orders: dict[str, Any]) -> bytes:
    """The seccomp filter of the first process: it starts nothing more, and makes no sockets."""
    return seccomp.program(abi=orders["landlock"], unix="judges" if orders["unix"] else "none")


def _checked(path: str, access: int, identity: list[int] | None) -> tuple[landlock.PathRule, int | None]:
    """A rule for the file that the host checked; a file that has replaced it is refused."""
    if identity is None:
        return landlock.PathRule(path, access), None
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    found = os.fstat(fd)
    if [found.st_dev, found.st_ino] != identity:
        raise OSError(errno.ESTALE, "a granted path was replaced by another file", path)
    through = f"/proc/self/fd/{fd}"
    return landlock.PathRule(through if os.path.lexists(through) else path, access), fd


def _reset_signals() -> None:
    """Restore default handlers: ignored signals are inherited."""
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)


def _exec(orders: dict[str, Any]) -> NoReturn:
    _reset_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.chdir(orders["directory"])
        os.execve(orders["binary"], orders["argv"], orders["environment"])  # noqa: S606 - the host has checked it
    except OSError as wrong:
        wrong.stage = "start"  # type: ignore[attr-defined]
        raise
