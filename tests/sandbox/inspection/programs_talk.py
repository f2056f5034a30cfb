"""A proxy that looks into HTTPS, programs that talk to it, and keys that are as simple as can be."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from guard.grants import grant
from licet.backends.http import HttpClient
from licet.core.policy.inspection import Inspection, StandIn
from licet.guard.grant import Grant
from licet.guard.handles.messages import Pairs
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.inspected import Inspecting
from licet.sandbox.inspection.stand_ins import KeySentAway
from licet.sandbox.programs.proxy import Egress
from loopback import Server, authority_file

HOST = "good.test"
SECRET, STAND_IN = b"secret-0123456789", b"standi-9876543210"
ENTRY = StandIn(name="TOKEN", secret="site/token", hosts=(HOST,), headers=("x-key",), body=("key",))

Talk = Callable[[socket.socket], Any]


class Names(HttpClient):
    """The network of this machine, with names of our own."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        known = {HOST: ("127.0.0.1",), "other.test": ("127.0.0.1",), "inner.test": ("10.0.0.1",)}
        return known.get(host) or tuple(await super().resolve(host, port))


class Keys:
    """The contract of the keys of a run, for one key in one form: raw."""

    def __init__(self, hosts: tuple[str, ...] = (HOST,)) -> None:
        self.environment: Mapping[str, str] = {"TOKEN": STAND_IN.decode()}
        self.files: Mapping[str, bytes] = {}
        self.placed: set[str] = set()
        self.hosts = hosts

    def request(self, host: str, port: int, *, secure: bool) -> "RequestKeys":
        return RequestKeys(self, secure and host in self.hosts)

    def answer(self, *, always: bool = False) -> "AnswerKeys | None":
        return AnswerKeys() if always or self.placed else None


class RequestKeys:
    def __init__(self, run: Keys, is_listed: bool) -> None:
        self._run, self._is_listed, self._held = run, is_listed, b""
        self.wants_body = 0
        self.placed: tuple[str, ...] = ()
        self.left: tuple[tuple[str, str], ...] = ()

    def _see(self, where: str) -> None:
        if not self._is_listed:
            raise KeySentAway("TOKEN", where)
        self.left = (*self.left, ("TOKEN", where))

    def _place(self) -> None:
        self.placed = ("TOKEN",)
        self._run.placed.add("TOKEN")

    def target(self, target: str) -> str:
        if STAND_IN.decode() in target:
            self._see("path")
        return target

    def headers(self, pairs: Pairs) -> Pairs:
        is_json = any(pair[0].lower() == "content-type" and "json" in pair[1] for pair in pairs)
        self.wants_body = 100 if self._is_listed and is_json else 0
        made = []
        for name, value in pairs:
            if STAND_IN.decode() in value:
                if self._is_listed and name.lower() in ("authorization", "x-key"):
                    self._place()
                    value = value.replace(STAND_IN.decode(), SECRET.decode())
                else:
                    self._see(f"header {name}")
            made.append((name, value))
        return tuple(made)

    def whole_body(self, body: bytes, content_type: str) -> Iterator[bytes]:
        if b'"key":"' + STAND_IN in body:
            self._place()
        yield body.replace(b'"key":"' + STAND_IN, b'"key":"' + SECRET)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        whole, keep = self._held + piece, len(STAND_IN) - 1
        if STAND_IN in whole:
            self._see("body")
        self._held = whole[-keep:]
        yield whole[:-keep]

    def finish(self) -> bytes:
        return self._held


class AnswerKeys:
    def __init__(self) -> None:
        self._held = b""

    def name(self, name: str) -> str:
        return self.text(name)

    def text(self, value: str) -> str:
        return value.replace(SECRET.decode(), STAND_IN.decode())

    def feed(self, piece: bytes) -> bytes:
        whole = (self._held + piece).replace(SECRET, STAND_IN)
        keep = max(size for size in range(len(SECRET)) if whole.endswith(SECRET[:size]))
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def steps(self, piece: bytes) -> Iterator[bytes]:
        yield self.feed(piece)

    def finish(self) -> bytes:
        return self._held


def held(*rules: str, **given: Any) -> Grant:
    """A call that holds these rules."""
    return grant(rules, private=["127.0.0.0/8"], **given)


class Run:
    """A proxy that looks into the connections to some places; programs in threads talk to it, one after the other."""

    def __init__(
        self, call: Grant, *inspect: str, keys: Any = Keys, stand_ins: tuple[StandIn, ...] = (), net: Any = Names
    ) -> None:
        self.call = call
        self.authority = Authority(inspect)
        self.inspecting = Inspecting(Inspection(inspect, stand_ins), self.authority, keys())
        self._net = net
        self.proxy: Any = None

    def talks(self, *talks: Talk) -> list[Any]:
        """What each program returns."""

        async def run() -> list[Any]:
            with TemporaryDirectory() as place:
                http = self._net(ca_file=authority_file(Path(place)))
                self.proxy = Egress(self.call, http, inspecting=self.inspecting)
                listener = socket.create_server(("127.0.0.1", 0))
                address = listener.getsockname()
                self.proxy.serve(listener)

                def client(talk: Talk) -> Any:
                    with socket.create_connection(address, 20) as made:
                        return talk(made)

                try:
                    return [await asyncio.to_thread(client, talk) for talk in talks]
                finally:
                    await self.proxy.close()
                    await http.close()

        return asyncio.run(run())

    def trust(self) -> ssl.SSLContext:
        """What a program behind walls trusts."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        context.set_alpn_protocols(["http/1.1"])
        return context

    def tls(self, made: socket.socket, server: Server, host: str = HOST, name: str | None = HOST) -> ssl.SSLSocket:
        """Connect through the proxy, and begin TLS."""
        by_connect(made, host, server.port)
        context = self.trust()
        context.check_hostname = name is not None
        return context.wrap_socket(made, server_hostname=name, suppress_ragged_eofs=False)

    def says(self, server: Server, *requests: bytes, host: str = HOST, name: str | None = HOST) -> Talk:
        """A program that sends requests in one connection, at once, and reads all that comes back."""

        def talk(made: socket.socket) -> bytes:
            with self.tls(made, server, host, name) as secured:
                secured.sendall(b"".join(requests))
                return all_of(secured)

        return talk


def by_connect(made: socket.socket, host: str, port: int) -> None:
    """Ask for a tunnel by CONNECT."""
    made.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        more = made.recv(1)
        assert more, heard
        heard += more
    assert heard.startswith(b"HTTP/1.1 200 "), heard


def by_socks(made: socket.socket, host: str, port: int) -> None:
    """Ask for a tunnel by SOCKS5."""
    made.sendall(b"\5\1\0")
    assert made.recv(2) == b"\5\0"
    made.sendall(b"\5\1\0\3" + bytes((len(host),)) + host.encode() + struct.pack(">H", port))
    assert made.recv(10)[1] == 0


def all_of(made: socket.socket) -> bytes:
    """Everything until the other side ends, or resets the connection."""
    data = b""
    try:
        while more := made.recv(65536):
            data += more
    except (ConnectionError, ssl.SSLError):
        data += b"<broken off>"
    return data


def ask(method: str, path: str, server: Server, more: str = "", body: bytes = b"", host: str = HOST) -> bytes:
    """A request as a program writes it; without `Connection: close` another one may follow."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}:{server.port}\r\n{length}{more}\r\n".encode() + body


LAST = "Connection: close\r\n"


def reasons(call: Grant) -> list[str]:
    """The reasons of what was refused."""
    return [event.reason for event in call.events if event.reason]
