"""A program without namespaces shares network and processes with the machine: it tries to reach what is not its own."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from attacks.programs import alive, until
from attacks.test_wall_program_network import a_door, listening
from attacks.walled_programs import PYTHON, Programs, needs_walls, open_programs, without_namespaces
from licet.backends.http import HttpClient

pytestmark = [
    needs_walls,
    pytest.mark.skipif(not without_namespaces().supervised, reason="no calls can be supervised here"),
]
OLDEST, NEWEST = 1, None
each_landlock = pytest.mark.parametrize("landlock", [OLDEST, NEWEST], ids=["Landlock 1", "this Landlock"])

# Each gets the port of a process outside, which listens on the loopback of both versions of IP.
BEGIN = """
import ctypes, errno, struct, subprocess, threading, time
port = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def say(client):
    client.sendall(b'HEARD')
    print('SENT', flush=True)
"""
REACHES = {
    "its address": "s = socket.socket(); s.connect(('127.0.0.1', port)); say(s)",
    "an address of the loopback": "s = socket.socket(); s.connect(('127.8.8.8', port)); say(s)",
    "no address": "s = socket.socket(); s.connect(('0.0.0.0', port)); say(s)",
    "without waiting": """
s = socket.socket(); s.setblocking(False)
with_error = s.connect_ex(('127.0.0.1', port)); time.sleep(0.2); say(s)
""",
    "as IPv6": "s = socket.socket(socket.AF_INET6); s.connect(('::1', port)); say(s)",
    "as IPv4 in IPv6": "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', port)); say(s)",
    "a thread": """
t = threading.Thread(target=lambda: say(socket.create_connection(('127.0.0.1', port)))); t.start(); t.join()
""",
    "a child": "os.fork() or (say(socket.create_connection(('127.0.0.1', port))), os._exit(0)); os.wait()",
    "fast open": "s = socket.socket(); s.sendto(b'HEARD', 0x20000000, ('127.0.0.1', port)); print('SENT')",
    "fast open later": "s = socket.socket(); s.setsockopt(6, 30, 1); s.connect(('127.0.0.1', port)); say(s)",
    "fast open with many": """
class M(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('size', ctypes.c_uint), ('parts', ctypes.c_void_p),
        ('count', ctypes.c_size_t), ('control', ctypes.c_void_p), ('length', ctypes.c_size_t), ('flags', ctypes.c_int),
        ('sent', ctypes.c_uint)]
class V(ctypes.Structure):
    _fields_ = [('base', ctypes.c_char_p), ('size', ctypes.c_size_t)]
name, text = struct.pack('=H', 2) + struct.pack('!H', port) + bytes((127, 0, 0, 1)) + bytes(8), V(b'HEARD', 5)
many = M(ctypes.cast(name, ctypes.c_void_p), 16, ctypes.addressof(text), 1, None, 0, 0, 0)
s = socket.socket()
if libc.sendmmsg(s.fileno(), ctypes.byref(many), 1, 0x20000000) < 0: raise OSError(ctypes.get_errno(), 'sendmmsg')
print('SENT')
""",
    "a socket that was connected to its own": """
own = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(own.getsockname())
libc.connect(s.fileno(), struct.pack('=H14x', 0), 16); s.connect(('127.0.0.1', port)); say(s)
""",
    "a process that restricts itself": """
rules = libc.syscall(444, struct.pack('=QQQ', 0, 0, 1), 24, 0)
libc.prctl(38, 1, 0, 0, 0); libc.syscall(446, rules, 0)
say(socket.create_connection(('127.0.0.1', port)))
""",
    "a port that it had before": """
own = socket.create_server(('127.0.0.1', 0)); taken = own.getsockname()
own.close()
with open(sys.argv[2] + '/port', 'w') as file: file.write(str(taken[1]))
while not os.path.exists(sys.argv[2] + '/taken'): time.sleep(0.01)
say(socket.create_connection(taken))
""",
    "a port that it has shut down": """
own = socket.socket(); own.bind(('127.0.0.1', 0)); own.listen(); taken = own.getsockname()
own.shutdown(socket.SHUT_RDWR)
with open(sys.argv[2] + '/port', 'w') as file: file.write(str(taken[1]))
while not os.path.exists(sys.argv[2] + '/taken'): time.sleep(0.01)
say(socket.create_connection(taken))
""",
}


@contextmanager
def taking(folder: Path) -> Iterator[list[bytes]]:
    """A process outside that listens at the port which a program names, as soon as it is free."""
    heard: list[bytes] = []
    over = threading.Event()

    def take() -> None:
        while not (folder / "port").exists():
            if over.wait(0.01):
                return
        until(lambda: (folder / "port").read_text().isdigit())
        with closing(socket.socket()) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", int((folder / "port").read_text())))
            server.listen()
            server.settimeout(0.2)
            (folder / "taken").touch()
            while not over.is_set():
                with suppress(TimeoutError), server.accept()[0] as end:
                    end.settimeout(1)
                    heard.append(end.recv(100))

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        thread.join()


@each_landlock
@pytest.mark.parametrize("name", REACHES)
@pytest.mark.sampled(6)
def test_ways_to_a_port_of_the_machine(name: str, landlock: int | None, tmp_path: Path) -> None:
    family, address = (socket.AF_INET6, "::1") if name == "as IPv6" else (socket.AF_INET, "0.0.0.0")
    opened = name not in ("a process that restricts itself", "fast open later")
    for kind in ("open", "no-namespaces") if opened else ("no-namespaces",):
        folder = tmp_path / kind
        folder.mkdir()
        walled = Programs(kind, (f"fs:read:{folder}", f"fs:write:{folder}"), landlock=landlock)
        with listening(family, socket.SOCK_STREAM, (address, 0)) as (server, heard), taking(folder) as taken:
            said = walled.python(f"{BEGIN}{REACHES[name]}", str(server.getsockname()[1]), str(folder))
            if kind == "open":
                assert "SENT" in said, said
                until((heard if "that it has" not in name and "before" not in name else taken).__len__)
            else:
                assert "Error" in said
                assert "SENT" not in said
        assert ([b"HEARD"] if kind == "open" else []) == heard + taken


OUTWARD = """
for address in ('10.1.1.1', '192.0.2.1', '8.8.8.8', '255.255.255.255', '169.254.169.254', '2001:db8::1', 'fe80::1'):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(5)
        print(s.connect_ex((address, 80)))
"""


@each_landlock
def test_no_address_beyond_the_loopback_is_connected_to(landlock: int | None) -> None:
    walled = Programs("no-namespaces", ("network:tcp:*",), landlock=landlock, http=HttpClient())
    assert walled.python(OUTWARD).split() == ["101"] * 7  # ENETUNREACH


LISTENS = {
    "every address": "s.bind(('0.0.0.0', 0)); s.listen()",
    "no address": "s.listen()",
    "every address of IPv6": "s = socket.socket(socket.AF_INET6); s.bind(('::', 0)); s.listen()",
    "every address of IPv6 alone": """
s = socket.socket(socket.AF_INET6); s.setsockopt(41, 26, 1); s.bind(('::', 0)); s.listen()
""",
    "no address of IPv6": "s = socket.socket(socket.AF_INET6); s.listen()",
    "again after it was shut down": "s.bind(('127.0.0.1', 0)); s.listen(); s.shutdown(2); s.listen()",
}


@each_landlock
@pytest.mark.parametrize("name", LISTENS)
@pytest.mark.sampled(4)
def test_listeners_are_on_the_loopback_alone(name: str, landlock: int | None) -> None:
    code = f"s = socket.socket()\n{LISTENS[name]}\nprint(s.getsockname()[0])"
    outside = {"0.0.0.0", "::"}
    assert (open_programs().python(code).strip() in outside) is ("again" not in name)
    said = Programs("no-namespaces", landlock=landlock).python(code).strip()
    assert said in {"127.0.0.1", "::ffff:127.0.0.1", "::1"} or ("again" in name and "Errno 98" in said)


def test_no_other_address_of_the_machine_is_bound() -> None:
    code = "s = socket.socket()\ns.bind(('192.0.2.1', 0))"
    assert "Errno 99" in Programs("no-namespaces").python(code)


def test_no_port_is_shared() -> None:
    code = "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); print('SHARED')"
    assert "SHARED" in open_programs().python(code)
    assert "SHARED" not in Programs("no-namespaces").python(code)


# One thread connects to a listener of its own again and again, while others let go of the port in every way. A process
# outside that listens at the same port whenever it can is never reached.
RACES = {
    "closing": "",
    "shutting down": "listener.shutdown(2)",
    "replacing the file": "os.dup2(devnull, listener.fileno())",
}
RACE = """
devnull, current = os.open('/dev/null', 0), [0]
with open(sys.argv[2] + '/port', 'w') as file: file.write(str(port))
def serve():
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(('127.0.0.1', port)); listener.listen(64)
        except OSError:
            continue
        LET_GO
        os.close(listener.detach())
threading.Thread(target=serve, daemon=True).start()
end = time.monotonic() + float(sys.argv[3])
reached = 0
while time.monotonic() < end:
    client = socket.socket()
    client.setblocking(False)
    if client.connect_ex(('127.0.0.1', port)) in (0, errno.EINPROGRESS):
        try:
            client.sendall(b'HEARD'); reached += 1
        except OSError:
            pass
    client.close()
print('reached', reached > 0, flush=True)
os._exit(0)
"""
COMPETITOR = """
import socket, sys, time
port, heard = int(sys.argv[1]), 0
print('up', flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(('127.0.0.1', port)); server.listen(64); server.settimeout(0.0005)
        end_of_it, _ = server.accept()
        end_of_it.settimeout(1)
        heard += 1
    except OSError:
        pass
    server.close()
print(heard, flush=True)
"""


@pytest.mark.parametrize("name", RACES)
@pytest.mark.sampled(1)
def test_a_race_for_the_port_of_a_listener(name: str, tmp_path: Path) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = BEGIN + RACE.replace("LET_GO", RACES[name])
    for kind, seconds in (("open", "2"), ("no-namespaces", "4")):
        rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", COMPETITOR, port, seconds], stdout=subprocess.PIPE, text=True
        ) as competitor:
            assert competitor.stdout is not None
            competitor.stdout.readline()
            said = Programs(kind, rules, seconds=60.0).python(code, port, str(tmp_path), seconds)
            heard = int(competitor.stdout.read())
        assert "reached True" in said, said
        if kind == "open":
            assert heard
        else:
            assert heard == 0


# The proxy of a run serves its processes alone.

LEFT_OPEN = """
s = socket.create_connection(('127.0.0.1', 3128)); print(s.getpeername()[1], flush=True)
with open(sys.argv[1] + '/port', 'w') as file: file.write(str(s.getpeername()[1]))
while not os.path.exists(sys.argv[1] + '/go'): pass
s.sendall(b'GET http://nowhere.test/ HTTP/1.1\\r\\nHost: nowhere.test\\r\\n\\r\\n')
print(s.recv(100).split()[1])
"""


def test_the_proxy_of_a_run_serves_nobody_else(tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}", "network:http:example.test")
    walled = Programs("no-namespaces", rules, http=HttpClient())
    said: list[str] = []
    running = threading.Thread(target=lambda: said.append(walled.python(LEFT_OPEN, str(tmp_path))))
    running.start()
    until(lambda: (tmp_path / "port").exists() and (tmp_path / "port").read_text().isdigit())
    port = int((tmp_path / "port").read_text())
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    for stranger in strangers:
        stranger.sendall(b"GET http://example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n")
    time.sleep(0.3)
    (tmp_path / "go").touch()
    running.join()
    assert "403" in said[0], said
    for stranger in strangers:
        stranger.settimeout(10)
        with suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
        stranger.close()
    # Another run does not reach it by its port either.
    other = Programs("no-namespaces", rules, http=HttpClient())
    assert "Errno 111" in other.python("socket.create_connection(('127.0.0.1', int(sys.argv[1])))", str(port))


def test_two_runs_have_listeners_of_their_own(tmp_path: Path) -> None:
    serve = """
server = socket.create_server(('127.0.0.1', 0))
with open(sys.argv[1] + '/served', 'w') as file: file.write(str(server.getsockname()[1]))
server.settimeout(5)
try:
    server.accept(); print('HEARD')
except TimeoutError:
    print('NOBODY')
"""
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    said: list[str] = []
    running = threading.Thread(
        target=lambda: said.append(Programs("no-namespaces", rules).python(serve, str(tmp_path)))
    )
    running.start()
    until(lambda: (tmp_path / "served").exists() and (tmp_path / "served").read_text().isdigit())
    reach = "socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    assert "Errno 111" in Programs("no-namespaces").python(reach, (tmp_path / "served").read_text())
    running.join()
    assert said == ["NOBODY\n"]


# Unix sockets

ABSTRACT = {
    "connecting": "s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + sys.argv[1]); print('SENT')",
    "taking a name": "s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + sys.argv[1] + 'x'); s.listen(); print('SENT')",
    "taking any name": "s = socket.socket(socket.AF_UNIX); s.bind(''); s.listen(); print('SENT')",
}


@each_landlock
@pytest.mark.parametrize("name", ABSTRACT)
def test_names_without_a_file_are_those_of_the_machine(name: str, landlock: int | None, tmp_path: Path) -> None:
    address = f"licet-{tmp_path.name}-{os.getpid()}"
    with listening(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{address}"):
        assert "SENT" in open_programs().python(ABSTRACT[name], address)
        assert "SENT" not in Programs("no-namespaces", landlock=landlock).python(ABSTRACT[name], address)


SWAPPED = """
import threading
here = sys.argv[1]
def exchange():
    while True:
        try:
            os.rename(here + '/door', here + '/own')
        except OSError:
            pass
        try:
            os.link(here + '/kept', here + '/door')
        except OSError:
            pass
os.link(here + '/door', here + '/kept')
threading.Thread(target=exchange, daemon=True).start()
for attempt in range(int(sys.argv[2])):
    try:
        os.unlink(here + '/own')
    except OSError:
        pass
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(here + '/own')
        except OSError:
            pass
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(here + '/own')
        except OSError:
            continue
        if client.getpeername().endswith('door'):
            print('SENT')
            break
os._exit(sys.stdout.flush() or 0)
"""


def test_a_race_with_the_name_of_a_socket_of_its_own(tmp_path: Path) -> None:
    for kind, attempts in (("open", "100000"), ("no-namespaces", "1500")):
        folder = tmp_path / kind
        folder.mkdir()
        rules = (f"fs:read:{folder}", f"fs:write:{folder}", f"fs:delete:{folder}")
        with a_door(folder) as heard:
            walled = Programs(kind, rules, deletes="session", effect="full", seconds=120.0)
            assert ("SENT" in walled.python(SWAPPED, str(folder), attempts)) is (kind == "open")
            assert kind == "open" or not heard


# Signals, and what its supervisor is

SUPERVISOR = {
    "killing it": "os.kill(os.getppid(), 9); time.sleep(0.3); os.kill(os.getppid(), 0) or print('DONE')",
    "stopping it": "os.kill(os.getppid(), 19); print('DONE')",
    "its memory": "open(f'/proc/{os.getppid()}/mem', 'rb').close(); print('DONE')",
    "its environment": "print('DONE' if open(f'/proc/{os.getppid()}/environ').read() is not None else '')",
    "its files": "print('DONE' if os.readlink(f'/proc/{os.getppid()}/fd/1') else '')",
    "a copy of its files": """
print('DONE' if ctypes.CDLL(None).syscall(438, os.pidfd_open(os.getppid()), 3, 0) >= 0 else '')
""",
    "its limits": "import resource; resource.prlimit(os.getppid(), 7, (3, 3)); print('DONE')",
    "its working directory": "print('DONE' if os.listdir(f'/proc/{os.getppid()}/cwd/') else '')",
}


@each_landlock
@pytest.mark.parametrize("name", SUPERVISOR)
@pytest.mark.sampled(6)
def test_a_program_does_not_reach_its_supervisor(name: str, landlock: int | None) -> None:
    code = f"import ctypes, time\n{SUPERVISOR[name]}"
    said = Programs("no-namespaces", ("fs:read:*",), landlock=landlock).python(code)
    assert "DONE" not in said
    assert "Error" in said or "438" in code


GROUPS = """
import signal, subprocess, time
child = subprocess.Popen(['sleep', '60'], start_new_session=True)
os.kill(child.pid, 0); os.killpg(child.pid, signal.SIGTERM); print(child.wait())
child = subprocess.Popen(['sleep', '60'])
child.send_signal(signal.SIGUSR1); print(child.wait())
signal.signal(signal.SIGUSR2, lambda *_: print('self'))
os.kill(os.getpid(), signal.SIGUSR2)
os.kill(0, signal.SIGUSR2)
signal.pthread_kill(__import__('threading').get_ident(), signal.SIGUSR2)
try:
    os.kill(1, 0)
except PermissionError:
    print('init stays')
child = subprocess.Popen(['sh', '-c', 'sleep 60 & sleep 60'])
time.sleep(0.3)
os.kill(-1, signal.SIGKILL); print(child.wait())
"""


@each_landlock
def test_signals_among_its_own_processes(landlock: int | None) -> None:
    said = Programs("no-namespaces", landlock=landlock).python(GROUPS).split("\n")
    assert said[:7] == ["-15", "-10", "self", "self", "self", "init stays", "-9"]


SHELL = """
set -m
sleep 60 & sleep 0.1; kill %1; wait %1; echo "job $?"
timeout 0.2 sleep 60; echo "timeout $?"
set +m  # a shell with jobs may wait no longer once it has seen that one was stopped
(exec sleep 60) & last=$!; kill -STOP $last; kill -CONT $last; kill -9 $last; wait $last; echo "last $?"
"""


@each_landlock
def test_jobs_of_a_shell_work(landlock: int | None) -> None:
    ended = Programs("no-namespaces", landlock=landlock).run("bash", "-c", SHELL)
    assert ended.stdout_bytes.split(b"\n")[:3] == [b"job 143", b"timeout 124", b"last 137"], ended


# Metadata

WORK = """
cd {at} && echo x > a && chmod 640 a && stat -c %a a && touch -d 2001-01-01 a && stat -c %Y a && cp -p a b &&
stat -c %Y b && mkdir d && chmod 711 d && cp -a d e && stat -c %a e && ln -s a l && touch -h l &&
tar cf t.tar a d && mkdir t && tar xpf t.tar -C t && stat -c %a t/a && install -m 755 a i && stat -c %a i
"""
OUTSIDE = {
    "by its path": "chmod 777 {out}/secret",
    "by a link": "ln -s {out}/secret l; chmod 777 l",
    "by its directory": "chmod 777 {out}",
    "by a relative path": "cd {at}; chmod 777 ../out/secret",
    "its times": "touch -d 2001-01-01 {out}/secret",
    "its owner": "chown 0:0 {out}/secret",
    "by the root in /proc": "chmod 777 /proc/self/root{out}/secret",
    "by its open file": "exec 5< {out}/secret; chmod 777 /proc/self/fd/5 /dev/fd/5",
    "by another name": "cd {at}; ln {out}/secret n; chmod 777 n",
    "set-user-id": "cd {at}; touch s; chmod 4755 s; test -u s && echo DONE",
    "what a rule closes": "cd {at}; chmod 777 .env",
    "the directory around what is closed": "chmod 777 {at}",
}


@each_landlock
def test_metadata_of_its_own_files(landlock: int | None, tmp_path: Path) -> None:
    at = tmp_path.resolve()
    walled = Programs("no-namespaces", (f"fs:read:{at}", f"fs:write:{at}"), landlock=landlock)
    ended = walled.run("sh", "-c", WORK.format(at=at))
    assert ended.stdout_bytes.split() == [b"640", b"978307200", b"978307200", b"711", b"640", b"755"], ended


@each_landlock
@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.sampled(6)
def test_metadata_of_other_files(name: str, landlock: int | None, tmp_path: Path) -> None:
    out, at = tmp_path.resolve() / "out", tmp_path.resolve() / "at"
    for folder in (out, at):
        folder.mkdir()
    for file in (out / "secret", at / ".env"):
        file.write_text("x")
        file.chmod(0o600)
    rules = (f"fs:read:{tmp_path}", f"fs:write:{at}")
    walled = Programs("no-namespaces", rules, deny=(f"fs:*:{at}/.env",), landlock=landlock)
    paths = (out, out / "secret", at / ".env")
    before = [(path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_uid) for path in paths]
    ended = walled.run("sh", "-c", OUTSIDE[name].format(out=out, at=at))
    after = [(path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_uid) for path in paths]
    assert before == after
    assert b"DONE" not in ended.stdout_bytes


EXCHANGED = """
import threading
at, out = sys.argv[1:3]
open(at + '/own', 'w').close()
os.symlink('own', at + '/one'); os.symlink(out + '/secret', at + '/two')
libc = __import__('ctypes').CDLL(None)
def exchange():
    while True:
        libc.renameat2(-100, (at + '/one').encode(), -100, (at + '/two').encode(), 2)
threading.Thread(target=exchange, daemon=True).start()
for attempt in range(int(sys.argv[3])):
    try:
        os.chmod(at + '/one', 0o611)
    except OSError:
        pass
    if os.stat(out + '/secret').st_mode & 0o777 == 0o611:
        print('DONE')
        break
os._exit(sys.stdout.flush() or 0)
"""


def test_a_race_for_the_mode_of_another_file(tmp_path: Path) -> None:
    for kind, attempts in (("open", "100000"), ("no-namespaces", "1500")):
        at, out = tmp_path / kind / "at", tmp_path / kind / "out"
        for folder in (at, out):
            folder.mkdir(parents=True)
        (out / "secret").write_text("x")
        rules = (f"fs:read:{tmp_path}", f"fs:write:{at}", f"fs:delete:{at}")
        said = Programs(kind, rules, deletes="session", effect="full", seconds=120.0).python(
            EXCHANGED, str(at), str(out), attempts
        )
        assert ("DONE" in said) is (kind == "open"), said


WATCH = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
file = libc.inotify_init1(0o4000)
print('WATCHES' if libc.inotify_add_watch(file, sys.argv[1].encode(), 0x100) > 0 else os.strerror(ctypes.get_errno()))
open(sys.argv[1] + '/new', 'w').close()
print(len(os.read(file, 4096)) > 0)
"""


def test_files_are_watched_where_they_may_be_read(tmp_path: Path) -> None:
    seen, hidden = tmp_path / "seen", tmp_path / "hidden"
    for folder in (seen, hidden):
        folder.mkdir()
    walled = Programs("no-namespaces", (f"fs:read:{seen}", f"fs:write:{seen}"))
    assert walled.python(WATCH, str(seen)) == "WATCHES\nTrue\n"
    assert "WATCHES" in open_programs().python(WATCH, str(hidden))
    assert "WATCHES" not in walled.python(WATCH, str(hidden))


SHARED = """
import multiprocessing
from multiprocessing import shared_memory
with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, 2]))
made = shared_memory.SharedMemory(create=True, size=9)
seen = shared_memory.SharedMemory(name=made.name)
seen.buf[0] = 7
print(made.buf[0], os.path.exists('/dev/shm/' + made.name))
seen.close(); made.close(); made.unlink()
try:
    open('/dev/shm/' + sys.argv[1], 'w')
    print('made')
except OSError: pass
print(open('/dev/shm/licet-foreign', 'r+').read())
"""


@each_landlock
def test_shared_memory_is_its_own(landlock: int | None) -> None:
    foreign = Path("/dev/shm/licet-foreign")
    foreign.write_text("foreign")
    try:
        said = Programs("no-namespaces", landlock=landlock).python(SHARED, f"licet-{os.getpid()}").splitlines()
    finally:
        foreign.unlink()
    assert said[:3] == ["[1, 2]", "7 False", "made"]
    assert "FileNotFoundError" in said[3] or "PermissionError" in said[3]
    assert not Path(f"/dev/shm/licet-{os.getpid()}").exists()


# The end

LEFT = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()}\\n')
            time.sleep(60)
        os._exit(0)
while open(sys.argv[1]).read().count('\\n') < 3: pass
"""


def test_nothing_stays_that_it_left_running(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.touch()
    Programs("no-namespaces", (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")).python(LEFT, str(left))
    processes = [int(line) for line in left.read_text().split()]
    assert len(processes) == 3
    assert not [process for process in processes if alive(process)]


MANY = """
import subprocess, sys, time
children = [subprocess.Popen(['sleep', '3']) for _ in range(80)]
print('ALL', len(children))
time.sleep(2)
print(sum(child.poll() is None for child in children))
sys.exit(1)
"""


@pytest.mark.who
def test_processes_and_entries_are_limited(tmp_path: Path) -> None:
    rules = (f"fs:read:{tmp_path}", f"fs:write:{tmp_path}")
    line = f"for i in 1 2 3 4 5 6 7 8; do mkdir {tmp_path}/$i || exit 7; done"
    ended = Programs("no-namespaces", rules, limits={"written_paths": 5}).run("sh", "-c", line)
    assert (ended.exit_code, ended.reason) == (7, "LIMIT_PATHS")
    assert len(list(tmp_path.iterdir())) == 5
    ended = Programs("no-namespaces", limits={"processes": 20}).run(PYTHON, "-I", "-S", "-c", MANY)
    alive_at_the_end = [int(word) for word in ended.stdout_bytes.split()[2:3]]
    assert not alive_at_the_end or alive_at_the_end[0] <= 20
    assert os.getuid() or ended.reason == "LIMIT_PROCESSES"


# A listener chooses its port, gives it up without closing the socket, and listens elsewhere with the same socket.
MOVED = """
import time
s = socket.socket()
s.setsockopt(socket.IPPROTO_IP, 51, (port << 16 | port).to_bytes(4, 'little'))  # IP_LOCAL_PORT_RANGE
s.bind(('127.0.0.1', 0)); s.listen(); s.shutdown(socket.SHUT_RDWR)
s.setsockopt(socket.IPPROTO_IP, 51, bytes(4))
s.bind(('127.0.0.1', 0)); s.listen()
open('free', 'w').close()
while not os.path.exists('taken'):
    time.sleep(0.01)
print(socket.create_connection(('127.0.0.1', port), 20).recv(9))
"""


def test_a_port_that_a_listener_has_left_is_not_its_own(tmp_path: Path) -> None:
    where = tmp_path.resolve()
    with socket.create_server(("127.0.0.1", 0)) as picked:
        port = picked.getsockname()[1]

    def serve() -> None:
        until(lambda: (where / "free").exists())
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(2)
            (where / "taken").touch()
            client, _ = server.accept()
            client.sendall(b"foreign")
            client.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        held = [f"fs:{action}:{where}" for action in ("read", "write")]
        said = Programs("no-namespaces", held).python(f"port = {port}\n{MOVED}", cwd=str(where))
    finally:
        (where / "free").touch()
        thread.join(30)
    if "Protocol not available" in said or "AddressInUse" in said:
        pytest.skip("this kernel lets no socket choose its range of ports")
    assert "ConnectionRefusedError" in said


def test_a_link_to_the_process_itself_is_not_that_of_the_supervisor(tmp_path: Path) -> None:
    where = tmp_path.resolve()
    (where / ".env").write_text("TOKEN=secret")
    code = (
        "os.symlink('/proc/self', 'me')\n"
        "print(f'Pid:\\t{os.getpid()}\\n' in open('me/status').read())\n"
        "open('me/mem', 'rb').read(1)"
    )
    held = [f"fs:{action}:{where}" for action in ("read", "write")]
    said = Programs("no-namespaces", held, deny=[f"fs:read:{where}/.env"]).python(code, cwd=str(where))
    assert said.startswith(("True\n", "PermissionError", "OSError"))
    assert "launcher" not in said
