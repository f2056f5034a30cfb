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
from licet.backends.http_memory import Answer
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


@needs_walls
def test_without_a_network_of_its_own_a_program_has_no_sockets() -> None:
    for code in ("socket.socket()", "socket.socket(socket.AF_UNIX)"):
        assert "PermissionError" in Programs("no-namespaces").python(code)
