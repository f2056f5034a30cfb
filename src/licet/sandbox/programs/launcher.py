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
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from licet.sandbox.kernel import (
    births,
    connections,
    counted_entries,
    cover_watch,
    dumpable,
    entry_count,
    file_rights,
    frozen,
    hardening,
    landlock,
    metadata,
    namespaces,
    new_names,
    notifications,
    removals,
    seccomp,
    shared_sockets,
    signals,
    supervised_calls,
    system_calls,
)
from licet.sandbox.kernel.supervised_calls import Judge, SupervisedCalls
from licet.sandbox.limits import (
    FREEZE_SECONDS,
    LARGEST_ORDERS,
    LAUNCHER_BACKLOG,
    LONGEST_ENDING,
    LONGEST_REASON,
    MEASURED_AT_ONCE,
    PROGRAM_LOOK_SECONDS,
)

FAILED = 125  # like `env` and `timeout`; the reason goes to the socket
_PASSED_ON = signal.valid_signals() - {9, 19}  # without SIGKILL and SIGSTOP, which cannot be caught
_WITH_JOBS = ("foreground", "background")  # kinds of an own terminal, see `OwnedTerminal`
_GIVE_OR_TAKE = (signal.SIGTTIN, signal.SIGTTOU)  # from outside: the binary is to have what is typed, or not
_OF_A_JOB = (signal.SIGINT, signal.SIGTSTP, signal.SIGCONT)


def main(control: int, ending: int) -> None:
    """Follow the orders on a socket; does not return.

    `ending` is a pipe on which the walls report why the binary ended.
    """
    os.set_inheritable(control, False)
    host = socket.socket(fileno=control)
    try:
        hardening.close_all_but((0, 1, 2, control, ending))  # files of the supervisor
        orders, count = _orders(host)
        began = births.now()
        if orders["namespaces"]:
            _in_namespaces(orders, host, ending, count, began)
        if orders["supervised"]:
            _beside_the_machine(orders, host, ending, count, began)
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
    orders = {"namespaces": True, "supervised": False, "landlock": landlock.abi(), "unix": True, "removals": None}
    _filter(orders)
    _filter({**orders, "removals": {}})
    _filter_of_first(orders)


def _orders(host: socket.socket) -> tuple[dict[str, Any], entry_count.EntryCount | None]:
    """Read a length, and a JSON object of that length; with the length comes the file of a count, if there is one."""
    begun, files, _, _ = socket.recv_fds(host, 8, 1)
    for file in files:
        os.set_inheritable(file, False)  # the binary must not reset its own count
    size = int.from_bytes(begun + _exactly(host, 8 - len(begun)), "big")
    if size > LARGEST_ORDERS:
        raise ValueError("the orders are too long")
    orders: dict[str, Any] = json.loads(_exactly(host, size))
    if bool(files) is (orders.get("entries") is None):
        raise ValueError("the count of what it makes came without its limit, or the limit without its count")
    return orders, entry_count.EntryCount(orders["entries"], files[0]) if files else None


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


def _in_namespaces(
    orders: dict[str, Any], host: socket.socket, ending: int, count: entry_count.EntryCount | None, began: int
) -> NoReturn:
    """Enter new namespaces, wait for the program in them, and end as it ended. `began` is when the run began."""
    namespaces.enter()
    if orders["network"]:
        _pass_out(host, _listening())
    alive, watched = os.pipe()
    said, saying = os.pipe()
    own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # /proc will be that of the new namespace
    near, far = socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # `_pass_on_until_the_end` takes them
    first = os.fork()
    if not first:
        try:
            os.close(watched)
            near.close()
            _first_process(orders, host, alive, saying, far, count, began)
        except OSError as wrong:
            _report_error(host, wrong)
        finally:
            os._exit(FAILED)
    host.close()
    far.close()
    os.close(saying)
    for stream in (0, 1, 2):  # only the binary has its pipes open, so that they end with it
        os.close(stream)
    covers, watch = cover_watch.CoverWatch(near, own, orders), None
    with suppress(OSError, EOFError, cover_watch.Undecided):  # the first process reports why it was not started
        watch = covers if covers.begin() else None
    why = _pass_on_until_the_end(first, watch)  # the kernel then ends everything in its namespace
    if why:
        os.write(ending, f"CLOSED_FILE_REPLACED {why}".encode(errors="backslashreplace")[:LONGEST_REASON])
        _exit_like(signal.SIGKILL)
    status, _, report = (os.read(said, LONGEST_ENDING) or str(FAILED << 8).encode()).partition(b" ")
    os.write(ending, report)  # the limit that ended it, and what was refused; the status is that of this process
    _exit_like(int(status))


def _pass_on_until_the_end(first: int, watch: cover_watch.CoverWatch | None) -> str:
    """Pass signals on to the first process, which passes them on to the binary, until it ends.

    What is closed to the program is kept closed meanwhile. Returns why that could not be done and the program was
    ended, or an empty text.
    """
    signals, poll = _signal_file(), select.poll()
    poll.register(signals, select.POLLIN)
    why = ""
    while True:
        pause = None
        if watch is not None:
            watch.register(poll)
            pause = watch.pause()
        ready = dict(poll.poll(None if pause is None else 1000 * pause))
        if watch is not None:
            try:
                watch.look(ready)
            except EOFError:
                poll, watch = select.poll(), None
                poll.register(signals, select.POLLIN)
            except Exception as error:  # nothing may stay open, whatever goes wrong here
                why = str(error) or repr(error)
                os.kill(first, signal.SIGKILL)
                poll, watch = select.poll(), None
                poll.register(signals, select.POLLIN)
        for number, _ in _signals(signals) if signals in ready else ():
            if number != signal.SIGCHLD:
                os.kill(first, number)
            elif os.waitpid(first, os.WNOHANG)[0]:
                return why


def _signal_file() -> int:
    """A file that is readable when a signal came that is passed on; they must be blocked."""
    mask = sum(1 << (number - 1) for number in _PASSED_ON)
    number = system_calls.NUMBERS[system_calls.machine()]["signalfd4"]
    return system_calls.syscall("signalfd4", number, -1, mask.to_bytes(8, "little"), 8, os.O_CLOEXEC | os.O_NONBLOCK)


def _signals(file: int) -> list[tuple[int, int]]:
    """The signals that came, each with its sender: 0 for one outside of the namespace."""
    try:
        text = os.read(file, 128 * 32)
    except BlockingIOError:  # `frozen` has taken it
        return []
    return [struct.unpack_from("=I8xI", text, start)[:2] for start in range(0, len(text), 128)]


def _listening() -> socket.socket:
    """A listener on the loopback of the new network. The host accepts its connections."""
    listener = socket.socket()
    listener.bind(namespaces.PROXY)
    listener.listen(LAUNCHER_BACKLOG)
    return listener


def _pass_out(host: socket.socket, listener: socket.socket) -> None:
    socket.send_fds(host, [b"L"], [listener.fileno()])
    listener.close()


def _first_process(
    orders: dict[str, Any],
    host: socket.socket,
    alive: int,
    saying: int,
    watch: socket.socket,
    count: entry_count.EntryCount | None,
    began: int,
) -> NoReturn:
    """The init process of the new namespace, behind the same walls as the binary."""
    hardening.die_with(0)  # a parent in another namespace has no id here
    if select.select([alive], [], [], 0)[0]:  # the parent ended before `die_with`
        os._exit(FAILED)
    for stream in (0, 1, 2):
        namespaces.guard_terminal(stream)
    mounts = orders["mounts"]
    covers = namespaces.private_root(
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
        absent=mounts.get("absent", ()),
        proc=True,
    )
    cover_watch.send_covers(watch, covers)
    # This process leads the session of a terminal that was made for the binary, as a shell does: the kernel stops a job
    # on Ctrl-Z only if somebody in its session can let it go on.
    terminal = _lead_session() if orders["own_terminal"] in _WITH_JOBS else None
    keep = connections.CAPABILITIES if orders["unix"] else (connections.SYS_PTRACE,)
    files = (0, 1, 2, host.fileno(), saying, watch.fileno(), *(() if count is None else (count.file,)))
    files += () if terminal is None else (terminal,)
    hardening.harden(limits=_limits(orders), keep_fds=files, keep_capabilities=keep)
    _restrict_files(orders)
    judged = _removals(orders, began)
    near, far = socket.socketpair()
    binary = os.fork()
    if not binary:
        try:
            os.close(saying)
            watch.close()
            near.close()
            _lead(orders["own_terminal"], terminal)
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
    counted = _counting(count)
    judges: Sequence[Judge] = (connections.Connections(orders["sockets"]), *judged, *counted)
    supervised = [SupervisedCalls(listener, judges) for listener in listeners]
    for calls in supervised:
        calls.start()
    status, crowded = _wait_for(binary, orders["limits"], supervised, watch, terminal)
    limit = "LIMIT_PROCESSES" if crowded else "LIMIT_DISK" if _full(orders["scratch"][0][0]) else ""
    if any(counter.refused for counter in counted):
        limit = limit or "LIMIT_PATHS"
    os.write(saying, f"{status} {limit if status else ''}{_report(judged)}".encode())
    os._exit(0)


def _report(judged: Sequence[removals.Removals]) -> str:
    """What was refused, as it follows the limit that ended a program."""
    return "".join(f"\n{json.dumps(judge.report, ensure_ascii=False)}" for judge in judged)


def _removals(
    orders: dict[str, Any], began: int, rights: file_rights.FileRights | None = None
) -> tuple[removals.Removals, ...]:
    """What judges deletes that nobody has approved, if there are some. Files that are made from now on are new."""
    judged = orders["removals"]
    if judged is None:
        return ()
    since = began if judged["since"] is None else min(began, judged["since"])
    known = births.Births(since, judged["directories"])
    known.wait()
    return (removals.Removals(known, judged["scratch"], None if rights is None else rights.may_delete),)


def _counting(count: entry_count.EntryCount | None) -> tuple[counted_entries.CountedEntries, ...]:
    return () if count is None else (counted_entries.CountedEntries(count),)


def _copies(mounts: dict[str, Any]) -> Iterator[namespaces.Copy]:
    """The files that are shown with other contents; the orders have each content once, and each byte as a letter."""
    for path, number, mode in mounts.get("copies", ()):
        yield namespaces.Copy(path, mounts["contents"][number].encode("latin-1"), mode)


def _lead_session() -> int | None:
    """Lead a session at the terminal among the streams; returns that terminal, open a second time."""
    os.setsid()
    terminal = _take_terminal()
    return None if terminal is None else fcntl.fcntl(terminal, fcntl.F_DUPFD_CLOEXEC, 3)


def _take_terminal() -> int | None:
    """Make the terminal among the streams the one that controls this session: then there are jobs and `/dev/tty`."""
    for stream in (0, 1, 2):
        if os.isatty(stream):
            fcntl.ioctl(stream, termios.TIOCSCTTY, 0)
            return stream
    return None


def _lead(own_terminal: str, terminal: int | None) -> None:
    """Lead a group of processes, which Ctrl-C goes to; in the foreground of its terminal, if it is to be there."""
    if own_terminal == "alone":
        _lead_session()
        return
    os.setpgid(0, 0)
    if terminal is not None and own_terminal == "foreground":
        os.tcsetpgrp(terminal, os.getpid())


def _filter_binary(orders: dict[str, Any], first: socket.socket) -> None:
    """Install the filter of the binary, and give its listener to the first process, which makes the connections."""
    hardening.drop_capabilities()
    if orders["unix"]:
        listener = notifications.install(_filter(orders))
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


def _wait_for(
    binary: int,
    limits: Mapping[str, int],
    supervised: Sequence[SupervisedCalls],
    watch: socket.socket,
    terminal: int | None = None,
) -> tuple[int, bool]:
    """The wait status of the binary, and whether the limit of processes was reached; reaps other processes meanwhile.

    The kernel enforces the limit for every user but root. If root exceeds it, all processes here are killed. It has no
    limit for shared memory: a process that has more than `memory_bytes` of it mapped is killed.

    All are stopped while the process at the other end of `watch` asks for it: see `cover_watch`. `terminal` is the
    binary's own.
    """
    crowded, most, turn = False, limits["processes"], 0
    signals, poll = _signal_file(), select.poll()
    poll.register(signals, select.POLLIN)
    poll.register(watch, select.POLLIN)
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG | frozen.EVERY_TASK)
        if ended and os.WIFSTOPPED(status):  # it stopped when all others went on already
            frozen.release(ended, frozen.pending_signal(status))
            continue
        if ended == binary:
            return status, crowded
        if ended:
            continue
        for calls in supervised:
            calls.interrupt_abandoned()
        found = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]  # without this one
        crowded = crowded or len(found) >= most
        if len(found) > most + 1:
            os.kill(-1, signal.SIGKILL)  # every process of the namespace but this one
        turn = turn + MEASURED_AT_ONCE if turn + MEASURED_AT_ONCE < len(found) else 0
        for name in found[turn : turn + MEASURED_AT_ONCE]:
            if _shares_more_than(limits["memory_bytes"], name):
                with suppress(ProcessLookupError):
                    os.kill(int(name), signal.SIGKILL)
        ready = dict(poll.poll(1000 * PROGRAM_LOOK_SECONDS))
        if watch.fileno() in ready:
            for ended, status in _stand_still(watch):
                if ended == binary:
                    return status, crowded
        # A sender outside of the namespace has no pid here. Signals from inside are not passed on.
        for number, sender in _signals(signals) if signals in ready else ():
            if number != signal.SIGCHLD and not sender:
                if number in _GIVE_OR_TAKE and terminal is not None:
                    with suppress(OSError):  # its other end is closed, or the group has ended
                        os.tcsetpgrp(terminal, binary if number == signal.SIGTTIN else os.getpgrp())
                    number = signal.SIGCONT  # which is what the binary hears of it
                _send(binary, number)


def _stand_still(watch: socket.socket) -> Sequence[tuple[int, int]]:
    """Stop every process until the one that watches lets them go on; returns those that have ended meanwhile."""
    if watch.recv(1) != cover_watch.FREEZE:  # it has ended: nothing would be closed again
        os.kill(-1, signal.SIGKILL)
        os._exit(FAILED)
    try:
        stopped = frozen.freeze(time.monotonic() + FREEZE_SECONDS)
    except frozen.NotFrozen as error:
        watch.sendall(str(error).encode())
        watch.recv(1)  # which ends this process
        os._exit(FAILED)
    watch.sendall(cover_watch.IS_FROZEN)
    if watch.recv(1) != cover_watch.GO_ON:
        os._exit(FAILED)
    stopped.thaw()
    return stopped.ended


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
    """Send a signal to the binary; Ctrl-C, and what stops a job, also to what it has started, as a terminal does."""
    try:
        os.kill(-binary if number in _OF_A_JOB else binary, number)
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


# Beside the processes of the machine ---------------------------------------------------------------------------------


def _beside_the_machine(
    orders: dict[str, Any], host: socket.socket, ending: int, count: entry_count.EntryCount | None, began: int
) -> NoReturn:
    """Start the binary without namespaces, answer its calls, and end as it ended.

    This process is behind the same Landlock rules, with a domain around that of the binary: so it can look into the
    processes of the run and no others, and they can neither look into it nor, from Landlock's version 6 on, signal it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    hardening.adopt_orphans()  # Yama lets this process look into its descendants alone
    door = _proxy_door(host) if orders["network"] else None
    diagnostics = shared_sockets.diagnostics()
    near, far = socket.socketpair()
    kept = (*(() if door is None else door.files), *(() if diagnostics is None else (diagnostics.fileno(),)))
    files = (0, 1, 2, host.fileno(), near.fileno(), far.fileno(), ending, *kept)
    limits = _limits(orders)
    hardening.harden(limits=limits, keep_fds=(*files, *(() if count is None else (count.file,))))
    rules = [landlock.PathRule(path, access) for path, access, _ in orders["rules"]]
    shared = os.path.join(os.path.realpath(orders["scratch"][0][0]), ".shared-memory")
    rights = file_rights.FileRights(rules, file_rights.trees_of(orders["trees"]))
    inner = _inner_rules(orders)
    _restrict_files(orders)
    judged = _removals(orders, began, rights)
    own = os.getpid()
    binary = os.fork()
    if not binary:
        try:
            os.close(ending)
            near.close()
            hardening.die_with(own)
            _lead("alone" if orders["own_terminal"] else "", None)  # nobody here lets a stopped job go on
            landlock.restrict(inner)
            os.close(inner)
            listener = notifications.install(_filter(orders))
            socket.send_fds(far, [b"L"], [listener])
            os.close(listener)
            far.close()
            _exec(orders)
        except OSError as error:
            _report_error(host, error)
        finally:
            os._exit(FAILED)
    host.close()
    far.close()
    os.close(inner)
    os.umask(0o077)  # what is made for the program gets the mode that this asks for later
    for stream in (0, 1, 2):  # only the binary has its pipes open, so that they end with it
        os.close(stream)
    _reset_signals()
    _, listeners, _, _ = socket.recv_fds(near, 1, 1)  # nothing comes if there is no filter
    near.close()
    counted = _counting(count)
    counter = counted[0] if counted else None
    sockets = shared_sockets.SharedSockets(door, diagnostics, rights, counter, orders["sockets"])
    roots = {root for tree in orders["trees"] for root in tree["roots"]}
    names = new_names.NewNames(rights, roots, shared, counter, judged[0] if judged else None)
    judges: list[Judge] = [sockets, metadata.Metadata(rights), dumpable.Dumpable(), names]
    if orders["landlock"] < landlock.SIGNALS_SINCE:
        judges.append(signals.Signals())
    seccomp.install(_filter_of_first(orders))
    supervised = [SupervisedCalls(listener, (*judges, *counted)) for listener in listeners]
    for calls in supervised:
        calls.start()
    status, crowded = _wait_beside(binary, orders["limits"], supervised)
    reason = "LIMIT_PROCESSES" if crowded else "LIMIT_PATHS" if any(counter.refused for counter in counted) else ""
    os.write(ending, f"{reason if status else ''}{_report(judged)}".encode())
    _exit_like(status)


def _proxy_door(host: socket.socket) -> shared_sockets.ProxyDoor:
    """Where the connections of the program to its proxy are made; the host takes them from the other end."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _pass_out(host, far)
    return shared_sockets.ProxyDoor(namespaces.PROXY, near)


def _inner_rules(orders: dict[str, Any]) -> int:
    """The ruleset of the binary inside of that of its supervisor: without TCP, and without signals to the outside.

    Where the supervisor opens what lies beside closed names, it has wider rules for files than the binary.
    """
    if not orders["trees"]:
        return landlock.confinement(version=orders["landlock"])
    return _ruleset(orders["rules"], (), orders["landlock"])


def _wait_beside(binary: int, limits: Mapping[str, int], supervised: Sequence[SupervisedCalls]) -> tuple[int, bool]:
    """The wait status of the binary, and whether there were more processes than it may have; reaps others meanwhile."""
    crowded, most, outer = False, limits["processes"], os.getppid()
    arrived, poll = _signal_file(), select.poll()
    poll.register(arrived, select.POLLIN)
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == binary:
            return status, crowded
        if ended:
            continue
        for calls in supervised:
            calls.interrupt_abandoned()
        processes = list(descendants())
        crowded = crowded or len(processes) >= most
        for process in processes[most + 1 :]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ready = poll.poll(1000 * PROGRAM_LOOK_SECONDS)
        for number, sender in _signals(arrived) if ready else ():
            if number != signal.SIGCHLD and sender == outer:  # those of the program are not passed on
                _send(binary, number)


def descendants() -> Iterator[int]:
    """The processes that this one has started, and those that they have started."""
    above = [os.getpid()]
    while above:
        process = above.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{task}/children", "rb", buffering=0) as file:
                    children = [int(child) for child in file.read().split()]
                yield from children
                above += children


# Walls ---------------------------------------------------------------------------------------------------------------


def _limits(orders: dict[str, Any]) -> hardening.Limits:
    limits = dict(orders["limits"])
    # A namespace counts its own processes, with these two and the threads of one; without one, all tasks of the user.
    others = 2 + supervised_calls.THREADS * orders["unix"] if orders["namespaces"] else hardening.tasks_of_user()
    if others is not None and orders["supervised"]:
        others += 1 + supervised_calls.THREADS
    limits["processes"] = None if others is None else limits["processes"] + others
    return hardening.Limits(**limits)


def _restrict_files(orders: dict[str, Any]) -> None:
    """Restrict this process with Landlock."""
    # In a network of its own a program may listen and connect on any port: there is only its loopback, and the
    # proxy, if it has one. Without such a network it may do neither.
    # Beside the machine the supervisor, which this holds for too, connects for it: see `_inner_rules`.
    ports = None if orders["namespaces"] or orders["supervised"] else ()
    ruleset = _ruleset([*orders["rules"], *orders["wide"]], ports, orders["landlock"])
    landlock.restrict(ruleset)
    os.close(ruleset)


def _ruleset(rules: Sequence[Any], ports: Sequence[int] | None, version: int) -> int:
    opened = [_checked(path, access, identity) for path, access, identity in rules]
    try:
        return landlock.ruleset([rule for rule, _ in opened], tcp_ports=ports, version=version)
    finally:
        for _, fd in opened:
            if fd is not None:
                os.close(fd)


def _filter(orders: dict[str, Any]) -> bytes:
    """The seccomp filter of a program, which also closes the gaps of a version of Landlock."""
    spaces, version = orders["namespaces"], orders["landlock"]
    own_pid = None if spaces or version >= landlock.SIGNALS_SINCE else os.getpid()
    unix: seccomp.Unix = "asks" if orders["unix"] or orders["supervised"] else "none"
    return seccomp.program(
        execute=True,
        fork=True,
        inet=spaces,
        metadata=spaces,
        own_pid=own_pid,
        abi=version,
        unix=unix,
        counts=orders.get("entries") is not None,
        removals=orders["removals"] is not None,
        beside=orders["supervised"],
        asked_names=_asked_names(orders) if orders["supervised"] else "none",
    )


def _asked_names(orders: dict[str, Any]) -> seccomp.Names:
    """Which calls on names the supervisor makes."""
    reads = any(tree["closed"] and tree["rights"] & landlock.READ_FILE for tree in orders["trees"])
    return "read" if reads else "written"


def _filter_of_first(orders: dict[str, Any]) -> bytes:
    """The seccomp filter of the first process: it starts nothing more, and makes no sockets."""
    beside = orders["supervised"]
    unix: seccomp.Unix = "judges" if orders["unix"] or beside else "none"
    return seccomp.program(abi=orders["landlock"], unix=unix, traces=not beside, beside=beside)


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
