"""The small program that becomes another one behind walls: it reads orders, builds what they say, and starts a binary.

Run in a fork of the supervisor (`backends.process_supervisor`), which is an interpreter of its own with nothing but the
standard library and the modules beside this, so that nothing of the host is there to be inherited. Whatever cannot be
built ends it before the binary starts: it then says why on the socket that it was given, which the binary never sees.
"""

import errno
import json
import os
import select
import signal
import socket
from typing import Any, NoReturn

from licet.sandbox.kernel import hardening, landlock, namespaces, seccomp

FAILED = 125  # like other programs that start programs; the socket says why
_MOST_ORDERS = 64 << 20
_PROXY = ("127.0.0.1", 3128)
PROXY_URL = f"http://{_PROXY[0]}:{_PROXY[1]}"
_BACKLOG = 128
_COUNTED_EVERY = 0.1  # seconds
_PASSED_ON = signal.valid_signals() - {9, 19}  # SIGKILL and SIGSTOP nobody can catch; other systems lack the names


def main(control: int, ending: int) -> None:
    """Do what the orders on a socket say; whatever comes of it, it does not return.

    `ending` is a pipe for the word of the walls on why the binary ended.
    """
    os.set_inheritable(control, False)
    host = socket.socket(fileno=control)
    try:
        hardening.close_all_but((0, 1, 2, control, ending))  # what the supervisor keeps to itself
        orders = _orders(host)
        if orders["namespaces"]:
            _in_namespaces(orders, host, ending)
        hardening.harden(limits=_limits(orders), keep_fds=(0, 1, 2, control), parent=None)
        _wall(orders)
        _become(orders)
    except OSError as wrong:
        _tell(host, wrong)
    except Exception as wrong:  # whatever it is: silence would mean that the binary was started
        _tell(host, OSError(errno.EINVAL, f"orders that make no sense: {wrong!r}"))


def prepare() -> None:
    """Build the filters that programs get, while nobody waits: those that are forked from here then have them."""
    for network in (False, True):
        _filter(landlock.abi(), spaces=True, network=network)


def _orders(host: socket.socket) -> dict[str, Any]:
    """A length, and a JSON object of that length."""
    size = int.from_bytes(_exactly(host, 8), "big")
    if size > _MOST_ORDERS:
        raise ValueError("more orders than anybody gives")
    orders: dict[str, Any] = json.loads(_exactly(host, size))
    return orders


def _exactly(host: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = host.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ValueError("the host has gone")
        data += more
    return bytes(data)


def _tell(host: socket.socket, wrong: OSError) -> NoReturn:
    """Say why nothing was started. `stage` tells a binary that cannot be run from walls that cannot be built."""
    stage = getattr(wrong, "stage", "walls")
    said = {"stage": stage, "errno": wrong.errno or 0, "text": str(wrong)}
    try:
        host.sendall(json.dumps(said).encode())
    finally:
        os._exit(FAILED)


# Namespaces ----------------------------------------------------------------------------------------------------------


def _in_namespaces(orders: dict[str, Any], host: socket.socket, ending: int) -> NoReturn:
    """Leave the host's namespaces, and wait for what runs in the new ones, to end as it ended."""
    namespaces.enter()
    if orders["network"]:
        _pass_out(host, _listening())
    alive, watched = os.pipe()
    said, saying = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # from here on they wait until they are passed on
    first = os.fork()
    if not first:
        try:
            os.close(watched)
            _first_process(orders, host, alive, saying)
        except OSError as wrong:
            _tell(host, wrong)
        finally:
            os._exit(FAILED)
    host.close()
    os.close(saying)
    for stream in (0, 1, 2):  # only the binary holds its pipes, so that their end is its end
        os.close(stream)
    _pass_on_until_the_end(first)  # and everything in its namespace ends with it
    status, _, limit = (os.read(said, 64) or str(FAILED << 8).encode()).partition(b" ")
    os.write(ending, limit)  # of the walls' making; how the binary ended, whoever waits for this one sees
    _end_like(int(status))


def _pass_on_until_the_end(first: int) -> None:
    """Signals that are sent to this process are meant for the binary: they go to the first process, which knows it."""
    while True:
        number = signal.sigwait(_PASSED_ON)
        if number != signal.SIGCHLD:
            os.kill(first, number)
        elif os.waitpid(first, os.WNOHANG)[0]:
            return


def _listening() -> socket.socket:
    """A listener on the loopback of the new network. Who connects to it talks to the host, which alone accepts."""
    listener = socket.socket()
    listener.bind(_PROXY)
    listener.listen(_BACKLOG)
    return listener


def _pass_out(host: socket.socket, listener: socket.socket) -> None:
    socket.send_fds(host, [b"L"], [listener.fileno()])
    listener.close()


def _first_process(orders: dict[str, Any], host: socket.socket, alive: int, saying: int) -> NoReturn:
    """The init of the new namespace. It is behind the same walls as the binary: there is nothing to gain from it."""
    hardening.die_with(0)  # a parent in another namespace has no id here
    if select.select([alive], [], [], 0)[0]:  # it ended before the kernel was asked
        os._exit(FAILED)
    for stream in (0, 1, 2):
        namespaces.guard_terminal(stream)
    mounts = orders["mounts"]
    namespaces.private_root(
        mounts["read"],
        mounts["write"],
        found={path: (device, number) for path, (device, number) in mounts["found"]},
        hide=mounts["hide"],
        hold=mounts["hold"],
        scratch=tuple(orders["scratch"]),
        proc=True,
    )
    hardening.harden(limits=_limits(orders), keep_fds=(0, 1, 2, host.fileno(), saying))
    _wall(orders)
    binary = os.fork()
    if not binary:
        try:
            os.close(saying)
            _become(orders)
        except OSError as wrong:
            _tell(host, wrong)
        finally:
            os._exit(FAILED)
    host.close()
    for stream in (0, 1, 2):
        os.close(stream)
    # Signals that nobody handles do not reach the first process of a namespace from inside.
    _reset_signals()
    status, crowded = _waited(binary, orders["limits"]["processes"])
    limit = "LIMIT_PROCESSES" if crowded else "LIMIT_DISK" if _full(orders["scratch"][0]) else ""
    os.write(saying, f"{status} {limit if status else ''}".encode())
    os._exit(0)


def _full(scratch: str) -> bool:
    """Whether nothing more could be put into scratch."""
    try:
        return os.statvfs(scratch).f_bavail == 0
    except OSError:
        return False


def _waited(binary: int, most: int) -> tuple[int, bool]:
    """How the binary ended, and whether there were as many processes as may be; others are buried meanwhile.

    The kernel holds everybody but root to that number. If root has more, all of them are ended.
    """
    crowded = False
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == binary:
            return status, crowded
        if ended:
            continue
        count = len([name for name in os.listdir("/proc") if name.isdigit()]) - 1  # without this one
        crowded = crowded or count >= most
        if count > most + 1:
            os.kill(-1, signal.SIGKILL)  # everything here but this process
        came = signal.sigtimedwait(_PASSED_ON, _COUNTED_EVERY)
        # Whoever sends from outside of the namespace has no id here; what comes from inside was not meant to be passed.
        if came is not None and came.si_signo != signal.SIGCHLD and not came.si_pid:
            os.kill(binary, came.si_signo)


def _end_like(status: int) -> NoReturn:
    """End as another process did, also by the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hardening.limit(hardening.Limits())  # no core file: it would be ours
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


# Walls ---------------------------------------------------------------------------------------------------------------


def _limits(orders: dict[str, Any]) -> hardening.Limits:
    limits = dict(orders["limits"])
    # A namespace counts for itself, this program included; without one the other tasks of the user count too.
    others = 2 if orders["namespaces"] else hardening.tasks_of_user()
    limits["processes"] = None if others is None else limits["processes"] + others
    return hardening.Limits(**limits)


def _wall(orders: dict[str, Any]) -> None:
    """Landlock and seccomp, always."""
    spaces: bool = orders["namespaces"]
    opened = [_checked(path, access, identity) for path, access, identity in orders["rules"]]
    try:
        ports = (_PROXY[1],) if spaces and orders["network"] else ()
        ruleset = landlock.ruleset([rule for rule, _ in opened], tcp_ports=ports, version=orders["landlock"])
    finally:
        for _, fd in opened:
            if fd is not None:
                os.close(fd)
    landlock.restrict(ruleset)
    os.close(ruleset)
    seccomp.install(_filter(orders["landlock"], spaces=spaces, network=orders["network"]))


def _filter(version: int, *, spaces: bool, network: bool) -> bytes:
    """The filter that closes the gaps of a version of Landlock."""
    own_pid = None if spaces or version >= landlock.SIGNALS_SINCE else os.getpid()
    inet = spaces and network
    return seccomp.program(execute=True, fork=True, inet=inet, metadata=spaces, own_pid=own_pid, abi=version)


def _checked(path: str, access: int, identity: list[int] | None) -> tuple[landlock.Rule, int | None]:
    """A rule for what the host has looked at: whoever put something else in its place meanwhile gains nothing."""
    if identity is None:
        return landlock.Rule(path, access), None
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    found = os.fstat(fd)
    if [found.st_dev, found.st_ino] != identity:
        raise OSError(errno.ESTALE, "a granted path has become another file", path)
    through = f"/proc/self/fd/{fd}"
    return landlock.Rule(through if os.path.lexists(through) else path, access), fd


def _reset_signals() -> None:
    """Take back what Python, or whoever started this, has set to its liking: ignoring is inherited."""
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)


def _become(orders: dict[str, Any]) -> NoReturn:
    _reset_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.chdir(orders["directory"])
        os.execve(orders["binary"], orders["argv"], orders["environment"])  # noqa: S606 - it has been checked
    except OSError as wrong:
        wrong.stage = "start"  # type: ignore[attr-defined]
        raise
