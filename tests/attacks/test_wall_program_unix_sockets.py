"""A program looks for a way to a unix socket that is not its own, in a directory that it may read and write."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks.programs import until
from attacks.test_wall_program_network import listening
from attacks.walled_programs import Programs, needs_namespaces, open_programs
from licet.sandbox import probe

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(not probe.support().wall_holds(probe.SOCKETS), reason="programs have no unix sockets here"),
]

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


def test_a_race_with_the_open_file(tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    with a_door(tmp_path) as heard:
        assert "SENT" in open_programs(*rules).python(f"{BEGIN}{DESCRIPTORS}", str(tmp_path), "10000000")
        assert "SENT" not in Programs("namespaces", rules).python(f"{BEGIN}{DESCRIPTORS}", str(tmp_path), "500")
    assert len(heard) <= 1


DATAGRAM = "socket.socket(1, socket.SOCK_DGRAM).sendto(b'HEARD', door); print('SENT')"
RAW = "socket.socket(1, socket.SOCK_RAW).sendto(b'HEARD', door); print('SENT')"
PAIR = "socket.socketpair(1, 2)[0].sendto(b'HEARD', door); print('SENT')"


@pytest.mark.parametrize("code", [DATAGRAM, RAW, PAIR], ids=["socket", "raw", "pair"])
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


def test_the_process_that_makes_connections_is_closed_to_the_program() -> None:
    said = Programs("namespaces").python(f"{BEGIN}{FIRST}", "/")
    assert "SEEN" not in said
    assert said.split()[0] == "-1"


def test_a_program_keeps_none_of_its_capabilities() -> None:
    code = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')])"
    assert Programs("namespaces").python(code) == f"{['0' * 16] * 5}\n"


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
