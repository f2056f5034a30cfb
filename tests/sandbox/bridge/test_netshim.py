"""Unmodified libraries in a process that has no sockets, with connections made and checked outside."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.memory import Answer
from licet.errors import Refused
from licet.sandbox.programs.proxy import connect
from loopback import authority_file, serving, talking
from sandbox.walled import needs_filter

pytestmark = needs_filter

# The walls of a worker as far as sockets go; asked for after the imports, which would need files otherwise.
BEGIN = """
import os, socket, sys
host = socket.socket(fileno=int(sys.argv[1]))
port, authority = int(sys.argv[2]), sys.argv[3]
from licet.sandbox.kernel import hardening, seccomp; from licet.sandbox.bridge import shims

def connect(name, number):
    host.sendall(f"{name} {number}\\n".encode())
    said, fds, _, _ = socket.recv_fds(host, 1000, 1)
    if not fds:
        raise PermissionError(13, said.decode())
    return fds[0]

shims.install_socket(connect)
hardening.no_new_privs()
seccomp.install(seccomp.program(own_pid=os.getpid()))
"""

LIBRARIES = {
    "socket": "s = socket.create_connection(('good.test', port), 60); s.sendall(b'PING\\r\\n'); print(s.recv(100))",
    "socket that asks to wait when it is closed": """
s = socket.socket(); wait = b"\\1\\0\\0\\0\\5\\0\\0\\0"
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, wait); s.connect(("good.test", port))
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, wait); s.settimeout(30)
s.sendall(b'GET / HTTP/1.1\\r\\nhost: good.test\\r\\n\\r\\n')
said = b""
while b"a page" not in said: said += s.recv(100)
print(said)""",
    "urllib": "import urllib.request as u; print(u.urlopen(f'http://good.test:{port}/', timeout=60).read())",
    "http.client": """
import http.client
c = http.client.HTTPConnection('good.test', port); c.request('GET', '/'); print(c.getresponse().read())""",
    "httpx2": "import httpx2; print(httpx2.get(f'http://good.test:{port}/', trust_env=False).content)",
    "httpx2, async": """
import asyncio, httpx2
async def get():
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.get(f'http://good.test:{port}/')).content
print(asyncio.run(get()))""",
    "asyncio": """
import asyncio
async def get():
    reader, writer = await asyncio.open_connection('good.test', port)
    writer.write(b'GET / HTTP/1.1\\r\\nhost: good.test\\r\\n\\r\\n')
    return await reader.readuntil(b'page')
print(asyncio.run(get()))""",
    "requests": "import requests; print(requests.get(f'http://good.test:{port}/', timeout=60).content)",
    "aiohttp": """
import asyncio, aiohttp
async def get():
    async with aiohttp.ClientSession() as session, session.get(f'http://good.test:{port}/') as answer:
        return await answer.read()
print(asyncio.run(get()))""",
}
SECURE = """
import ssl, urllib.request as u
trust = ssl.create_default_context(cafile=authority)
print(u.urlopen(f"https://good.test:{port}/", context=trust).read())"""


class Names:
    """A network in which every name is this machine."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",)


@contextmanager
def connecting(asked: list[str]) -> Iterator[socket.socket]:
    """The host's side: connects to `good.test` and to nothing else."""
    near, far = socket.socketpair()
    held = grant(["network:tcp:good.test"], private=["127.0.0.0/8"])

    def serve() -> None:
        with near, near.makefile("r") as lines:
            for line in lines:
                name, port = line.split()
                asked.append(name)
                try:
                    made = asyncio.run(connect(held, Names(), name, int(port)))  # type: ignore[arg-type]
                except Refused as refusal:
                    near.sendall(str(refusal).encode())
                else:
                    with made:
                        socket.send_fds(near, [b"."], [made.fileno()])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield far
    finally:
        far.close()
        thread.join()


def run(code: str, port: int, asked: list[str], authority: str = "") -> str:
    with connecting(asked) as far:
        ended = subprocess.run(
            [sys.executable, "-c", BEGIN + code, str(far.fileno()), str(port), authority],
            pass_fds=[far.fileno()], capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    return ended.stdout + ended.stderr


def page(exchange: Any) -> Answer:
    return Answer(200, (), b"a page")


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "socket"])
@pytest.mark.sampled(2)
def test_a_library_reaches_what_is_granted_and_nothing_else(library: str) -> None:
    asked: list[str] = []
    with serving(page) as server:
        assert "a page" in run(LIBRARIES[library], server.port, asked)
        assert asked == ["good.test"]
        said = run(LIBRARIES[library].replace("good.test", "evil.test"), server.port, asked)
        assert "a page" not in said
        assert "HOST_NOT_ALLOWED" in said or "ConnectError" in said
        assert server.connections == 1


def test_a_protocol_of_its_own() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"PING\r\n"
        writer.write(b"+PONG\r\n")
        await writer.drain()

    with talking(talk) as server:
        assert run(LIBRARIES["socket"], server.port, []) == "b'+PONG\\r\\n'\n"


def test_tls_is_between_the_two_ends(tmp_path: Path) -> None:
    with serving(page, names=("good.test",)) as server:
        assert run(SECURE, server.port, [], authority_file(tmp_path)) == "b'a page'\n"
    with serving(page, names=("other.test",)) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in run(SECURE, server.port, [], authority_file(tmp_path))


CASES = {
    "a datagram": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "only TCP sockets are available behind walls"),
    "listening": ("socket.socket().bind(('127.0.0.1', 0))", "listening sockets are not available behind walls"),
    "a service nobody knows": ("socket.getaddrinfo('x', 'nonsense')", "service name is not known"),
    "an error by number": ("print(socket.socket().connect_ex(('evil.test', 80)))", "13\n"),
    "around the shim": ("import _socket; _socket.socket()", "PermissionError"),
    "an address": ("socket.create_connection(('127.0.0.1', port))", "HOST_NOT_ALLOWED"),
    "a name twice": ("a = socket.gethostbyname; print(a('x') == a('x') != a('y'))", "True\n"),
}


@pytest.mark.parametrize(("code", "said"), CASES.values(), ids=CASES.keys())
def test_what_a_placeholder_cannot_do(code: str, said: str) -> None:
    assert said in run(code, 1, [])


def test_options_and_timeouts_come_along() -> None:
    code = """
s = socket.socket(); s.settimeout(3); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.connect(('good.test', port))
print(s.gettimeout(), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) > 0, s.getpeername()[0], s.get_inheritable())
"""
    with serving(page) as server:
        assert run(code, server.port, []) == "3.0 True 127.0.0.1 False\n"
