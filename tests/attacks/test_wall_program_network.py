"""A program looks for another way to the network, or to a unix socket, than the one that is checked."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from attacks.programs import until
from attacks.walled_programs import Programs, both_kinds, needs_namespaces, needs_walls, open_programs
from licet.backends.http import HttpClient
from licet.sandbox import probe

# A program looks for another way to the network than the one that is checked ------------------------------------------


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
    assert "LISTENS" not in Programs("degraded").python(LISTEN)


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
    streams = {"1 1", "1 5", "2 1", "10 1"}
    assert made <= (streams | {"2 2", "10 2"} if kind == "namespaces" else streams)
    assert not Programs("degraded").python(FAMILIES)


# A program looks for a way to a unix socket that is not its own, in a directory that it may read and write ------------


no_sockets = pytest.mark.skipif(
    not probe.support().wall_holds(probe.SOCKETS), reason="programs have no unix sockets here"
)

# Each gets the directory as its argument, in which a process outside listens on `door`.
BEGIN = """
import ctypes, errno, struct, threading, time
here = sys.argv[1]
door, libc = here + '/door', ctypes.CDLL(None, use_errno=True)
def hear(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    return server
def say(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.connect(path)
        client.sendall(b'HEARD')
    print('SENT', flush=True)
"""
ATTACKS = {
    "its path": "say(door)",
    "its path from here": "os.chdir(here); say('door')",
    "a path with dots": "os.mkdir(here + '/d'); say(here + '/d/.././door')",
    "a path that ends with its address": """
longest = f'{here}/{"x" * (106 - len(os.fsencode(here)))}'
os.symlink(door, longest)
address = ctypes.create_string_buffer(struct.pack('=H', 1) + longest.encode() + b'x', 110)
os.rename(longest, longest + 'x')
client = socket.socket(socket.AF_UNIX)
if libc.connect(client.fileno(), address, 110):
    raise OSError(ctypes.get_errno(), 'connect')
client.sendall(b'HEARD')
print('SENT')
""",
    "a link": "os.symlink('door', here + '/link'); say(here + '/link')",
    "a second name": "os.link(door, here + '/second'); say(here + '/second')",
    "another name": "os.rename(door, here + '/other'); say(here + '/other')",
    "an open file": "file = os.open(door, os.O_PATH); say(f'/proc/self/fd/{file}')",
    "an open file by the id": "file = os.open(door, os.O_PATH); say(f'/proc/{os.getpid()}/fd/{file}')",
    "the working directory in /proc": "os.chdir(here); say('/proc/self/cwd/door')",
    "the root in /proc": "say('/proc/self/root' + door)",
    "a thread": "thread = threading.Thread(target=say, args=(door,)); thread.start(); thread.join()",
    "another process": "os.fork() or (say(door), os._exit(0)); sys.exit(str(os.wait()[1] and PermissionError))",
    "a process that nobody looks into": "libc.prctl(4, 0, 0, 0, 0); say(door)",
    "the name of a socket of its own": """
server = hear(here + '/own')
os.rename(door, here + '/own')
say(here + '/own')
""",
    "the name of a socket before it listens": """
server = socket.socket(socket.AF_UNIX)
server.bind(here + '/own')
os.rename(here + '/own', here + '/away')
os.rename(door, here + '/own')
server.listen()
say(here + '/own')
""",
    "another kind of socket": "say(door, socket.SOCK_SEQPACKET)",
    "a process that restricts itself": """
ruleset = libc.syscall(444, struct.pack('=QQQ', 0, 0, 1), 24, 0)
libc.prctl(38, 1, 0, 0, 0)
assert not libc.syscall(446, ruleset, 0)
say(door)
""",
}


@contextmanager
def a_door(folder: Path, kind: int = socket.SOCK_STREAM) -> Iterator[list[bytes]]:
    with listening(socket.AF_UNIX, kind, str(folder / "door")) as (_, heard):
        yield heard


@needs_namespaces
@no_sockets
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.sampled(5)
def test_ways_to_a_socket_outside(name: str, tmp_path: Path) -> None:
    kind = socket.SOCK_SEQPACKET if "another kind" in name else socket.SOCK_STREAM
    for programs in ("open", "namespaces"):
        folder = tmp_path / programs
        folder.mkdir()
        rules = (f"fs:read:{folder}", f"fs:write:{folder}", f"fs:delete:{folder}")
        with a_door(folder, kind) as heard:
            said = Programs(programs, rules).python(f"{BEGIN}{ATTACKS[name]}", str(folder))
            if programs == "open":
                assert "SENT" in said
                until(heard.__len__)
            else:
                assert "PermissionError" in said
                assert "SENT" not in said
        assert heard == ([b"HEARD"] if programs == "open" else [])


WAITING = """
with open(here + '/ready', 'w'):
    pass
while not os.path.exists(here + '/go'):
    time.sleep(0.01)
say(door)
"""


@needs_namespaces
@no_sockets
@pytest.mark.parametrize("programs", ["open", "namespaces"])
def test_a_socket_that_is_made_outside_while_it_runs(programs: str, tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}", f"fs:delete:{tmp_path}")
    said: list[str] = []
    walled = Programs(programs, rules)
    running = threading.Thread(target=lambda: said.append(walled.python(f"{BEGIN}{WAITING}", str(tmp_path))))
    running.start()
    until((tmp_path / "ready").exists)
    with a_door(tmp_path) as heard:
        (tmp_path / "go").touch()
        running.join()
        if programs == "open":
            until(lambda: bool(heard))
    assert ("SENT" in said[0], bool(heard)) == ((True, True) if programs == "open" else (False, False))


# Two threads: one connects again and again, the other exchanges what the connection is made with.
RACES = {
    "the path": """
hear(here + '/own')
os.symlink('own', here + '/one')
os.symlink('door', here + '/two')
def exchange():
    libc.renameat2(-100, (here + '/one').encode(), -100, (here + '/two').encode(), 2)
address = ctypes.create_string_buffer(struct.pack('=H', 1) + (here + '/one').encode())
""",
    "the address": """
hear(here + '/own')
own, foreign = (struct.pack('=H', 1) + (here + name).encode() + bytes(5) for name in ('/own', '/door'))
size = min(len(own), len(foreign)) - 1
address = ctypes.create_string_buffer(own[:size] + bytes(8))
def exchange():
    ctypes.memmove(address, foreign, size)
    ctypes.memmove(address, own, size)
""",
    "the family": """
tcp = socket.create_server(('127.0.0.1', 0), backlog=1024)
own = struct.pack('=H', 2) + struct.pack('!H', tcp.getsockname()[1]) + socket.inet_aton('127.0.0.1') + bytes(90)
foreign = struct.pack('=H', 1) + door.encode() + bytes(3)
address = ctypes.create_string_buffer(own)
def exchange():
    ctypes.memmove(address, foreign, len(foreign))
    ctypes.memmove(address, own, len(own))
""",
}
RACE = """
def go_on():
    while True:
        exchange()
threading.Thread(target=go_on, daemon=True).start()
for attempt in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        if not libc.connect(client.fileno(), address, len(address.raw.rstrip(bytes(1)))):
            try:
                if client.getpeername().endswith('door'):
                    print('SENT')
                    break
            except OSError:
                pass
os._exit(sys.stdout.flush() or 0)
"""


@needs_namespaces
@no_sockets
@pytest.mark.parametrize("name", RACES)
@pytest.mark.sampled(1)
def test_a_race_for_a_socket_outside(name: str, tmp_path: Path) -> None:
    for programs, attempts in (("open", "10000000"), ("namespaces", "500")):
        folder = tmp_path / programs
        folder.mkdir()
        rules = (f"fs:read:{folder}", f"fs:write:{folder}", f"fs:delete:{folder}")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "door"))
            server.listen(1)
            server.settimeout(0)
            walled = Programs(programs, rules, seconds=120.0)
            said = walled.python(f"{BEGIN}{RACES[name]}{RACE}", str(folder), attempts)
            assert ("SENT" in said) is (programs == "open"), said
            if programs == "open":
                server.accept()[0].close()
            else:
                with pytest.raises(BlockingIOError):
                    server.accept()


DESCRIPTORS = """
server = socket.create_server(('127.0.0.1', 0), backlog=1024)
unix, tcp = socket.socket(socket.AF_UNIX), socket.socket()
number = os.dup(tcp.fileno())
address = ctypes.create_string_buffer(struct.pack('=H', 1) + door.encode())
def exchange():
    while True:
        os.dup2(unix.fileno(), number)
        os.dup2(tcp.fileno(), number)
threading.Thread(target=exchange, daemon=True).start()
for attempt in range(int(sys.argv[2])):
    if not libc.connect(number, address, len(address)):
        print('SENT')
        break
os._exit(sys.stdout.flush() or 0)
"""


@needs_namespaces
@no_sockets
def test_a_race_with_the_open_file(tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    with a_door(tmp_path) as heard:
        assert "SENT" in open_programs(*rules).python(f"{BEGIN}{DESCRIPTORS}", str(tmp_path), "10000000")
        assert "SENT" not in Programs("namespaces", rules).python(f"{BEGIN}{DESCRIPTORS}", str(tmp_path), "500")
    assert len(heard) <= 1


UNIX_SENDTO = "socket.socket(1, socket.SOCK_DGRAM).sendto(b'HEARD', door); print('SENT')"
RAW = "socket.socket(1, socket.SOCK_RAW).sendto(b'HEARD', door); print('SENT')"
PAIR = "socket.socketpair(1, 2)[0].sendto(b'HEARD', door); print('SENT')"


@needs_namespaces
@no_sockets
@pytest.mark.parametrize("code", [UNIX_SENDTO, RAW, PAIR], ids=["socket", "raw", "pair"])
@pytest.mark.sampled(1)
def test_datagrams_to_a_socket_outside(code: str, tmp_path: Path) -> None:
    """As to the log of the system, /dev/log."""
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    with a_door(tmp_path, socket.SOCK_DGRAM) as heard:
        assert "SENT" in open_programs(*rules).python(f"{BEGIN}{code}", str(tmp_path))
        until(lambda: bool(heard))
        said = Programs("namespaces", rules).python(f"{BEGIN}{code}", str(tmp_path))
        assert "PermissionError" in said
        assert heard == [b"HEARD"]


FIRST = """
for name in ('mem', 'fd/0', 'fd/3', 'environ', 'cwd', 'maps'):
    try:
        print('SEEN', name, os.open(f'/proc/1/{name}', os.O_RDONLY))
    except OSError:
        pass
print(libc.syscall(438, os.pidfd_open(1), 3, 0), ctypes.get_errno())
"""


@needs_namespaces
@no_sockets
def test_the_process_that_makes_connections_is_closed_to_the_program() -> None:
    said = Programs("namespaces").python(f"{BEGIN}{FIRST}", "/")
    assert "SEEN" not in said
    assert said.split()[0] == "-1"


@needs_namespaces
@no_sockets
def test_a_program_keeps_none_of_its_capabilities() -> None:
    code = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')])"
    assert Programs("namespaces").python(code) == f"{['0' * 16] * 5}\n"


@needs_namespaces
@no_sockets
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to have something to lose")
def test_limits_of_root_do_not_matter_for_the_mark() -> None:
    """A program cannot take the mark of a process that restricts itself away."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_RTTIME if hasattr(resource, 'RLIMIT_RTTIME') else 15, (5, 5))
resource.setrlimit(15, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print('RAISED')
"""
    assert "RAISED" not in Programs("namespaces").python(code)


@needs_namespaces
@pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed")
def test_interfaces_are_seen_and_not_changed() -> None:
    """Programs ask for interfaces by netlink. They see their own loopback, and change nothing without a capability."""
    change = ("ip", "link", "set", "lo", "mtu", "9000")
    assert subprocess.run(["unshare", "-Urn", *change], check=False).returncode == 0
    walled = Programs("namespaces")
    assert walled.run("sh", "-c", "ip -o link | cut -d: -f2").stdout_bytes.split() == [b"lo"]
    for words in (change, ("ip", "link", "add", "x", "type", "bridge"), ("ip", "route", "add", "default", "dev", "lo")):
        ended = walled.run(*words)
        assert (ended.exit_code != 0, b"not permitted" in ended.stderr_bytes) == (True, True)
