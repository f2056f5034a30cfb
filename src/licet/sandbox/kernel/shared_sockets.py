"""Connects, binds and listens for a program in a network that it shares with the machine.

All of that is made on a copy of the caller's socket, with a copy of the address, and no other call of the program leads
to a peer. A TCP socket is connected to the proxy of the run or to a listener of the run, and is bound on the loopback
alone. A unix socket is bound to a path, and connected to one that was bound here.

A listener is known by its inode. While a connection to one is made, this process holds a copy of it, which it took from
a process of the program: so nobody else can listen at its port meanwhile. For that `shutdown`, which would end the
listening of all copies, is made here too, and the filter refuses to share ports.
"""

import _thread
import errno
import os
import re
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.caller_files import AT_FDCWD, opened
from licet.sandbox.kernel.connections import Connections, address_of_file, is_marked, make, mark, path_in, signed
from licet.sandbox.kernel.counted_entries import CountedEntries
from licet.sandbox.kernel.entry_count import FULL
from licet.sandbox.kernel.file_rights import FileRights, path_of
from licet.sandbox.kernel.notifications import Notice, answer, go_on, memory, open_file, waits
from licet.sandbox.kernel.signals import process_of
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import (
    LAUNCHER_BACKLOG,
    LONGEST_ADDRESS,
    MOST_KNOWN_SOCKETS,
    MOST_SEARCHED_FILES,
    SHARED_CONNECT_SECONDS,
)

if sys.platform != "win32":
    import fcntl

_DOMAIN, _ACCEPTS = 39, 30  # SO_DOMAIN, SO_ACCEPTCONN
_LOOPBACK4, _LOOPBACK6 = bytes((127, 0, 0, 1)), bytes(15) + b"\1"
_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 address in IPv6
_UNSPECIFIED = struct.pack("=H14x", socket.AF_UNSPEC)
_INODE = re.compile(r"socket:\[([0-9]+)\]")


class _Peer(NamedTuple):
    """An address of the loopback: of IPv4 if it has four bytes, else of IPv6."""

    address: bytes
    port: int

    def packed(self, family: int) -> bytes:
        """The structure for a socket of this family."""
        if family == socket.AF_INET:
            return struct.pack("=H", family) + struct.pack("!H", self.port) + self.address + bytes(8)
        long = self.address if len(self.address) == 16 else _MAPPED + self.address
        return struct.pack("=H", family) + struct.pack("!HI", self.port, 0) + long + bytes(4)


class _Listener(NamedTuple):
    """A listening TCP socket: its inode, where a process has it open, and whether it takes IPv6 and IPv4."""

    inode: int
    process: int
    file: int
    takes_both: bool


class ProxyDoor:
    """Where connections to the proxy of this run begin; its host gets the other end of each, from here alone.

    Anybody on the machine can connect to this listener. A connection is the caller's if its two ends name each other
    while both are open: there is one connection between two addresses at a time. All others are closed unread.
    """

    def __init__(self, address: tuple[str, int], channel: socket.socket) -> None:
        self.address = _Peer(socket.inet_aton(address[0]), address[1])
        self._channel = channel
        self._channel.setblocking(False)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=LAUNCHER_BACKLOG)
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._lock = _thread.allocate_lock()

    @property
    def files(self) -> tuple[int, int]:
        """What must stay open for it."""
        return self._channel.fileno(), self._listener.fileno()

    def connect(self, made: int, family: int) -> None:
        """Connect a socket to the proxy."""
        with self._lock:
            for end in self._waiting():
                end.close()
            _connect_now(made, _Peer(_LOOPBACK4, self._port).packed(family))
            own = _name_of(made)
            until = time.monotonic() + SHARED_CONNECT_SECONDS
            while (left := until - time.monotonic()) > 0:
                for end in self._waiting():
                    with end:
                        if _peer_of(end.fileno()) == own and _peer_of(made) == (_LOOPBACK4, self._port):
                            self._hand_over(end)
                            return
                _ready(self._listener.fileno(), select.POLLIN, left)
        raise OSError(errno.ETIMEDOUT, "the proxy does not answer")

    def _waiting(self) -> Iterator[socket.socket]:
        with suppress(BlockingIOError):
            for _ in range(2 * LAUNCHER_BACKLOG):
                with suppress(ConnectionAbortedError):
                    yield self._listener.accept()[0]

    def _hand_over(self, end: socket.socket) -> None:
        try:
            socket.send_fds(self._channel, [b"C"], [end.fileno()])
        except OSError as error:  # the host takes no more, or has ended
            raise OSError(errno.ECONNREFUSED, "the proxy takes no connection") from error


class SharedSockets(Connections):
    """The judge of `connect`, `bind`, `listen` and `shutdown`.

    Without a `door` there is no proxy. `diagnostics` is a netlink socket that tells the inodes of unix sockets; without
    one there are no unix sockets with names. With a `counter` each path that is bound counts as made.
    """

    names = frozenset({"connect", "bind", "listen", "shutdown", "landlock_restrict_self"})

    def __init__(
        self,
        door: ProxyDoor | None,
        diagnostics: socket.socket | None,
        rights: FileRights,
        counter: CountedEntries | None = None,
        granted: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        super().__init__(granted)
        self._door, self._diagnostics, self._rights, self._counter = door, diagnostics, rights, counter
        self._ports: dict[_Peer, _Listener] = {}
        self._connecting: dict[int, int] = {}  # connections that are being made, by the inode of the listener

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Make a call for its caller, or refuse it."""
        if notice.name == "landlock_restrict_self":
            mark(notice.thread)
            go_on(calls.listener, notice)
            return
        made = open_file(notice.thread, signed(notice.arguments[0]))
        try:
            family = _family(made)
            if is_marked(notice.thread) and notice.name != "shutdown":
                raise OSError(errno.EACCES, "the caller has restricted itself")
            address = self._address(notice) if notice.name in ("connect", "bind") else b""
            if family == socket.AF_UNIX and notice.name == "connect":
                self._connect_unix(calls, notice, made, address, may_block=may_block)
            else:
                if family == socket.AF_UNIX and notice.name == "bind":
                    _check_path(address)
                if not waits(calls.listener, notice):  # all this may have been that of another thread
                    raise OSError(errno.ESRCH, "the caller is gone")
                self._make(notice, made, family, address, may_block=may_block)
            answer(calls.listener, notice, 0)
        finally:
            os.close(made)

    @staticmethod
    def _address(notice: Notice) -> bytes:
        size = signed(notice.arguments[2])
        if not 2 <= size <= LONGEST_ADDRESS:
            raise OSError(errno.EINVAL, "no address is that long, or that short")
        return memory(notice.thread, notice.arguments[1], size)

    def _make(self, notice: Notice, made: int, family: int, address: bytes, *, may_block: bool) -> None:
        match notice.name:
            case "connect":
                self._connect_inet(made, family, _peer(address, family))
            case "bind" if family == socket.AF_UNIX:
                self._bind_unix(notice, made, address)
            case "bind":
                self._bind_inet(made, family, _peer(address, family))
            case "listen":
                self._listen(notice, made, family, signed(notice.arguments[1]))
            case _:
                self._shut_down(made, signed(notice.arguments[1]))

    # TCP

    def _connect_inet(self, made: int, family: int, peer: _Peer | None) -> None:
        if peer is None or not _is_loopback(peer.address):
            raise OSError(errno.ENETUNREACH, "an address outside of this run")
        if not any(peer.address):  # the unspecified address means this machine
            peer = peer._replace(address=_LOOPBACK4 if len(peer.address) == 4 else _LOOPBACK6)
        if self._door is not None and peer == self._door.address:
            self._door.connect(made, family)
            return
        with self._held(peer) as reached:
            if len(reached.address) == 16 and family == socket.AF_INET:
                raise OSError(errno.ECONNREFUSED, "nothing listens there")
            _connect_now(made, reached.packed(family))

    @contextmanager
    def _held(self, peer: _Peer) -> Iterator[_Peer]:
        """The address of a listener of this run, which stays one meanwhile."""
        with self._lock:
            listener = self._ports.get(peer)
            if listener is None and peer.address == _LOOPBACK6:
                peer = peer._replace(address=_LOOPBACK4)
                listener = self._ports.get(peer)
                listener = listener if listener is not None and listener.takes_both else None
            if listener is None:
                raise OSError(errno.ECONNREFUSED, "nothing of this run listens there")
            inode = listener.inode
            self._connecting[inode] = self._connecting.get(inode, 0) + 1
        try:
            copy = _copy_of(listener)
            try:
                # The same socket may have been bound anew, and this port may be a foreign one by now.
                if copy < 0 or not _option(copy, _ACCEPTS) or _Peer(*_name_of(copy)) != peer:
                    with self._lock:
                        if self._ports.get(peer) == listener:
                            del self._ports[peer]
                    raise OSError(errno.ECONNREFUSED, "nothing of this run listens there any more")
                yield peer
            finally:
                if copy >= 0:
                    os.close(copy)
        finally:
            with self._lock:
                self._connecting[inode] -= 1
                if not self._connecting[inode]:
                    del self._connecting[inode]

    def _bind_inet(self, made: int, family: int, peer: _Peer | None) -> None:
        if peer is None or not _is_loopback(peer.address):
            raise OSError(errno.EADDRNOTAVAIL, "an address outside of the loopback")
        if not any(peer.address):
            # A listener for both versions can be bound to one address: that of IPv4, where both reach it.
            only6 = len(peer.address) == 16 and _option(made, socket.IPV6_V6ONLY, socket.IPPROTO_IPV6)
            peer = peer._replace(address=_LOOPBACK6 if only6 else _LOOPBACK4)
        if self._door is not None and peer == self._door.address:
            raise OSError(errno.EADDRINUSE, "the port of the proxy")
        if family == socket.AF_INET and len(peer.address) == 16:
            raise OSError(errno.EINVAL, "an address of IPv6 for a socket of IPv4")
        address = peer.packed(family)
        system_calls.syscall("bind", _number("bind"), made, address, len(address))

    def _listen(self, notice: Notice, made: int, family: int, backlog: int) -> None:
        if family == socket.AF_UNIX:
            system_calls.syscall("listen", _number("listen"), made, backlog)
            return
        with self._lock:  # nothing is shut down meanwhile
            if not _name_of(made)[1]:  # the kernel would bind it to every address
                wanted: tuple[bytes, int] = (bytes(4 if family == socket.AF_INET else 16), 0)
                self._bind_inet(made, family, _Peer(*wanted))
            peer = _Peer(*_name_of(made))
            if not _is_loopback(peer.address) or not any(peer.address):
                raise OSError(errno.EACCES, "bound outside of the loopback")
            system_calls.syscall("listen", _number("listen"), made, backlog)
            if _Peer(*_name_of(made)) != peer:
                system_calls.syscall("shutdown", _number("shutdown"), made, socket.SHUT_RDWR)
                raise OSError(errno.EADDRINUSE, "the port is taken")
            takes_both = family == socket.AF_INET6 and len(peer.address) == 4
            listener = _Listener(
                os.fstat(made).st_ino, process_of(notice.thread), signed(notice.arguments[0]), takes_both
            )
            self._forget_ports(listener.inode)
            self._ports.pop(peer, None)
            self._ports[peer] = listener
            while len(self._ports) > MOST_KNOWN_SOCKETS:
                del self._ports[next(iter(self._ports))]

    def _shut_down(self, made: int, how: int) -> None:
        with self._lock:
            if os.fstat(made).st_ino in self._connecting and _option(made, _ACCEPTS):
                raise OSError(errno.EBUSY, "a connection to it is being made")
            system_calls.syscall("shutdown", _number("shutdown"), made, how)
            if not _option(made, _ACCEPTS):
                self._forget_ports(os.fstat(made).st_ino)

    def _forget_ports(self, inode: int) -> None:
        """Forget where a socket has listened."""
        for peer in [peer for peer, listener in self._ports.items() if listener.inode == inode]:
            del self._ports[peer]

    # Unix sockets

    def _connect_unix(
        self, calls: SupervisedCalls, notice: Notice, made: int, address: bytes, *, may_block: bool
    ) -> None:
        path = _check_path(address)
        blocks = not fcntl.fcntl(made, fcntl.F_GETFL) & os.O_NONBLOCK
        if blocks and not may_block:
            raise OSError(errno.EAGAIN, "too many connections wait")
        target = self._own(path, notice.thread)
        try:
            if not waits(calls.listener, notice):
                raise OSError(errno.ESRCH, "the caller is gone")
            with calls.interruptible(notice) if blocks else nullcontext():
                make(calls.listener, made, address_of_file(target), notice)
        finally:
            os.close(target)

    def _bind_unix(self, notice: Notice, made: int, address: bytes) -> None:
        """Bind a socket to a path, and record the file that this made.

        Who replaces it before it is recorded puts another file there, with another inode than the kernel has for the
        socket. It tells the lower half of that number. Both files are in one directory, and so on one file system.
        """
        if self._diagnostics is None:
            raise OSError(errno.EACCES, "the kernel does not tell the files of unix sockets")
        above, _, name = path_in(address).rpartition(b"/")
        start = b"/" if address[2:3] == b"/" and not above else above or b"."
        directory = opened(notice.thread, AT_FDCWD, start, follow=True)
        with self._rights.lock:
            try:
                real = os.path.join(path_of(directory), os.fsdecode(name))
                if not self._rights.may_write(real) or self._rights.leads_to_closed(real):
                    raise OSError(errno.EACCES, "no socket can be bound there")
                if self._counter is not None and not self._counter.take():
                    raise OSError(FULL, "too many paths were made")
                os.fchdir(directory)
                # The path is also what the socket is called.
                path = os.fsencode(real) if address[2:3] == b"/" else name
                where = struct.pack("=H", socket.AF_UNIX) + path + b"\0"
                system_calls.syscall("bind", _number("bind"), made, where, len(where))
                file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            finally:
                os.chdir("/")
                os.close(directory)
            is_bound_there = False  # otherwise nobody can connect to it
            try:
                is_bound_there = os.fstat(file).st_ino & 0xFFFFFFFF == _inode_of_file(self._diagnostics, made)
            finally:
                if not is_bound_there:
                    os.close(file)
            if is_bound_there:
                self._remember(file)


def _connect_now(made: int, address: bytes) -> None:
    """Connect a TCP socket on the loopback, within a time that the caller does not choose.

    It is not left connecting: what it would reach later may be another listener.
    """
    flags = fcntl.fcntl(made, fcntl.F_GETFL)
    fcntl.fcntl(made, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        system_calls.syscall("connect", _number("connect"), made, address, len(address))
    except BlockingIOError:
        _ready(made, select.POLLOUT, SHARED_CONNECT_SECONDS)
        if error := _option(made, socket.SO_ERROR):
            raise OSError(error, os.strerror(error)) from None
        if _peer_of(made) is None:
            system_calls.syscall("connect", _number("connect"), made, _UNSPECIFIED, len(_UNSPECIFIED))
            raise OSError(errno.ETIMEDOUT, "the listener takes no more connections") from None
    finally:
        fcntl.fcntl(made, fcntl.F_SETFL, flags)


def _ready(file: int, events: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(file, events)
    poll.poll(1000 * seconds)


def _copy_of(listener: _Listener) -> int:
    """A copy of a listener, taken from a process that has it; -1 if none has it any more."""
    with suppress(OSError):
        return _same(open_file(listener.process, listener.file), listener.inode)
    searched = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                searched += 1
                if searched > MOST_SEARCHED_FILES:
                    return -1
                found = _INODE.fullmatch(os.readlink(f"/proc/{process}/fd/{number}"))
                if found and int(found[1]) == listener.inode:
                    return _same(open_file(int(process), int(number)), listener.inode)
    return -1


def _same(file: int, inode: int) -> int:
    with suppress(OSError):  # not a socket: inodes are numbered anew in each file system
        if os.fstat(file).st_ino == inode and _family(file) in (socket.AF_INET, socket.AF_INET6):
            return file
    os.close(file)
    raise OSError(errno.ENOENT, "another file by now")


def _family(file: int) -> int:
    return _option(file, _DOMAIN)


def _option(file: int, option: int, level: int = socket.SOL_SOCKET) -> int:
    same = socket.socket(fileno=file)  # if it is none, this raises, and closes nothing
    try:
        return same.getsockopt(level, option)
    finally:
        same.detach()


def _name_of(file: int) -> tuple[bytes, int]:
    """The address that a TCP socket is bound to."""
    same = socket.socket(fileno=file)
    try:
        return _short(same.getsockname(), same.family)
    finally:
        same.detach()


def _peer_of(file: int) -> tuple[bytes, int] | None:
    """The address that a TCP socket is connected to; None for one that is not connected."""
    same = socket.socket(fileno=file)
    try:
        return _short(same.getpeername(), same.family)
    except OSError:
        return None
    finally:
        same.detach()


def _short(name: tuple[str, int, int, int] | tuple[str, int], family: int) -> tuple[bytes, int]:
    return socket.inet_pton(family, name[0].partition("%")[0]).removeprefix(_MAPPED), name[1]


def _peer(address: bytes, family: int) -> _Peer | None:
    """The peer that an address names for a socket of a family; None if it is of another family."""
    (named,) = struct.unpack_from("=H", address)
    if family not in (socket.AF_INET, socket.AF_INET6) or named != family:
        raise OSError(errno.EAFNOSUPPORT, "an address of another family")
    if len(address) < (16 if family == socket.AF_INET else 24):
        raise OSError(errno.EINVAL, "the address is too short")
    (port,) = struct.unpack_from("!H", address, 2)
    if family == socket.AF_INET:
        return _Peer(address[4:8], port)
    long = address[8:24]
    return _Peer(long[12:] if long.startswith(_MAPPED) else long, port)


def _is_loopback(address: bytes) -> bool:
    """Whether an address is on the loopback, or the unspecified one."""
    return not any(address) or (address[0] == 127 if len(address) == 4 else address == _LOOPBACK6)


def _check_path(address: bytes) -> bytes:
    """The path in the address of a unix socket; refuses names without a file, which are those of the whole machine."""
    if struct.unpack_from("=H", address)[0] != socket.AF_UNIX:
        raise OSError(errno.EINVAL, "an address of another family")
    if not (path := path_in(address)):
        raise OSError(errno.EACCES, "a unix socket without a path")
    return path


def _number(name: str) -> int:
    return system_calls.NUMBERS[system_calls.machine()][name]


# `unix_diag` of netlink: without privileges, the kernel tells the file of a unix socket by the inode of the socket.
_REQUEST, _ABOUT_FAMILY, _SHOW_FILE, _ERROR = 1, 20, 2, 2
_HEADER, _QUESTION, _ATTRIBUTE, _FILE = (
    struct.Struct("=IHHII"), struct.Struct("=BBHIIIII"), struct.Struct("=HH"), struct.Struct("=II"),
)  # fmt: skip
_OF_ANSWER, _FILE_ATTRIBUTE, _ANY = 16, 1, 0xFFFFFFFF


def diagnostics() -> socket.socket | None:
    """A netlink socket that tells the files of unix sockets; None on a kernel without it."""
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
        made.settimeout(5)
        with socket.socket(socket.AF_UNIX) as unbound:
            _inode_of_file(made, unbound.fileno())
    except OSError as error:
        return made if error.errno == errno.ENODATA else None
    return made


def _inode_of_file(asked: socket.socket, unix: int) -> int:
    """The lower half of the inode of the file that a unix socket is bound to; ENODATA if it is bound to none."""
    inode = os.fstat(unix).st_ino
    question = _QUESTION.pack(socket.AF_UNIX, 0, 0, _ANY, inode & 0xFFFFFFFF, _SHOW_FILE, _ANY, _ANY)
    asked.send(_HEADER.pack(_HEADER.size + len(question), _ABOUT_FAMILY, _REQUEST, 0, 0) + question)
    answered = asked.recv(1 << 13)
    size, kind, _, _, _ = _HEADER.unpack_from(answered)
    if kind == _ERROR:
        (number,) = struct.unpack_from("=i", answered, _HEADER.size)
        raise OSError(-number or errno.EIO, "the kernel does not tell the file of a unix socket")
    start = _HEADER.size + _OF_ANSWER
    while start + _ATTRIBUTE.size <= min(size, len(answered)):
        length, attribute = _ATTRIBUTE.unpack_from(answered, start)
        if attribute == _FILE_ATTRIBUTE:
            return int(_FILE.unpack_from(answered, start + _ATTRIBUTE.size)[0])
        start += max(length + 3 & ~3, _ATTRIBUTE.size)
    raise OSError(errno.ENODATA, "a unix socket without a file")
