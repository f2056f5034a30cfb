"""A program's own network: its processes talk to each other there, and nobody outside takes part."""

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from attacks.programs import until
from attacks.walled_programs import PYTHON, Programs, needs_namespaces, needs_walls
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.sandbox import probe
from loopback import serving

pytestmark = needs_namespaces

TCP = """
server = socket.create_server((sys.argv[1], 0), family=int(sys.argv[2]))
if not os.fork():
    with socket.create_connection((sys.argv[1], server.getsockname()[1]), 20) as client:
        client.sendall(b'HEARD')
    os._exit(0)
print(server.accept()[0].recv(9))
"""
UDP = """
server = socket.socket(int(sys.argv[2]), socket.SOCK_DGRAM)
server.bind((sys.argv[1], 0))
if not os.fork():
    socket.socket(int(sys.argv[2]), socket.SOCK_DGRAM).sendto(b'HEARD', server.getsockname())
    os._exit(0)
print(server.recv(9))
"""
LOOPBACK = [("127.0.0.1", socket.AF_INET), ("localhost", socket.AF_INET)]
LOOPBACK += [("::1", socket.AF_INET6)] if os.path.exists("/proc/net/if_inet6") else []


@pytest.mark.parametrize(("host", "family"), LOOPBACK)
@pytest.mark.parametrize("code", [TCP, UDP], ids=["tcp", "udp"])
@pytest.mark.parametrize("network", [(), ("network:http:example.org",)], ids=["none", "granted"])
@pytest.mark.sampled(3)
def test_processes_of_one_run_talk_over_loopback(host: str, family: int, code: str, network: tuple[str, ...]) -> None:
    walled = Programs("namespaces", network, http=HttpClient())
    assert walled.python(code, host, str(int(family))) == "b'HEARD'\n"


HTTP = """
import http.server, threading, urllib.request
class Says(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'its own')
    def log_message(self, *said):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Says)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in sys.argv[1:]:
    print(urllib.request.urlopen(f'http://{host}:{server.server_port}/').read())
"""


@pytest.mark.parametrize(
    ("rules", "private"),
    [(["network:http:example.org"], []), (["network:*:*"], []), (["network:*:*"], ["10.0.0.0/8"])],
)
@pytest.mark.sampled(1)
def test_clients_do_not_ask_the_proxy_for_servers_of_their_own(rules: list[str], private: list[str]) -> None:
    walled = Programs("namespaces", rules, http=HttpClient(), private=private)
    assert walled.python(HTTP, "127.0.0.1", "localhost") == "b'its own'\n" * 2
    assert not [event for event in walled.grant.events if "network" in event.capability]


@pytest.mark.sampled(1)
def test_every_client_can_read_the_list_of_hosts_without_a_proxy() -> None:
    """httpx takes what has no port for a name or an address, and `[::1]` for a port that is wrong."""
    walled = Programs("namespaces", ["network:http:example.org"], http=HttpClient())
    assert (
        walled.python("print(os.environ['NO_PROXY'], os.environ['no_proxy'])")
        == " ".join(["localhost,127.0.0.1,::1"] * 2) + "\n"
    )


@pytest.mark.parametrize(
    ("rule", "private"), [("network:http:127.0.0.1:{}", []), ("network:*:*", ["127.0.0.0/8"])], ids=["named", "private"]
)
def test_a_granted_loopback_is_that_of_the_machine(rule: str, private: list[str]) -> None:
    code = "import urllib.request as u; print(u.urlopen(sys.argv[1]).read())"
    with serving(lambda _: Answer(200, (), b"a page")) as server:
        walled = Programs("namespaces", (rule.format(server.port),), http=HttpClient(), private=private)
        assert walled.python(code, f"http://127.0.0.1:{server.port}/") == "b'a page'\n"


SHELL = """
"$1" -m http.server --bind 127.0.0.1 8000 2>/dev/null & server=$!
for try in $(seq 300); do curl -sf http://localhost:8000/page && break; sleep 0.1; done
kill $server; wait $server
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_a_server_in_the_background_and_curl(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("a page")
    walled = Programs("namespaces", (f"fs:read:{tmp_path}", f"fs:read:{os.path.realpath(sys.base_prefix)}"))
    assert walled.run("sh", "-c", SHELL, "sh", PYTHON, cwd=tmp_path).stdout_bytes == b"a page"


def test_two_runs_do_not_meet(tmp_path: Path) -> None:
    """The port of one run is free in another one, and nobody listens there."""
    code = """
server = socket.create_server(('127.0.0.1', 5000))
with open(sys.argv[1] + '/ready', 'w'): pass
"""
    walled = Programs("namespaces", (f"fs:write:{tmp_path}",))
    for _ in range(2):
        assert walled.python(code, str(tmp_path)) == ""
    until((tmp_path / "ready").exists)


TAKING = """
import struct
for host in ('127.0.0.1', '0.0.0.0', '127.0.0.2'):
    for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        with socket.socket() as taken:
            if option:
                taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((host, 3128))
                taken.listen()
                if host == '127.0.0.2':
                    continue
                print('TAKEN', host, option)
            except OSError as wrong:
                pass
print('done')
"""


def test_the_port_of_the_proxy_stays_that_of_the_proxy() -> None:
    assert Programs("namespaces", ("network:http:example.org",), http=HttpClient()).python(TAKING) == "done\n"


# Unix sockets --------------------------------------------------------------------------------------------------------

needs_unix_sockets = pytest.mark.skipif(
    not probe.support().wall_holds(probe.SOCKETS), reason="programs have no unix sockets here"
)

UNIX = """
import os, socket, sys, tempfile
kind = getattr(socket, sys.argv[1])
os.chdir(sys.argv[3] or tempfile.gettempdir())
address = sys.argv[2].replace('@', chr(0)).replace('HERE', os.getcwd())
server = socket.socket(socket.AF_UNIX, kind)
server.bind(address)
server.listen()
if not os.fork():
    os.umask(0o777)
    client = socket.socket(socket.AF_UNIX, kind)
    client.settimeout(float(sys.argv[4]) or None)
    client.connect(address)
    socket.send_fds(client, [b'HEARD'], [client.fileno()])
    os._exit(0)
end = server.accept()[0]
data, files, _, _ = socket.recv_fds(end, 9, 1)
peer = socket.socket(fileno=files[0])
peer.send(b' AND PASSED')
print(data + end.recv(99), os.wait()[1])
"""


@needs_unix_sockets
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
@pytest.mark.parametrize("address", ["HERE/s", "s", "./s", "@name", "/proc/self/cwd/s"])
@pytest.mark.parametrize("granted", [False, True], ids=["scratch", "granted"])
@pytest.mark.parametrize("seconds", ["0", "20"], ids=["blocking", "non-blocking"])
@pytest.mark.sampled(4)
def test_processes_of_one_run_talk_over_unix_sockets(
    kind: str, address: str, granted: bool, seconds: str, tmp_path: Path
) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}") if granted else ()
    said = Programs("namespaces", rules).python(UNIX, kind, address, str(tmp_path) if granted else "", seconds)
    assert said == "b'HEARD AND PASSED' 0\n"


LIBRARIES = {
    "asyncio": """
import asyncio
async def talk():
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()
    server = await asyncio.start_unix_server(answer, 's')
    async with server:
        ends = [await asyncio.open_unix_connection('s') for _ in range(50)]
        for _, writer in ends:
            writer.write(b'heard\\n')
        found = {await reader.readline() for reader, _ in ends}
        for _, writer in ends:
            writer.close()
    print(found == {b'HEARD\\n'})
asyncio.run(talk())
""",
    "multiprocessing": """
import multiprocessing, multiprocessing.connection as connection
context = multiprocessing.get_context('fork')
with context.Manager() as manager:
    numbers = manager.list()
    children = [context.Process(target=numbers.append, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(sorted(numbers) == [0, 1, 2, 3])
""",
    "many threads": """
import socketserver, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline())
class Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 4
    daemon_threads = True
server = Server('s', Echo)
threading.Thread(target=server.serve_forever, daemon=True).start()
found = []
def ask(number):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect('s')
        client.sendall(b'%d\\n' % number)
        found.append(int(client.makefile().readline()))
asking = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
for one in asking:
    one.start()
for one in asking:
    one.join()
print(len(found) >= 30 and set(found) <= set(range(40)))
""",
}


@needs_unix_sockets
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.sampled(1)
def test_libraries_that_use_unix_sockets(name: str) -> None:
    code = f"import os, socket\nos.chdir(os.environ['TMPDIR'])\n{LIBRARIES[name]}"
    ended = Programs("namespaces", seconds=120.0).run(PYTHON, "-I", "-c", code)
    assert (ended.stdout_bytes, ended.stderr_bytes) == (b"True\n", b"")


NODE = """
const net = require('net'), path = process.env.TMPDIR + '/s';
const server = net.createServer((end) => end.pipe(end)).listen(path, () => {
  const client = net.connect(path, () => client.end('HEARD'));
  client.on('data', (data) => { console.log(String(data)); server.close(); });
});
"""


@needs_unix_sockets
@pytest.mark.skipif(shutil.which("node", path="/usr/bin") is None, reason="no node")
@pytest.mark.sampled(0)
def test_node_talks_to_itself() -> None:
    ended = Programs("namespaces", limits={"memory_mb": 4096}).run("node", "-e", NODE)
    assert (ended.stdout_bytes, ended.stderr_bytes) == (b"HEARD\n", b"")


ERRORS = {
    "nothing": ("s.connect('none')", "FileNotFoundError"),
    "a file": ("open('file', 'w').close(); s.connect('file')", "ConnectionRefusedError"),
    "nobody listens any more": (
        "t = socket.socket(1); t.bind('t'); t.listen(); t.close(); s.connect('t')",
        "ConnectionRefusedError",
    ),
    "nobody has the name": ("s.connect(chr(0) + 'none')", "ConnectionRefusedError"),
    "nobody has the port": ("socket.socket().connect(('127.0.0.1', 9))", "ConnectionRefusedError"),
    "no socket": ("f = os.open('/dev/null', 0); print(libc.connect(f, A, 16), ctypes.get_errno())", "-1 88"),
    "no file": ("print(libc.connect(99, A, 16), ctypes.get_errno())", "-1 9"),
    "no memory": ("print(libc.connect(s.fileno(), None, 16), ctypes.get_errno())", "-1 14"),
    "an address that is too long": ("print(libc.connect(s.fileno(), A, 129), ctypes.get_errno())", "-1 22"),
    "a negative size": ("print(libc.connect(s.fileno(), A, -1), ctypes.get_errno())", "-1 22"),
    "no address": ("print(libc.connect(s.fileno(), A, 0), ctypes.get_errno())", "-1 22"),
    "connected already": (
        "t = socket.socket(1); t.bind('t'); t.listen(); s.connect('t'); s.connect('t')",
        "Transport endpoint is already connected",
    ),
    "not closed to others": ("s.bind('s'); print(oct(os.stat('s').st_mode & 0o777))", "0o755"),
}


@needs_unix_sockets
@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("kind", ["open", "namespaces"])
@pytest.mark.sampled(3)
def test_errors_are_those_of_the_kernel(name: str, kind: str, tmp_path: Path) -> None:
    code, expected = ERRORS[name]
    begin = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); os.umask(0o022); os.chdir(sys.argv[1])\n"
    begin += "A, s = ctypes.create_string_buffer(200), socket.socket(socket.AF_UNIX)\n"
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    assert expected in Programs(kind, rules).python(begin + code, str(tmp_path))


FLOOD = """
import signal, threading, time
os.chdir(os.environ['TMPDIR'])
def hear(path, backlog):
    server = socket.socket(1)
    server.bind(path)
    server.listen(backlog)
    return server
full = hear('full', 0)
children = []
for number in range(60):
    child = os.fork()
    if not child:
        try:
            socket.socket(1).connect('full')
        except BlockingIOError:
            os._exit(7)
        os._exit(0)
    children.append(child)
codes = set()
while len(codes) < 2:  # one was connected, and for some there was no thread left that could wait
    codes.add(os.waitstatus_to_exitcode(os.wait()[1]))
free = hear('free', 9)
client = socket.socket(1)
client.settimeout(20)
client.connect('free')
print(sorted(codes), 'still works')
for child in children:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


@needs_unix_sockets
def test_connections_that_wait_do_not_stop_the_others() -> None:
    assert Programs("namespaces", seconds=120.0).python(FLOOD) == "[0, 7] still works\n"


ABANDONED = """
import errno, select, signal
os.chdir(os.environ['TMPDIR'])
def hear(path, backlog):
    server = socket.socket(1)
    server.bind(path)
    server.listen(backlog)
    return server
full, free = hear('full', 0), hear('free', 64)
first = socket.socket(1)
first.connect('full')
def crowd():
    reading, writing = os.pipe()
    children = []
    # Until there is no thread left that could wait. The last of them may be slow to try.
    while not select.select([reading], [], [], 60 if len(children) == 120 else 0)[0]:
        assert len(children) < 120, 'all can wait'
        child = os.fork()
        if not child:
            try:
                socket.socket(1).connect('full')
            except OSError as wrong:
                os.write(writing, errno.errorcode[wrong.errno].encode() + b' ')
            os._exit(0)
        children.append(child)
    said = os.read(reading, 999).split()[0].decode()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    return said
for round in range(3):
    print(crowd())
    socket.socket(1).connect('free')
inet = socket.create_server(('127.0.0.1', 0))
socket.create_connection(inet.getsockname()).close()
print('free again')
"""


@needs_unix_sockets
def test_connections_whose_callers_were_killed_free_their_places() -> None:
    said = Programs("namespaces", seconds=120.0).python(ABANDONED)
    assert said.split("\n") == ["EAGAIN", "EAGAIN", "EAGAIN", "free again", ""]


DISTURBED = """
import ctypes, signal, threading
libc, TGKILL = ctypes.CDLL(None), {'x86_64': 234, 'aarch64': 131}[os.uname().machine]
os.chdir(os.environ['TMPDIR'])
server, first, second = socket.socket(1), socket.socket(1), socket.socket(1)
server.bind('s')
server.listen(0)
first.connect('s')
def blocking():
    second.connect('s')
    print('connected', flush=True)
waiting = threading.Thread(target=blocking)
waiting.start()
for number in range(500):
    os.kill(1, signal.SIGRTMAX)
    for thread in os.listdir('/proc/1/task'):
        libc.syscall(TGKILL, 1, int(thread), signal.SIGRTMAX)
server.accept()
waiting.join()
"""


@needs_unix_sockets
def test_signals_to_the_process_that_connects_end_no_connection() -> None:
    assert Programs("namespaces", seconds=120.0).python(DISTURBED) == "connected\n"


NO_SOCKETS = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
ruleset = libc.syscall(444, struct.pack('=QQQ', 0, 0, 1), 24, 0)
libc.prctl(38, 1, 0, 0, 0)
assert not libc.syscall(446, ruleset, 0)
server = socket.create_server(('127.0.0.1', 0))
reading, _ = os.pipe()
address = struct.pack('=H', 2) + bytes(14)
codes = set()
for number in range(int(sys.argv[1])):
    assert libc.connect(reading, address, 16) == -1
    codes.add(errno.errorcode[ctypes.get_errno()])
socket.create_connection(server.getsockname()).close()
print(codes)
"""


@needs_unix_sockets
def test_connecting_what_is_no_socket_leaves_nothing_open() -> None:
    """The process that makes the connections has as many open files as the program."""
    walled = Programs("namespaces", limits={"open_files": 64})
    assert walled.python(NO_SOCKETS, "100") == "{'ENOTSOCK'}\n"


MANY_FILES = """
os.chdir(os.environ['TMPDIR'])
for number in range(1500):
    with socket.socket(1) as server, socket.socket(1) as client:
        server.bind(f's{number}')
        server.listen()
        client.connect(f's{number}')
        if number % 2:
            os.unlink(f's{number}')
print('all')
"""


@needs_unix_sockets
def test_a_long_run_with_many_sockets() -> None:
    assert Programs("namespaces", seconds=120.0).python(MANY_FILES) == "all\n"


@needs_unix_sockets
def test_a_process_that_restricts_itself_is_held_to_it(tmp_path: Path) -> None:
    """Connections are made by another process, which must not do for a program what the program has given up."""
    code = """
import ctypes, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
server = socket.create_server(('127.0.0.1', 0))
other = socket.create_server(('127.0.0.1', 0))
ruleset = libc.syscall(444, struct.pack('=QQ', 0, 2), 16, 0)  # no TCP but to one port
assert not libc.syscall(445, ruleset, 2, struct.pack('=QQ', 2, server.getsockname()[1]), 0)
assert not libc.syscall(446, ruleset, 0)
def tried(end, address):
    try:
        end.connect(address)
        print('connected', flush=True)
    except PermissionError:
        print('refused', flush=True)
tried(socket.socket(), server.getsockname())
tried(socket.socket(), other.getsockname())
tried(socket.socket(1), chr(0) + 'name')
if not os.fork():
    tried(socket.socket(), other.getsockname())
    sys.stdout.flush()
    os._exit(0)
os.wait()
thread = threading.Thread(target=tried, args=(socket.socket(), other.getsockname()))
thread.start()
thread.join()
"""
    assert Programs("namespaces").python(code).split() == ["connected", *["refused"] * 4]


def test_where_connections_cannot_be_judged_there_are_no_unix_sockets() -> None:
    walled = Programs("no-unix-sockets")
    assert "PermissionError" in walled.python("socket.socket(socket.AF_UNIX)")
    assert walled.python(TCP, "127.0.0.1", "2") == "b'HEARD'\n"


@needs_walls
def test_without_a_network_of_its_own_a_program_has_no_sockets() -> None:
    for code in ("socket.socket()", "socket.socket(socket.AF_UNIX)"):
        assert "PermissionError" in Programs("degraded").python(code)
