"""Lets unmodified libraries connect over TCP from a worker: the host connects, and passes the socket in.

A convenience, not a wall: the kernel allows no sockets here. A socket is a placeholder until it is connected. Names are
resolved by the host when it connects.
"""

import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

Connect = Callable[[str, int], int]  # returns the fd of a connection, or raises OSError

_STREAM = 0xF  # the bits of a socket type without flags
_SERVICES = {"http": 80, "https": 443, "postgresql": 5432, "redis": 6379, "mysql": 3306, "amqp": 5672}


def install(connect: Connect) -> None:
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
        host: Any,
        port: Any,
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


def _port(port: Any) -> int:
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

        def connect(self, address: Any) -> None:
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

        def connect_ex(self, address: Any) -> int:
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

        def bind(self, address: Any) -> None:
            raise PermissionError(errno.EACCES, "listening sockets are not available behind walls")

        def close(self) -> None:
            if self._other_end is not None:
                self._other_end.close()
                self._other_end = None
            super().close()

    Socket.__name__ = Socket.__qualname__ = "socket"
    return Socket
