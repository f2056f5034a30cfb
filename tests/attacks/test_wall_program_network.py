"""A program looks for another way to the network than the one that is checked."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from attacks.programs import until
from attacks.walled_programs import Programs, both_kinds, needs_namespaces, needs_walls, open_programs
from licet.backends.http import HttpClient


@contextmanager
def listening(family: int, kind: int, address: object) -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A server of the host that keeps what it hears."""
    heard: list[bytes] = []
    with closing(socket.socket(family, kind)) as server:
        server.bind(address)  # type: ignore[arg-type]
        if kind != socket.SOCK_DGRAM:
            server.listen()
        server.settimeout(0.2)
        over = threading.Event()

        def hear() -> None:
            while not over.is_set():
                try:
                    if kind != socket.SOCK_DGRAM:
                        with server.accept()[0] as one:
                            one.settimeout(20)
                            heard.append(one.recv(100))
                    else:
                        heard.append(server.recvfrom(100)[0])
                except OSError:
                    continue

        thread = threading.Thread(target=hear)
        thread.start()
        try:
            yield server, heard
        finally:
            over.set()
            thread.join()


CONNECT = "s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); s.sendall(b'HEARD'); print('SENT')"
DATAGRAM = "socket.socket(2, 2).sendto(b'HEARD', (sys.argv[1], int(sys.argv[2]))); print('SENT')"
FASTOPEN = "socket.socket().sendto(b'HEARD', 0x20000000, (sys.argv[1], int(sys.argv[2]))); print('SENT')"
UNIX = "s = socket.socket(1); s.connect(sys.argv[1].replace('@', chr(0))); s.sendall(b'HEARD'); print('SENT')"
UNIX_DATAGRAM = "a, b = socket.socketpair(1, 2); a.sendto(b'HEARD', sys.argv[1]); print('SENT')"


@both_kinds
@pytest.mark.parametrize("network", [(), ("network:*:127.0.0.1", "network:tcp:127.0.0.1")], ids=["none", "granted"])
@pytest.mark.parametrize(
    ("code", "transport"),
    [(CONNECT, socket.SOCK_STREAM), (FASTOPEN, socket.SOCK_STREAM), (DATAGRAM, socket.SOCK_DGRAM)],
    ids=["connect", "fast open", "a datagram, as for a name"],
)
@pytest.mark.sampled(3)
def test_sockets_of_its_own(kind: str, network: tuple[str, ...], code: str, transport: int) -> None:
    if network and kind == "no-namespaces":
        pytest.skip("a call that holds a network is refused without namespaces")
    with listening(socket.AF_INET, transport, ("127.0.0.1", 0)) as (server, heard):
        port = str(server.getsockname()[1])
        assert "SENT" in open_programs().python(code, "127.0.0.1", port)
        until(lambda: bool(heard))
        Programs(kind, network, http=HttpClient()).python(code, "127.0.0.1", port)
        assert heard == [b"HEARD"]


@both_kinds
@pytest.mark.parametrize("name", ["path", "abstract"])
@pytest.mark.sampled(2)
def test_unix_sockets_of_the_host(kind: str, name: str, tmp_path: Path) -> None:
    address = str(tmp_path / "s") if name == "path" else f"@licet-test-{tmp_path.name}"
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    with listening(socket.AF_UNIX, socket.SOCK_STREAM, address.replace("@", "\0")) as (_, heard):
        assert "SENT" in open_programs(*rules).python(UNIX, address)
        until(lambda: bool(heard))
        assert "SENT" not in Programs(kind, rules).python(UNIX, address)
        assert heard == [b"HEARD"]


@both_kinds
def test_unix_datagrams_through_a_pair(kind: str, tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    with listening(socket.AF_UNIX, socket.SOCK_DGRAM, str(tmp_path / "d")) as (_, heard):
        assert "SENT" in open_programs(*rules).python(UNIX_DATAGRAM, str(tmp_path / "d"))
        until(lambda: bool(heard))
        assert "SENT" not in Programs(kind, rules).python(UNIX_DATAGRAM, str(tmp_path / "d"))
        assert heard == [b"HEARD"]


LISTEN = "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('LISTENS')"


@needs_walls
def test_listening_without_a_network_of_its_own() -> None:
    assert "LISTENS" in open_programs().python(LISTEN)
    assert "LISTENS" not in Programs("no-namespaces").python(LISTEN)


SERVE = """
server = socket.create_server((sys.argv[1], 0))
server.settimeout(float(sys.argv[3]))
with open(sys.argv[2], 'w') as file:
    file.write(f'{server.getsockname()[1]}\\n')
try:
    print(server.accept()[0].recv(9))
except TimeoutError:
    print('NOBODY')
"""


@needs_namespaces
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.sampled(1)
def test_a_process_outside_reaches_no_port_of_a_program(host: str, tmp_path: Path) -> None:
    rules = (f"fs:write:{tmp_path}",)
    for walled, seconds, heard in (
        (open_programs(*rules), "30", "b'HEARD'\n"),
        (Programs("namespaces", rules), "1", "NOBODY\n"),
    ):
        told = tmp_path / "port"
        told.unlink(missing_ok=True)

        def ask(told: Path = told) -> None:
            until(lambda: told.exists() and told.read_text().endswith("\n"))
            with (
                suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", int(told.read_text())), 20) as s,
            ):
                s.sendall(b"HEARD")

        asking = threading.Thread(target=ask)
        asking.start()
        assert walled.python(SERVE, host, str(told), seconds) == heard
        asking.join()


FAMILIES = """
for family in range(1, 46):
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(family, kind).close()
        except OSError:
            continue
        print(family, kind)
"""


@both_kinds
def test_sockets_of_every_family(kind: str) -> None:
    assert "1 1\n" in open_programs().python(FAMILIES)
    made = set(Programs(kind).python(FAMILIES).splitlines())
    # Unix sockets are those of the run alone, and no datagrams.
    assert made <= ({"1 1", "1 5", "2 1", "2 2", "10 1", "10 2"} if kind == "namespaces" else set())
