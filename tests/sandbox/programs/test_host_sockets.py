"""A socket of the host that a rule names can be connected to, by its exact path, and no other one."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, both_kinds, needs_namespaces
from licet.backends.http import HttpClient
from licet.sandbox.programs import host_sockets

pytestmark = needs_namespaces

TALK = "s = socket.socket(1); s.connect(sys.argv[1]); print(s.recv(9))"
SAID = "b'hello'\n"


@contextmanager
def greeting(path: Path) -> Iterator[Path]:
    """A server of the host that greets whoever connects to a path."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"hello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def programs(*rules: str, deny: tuple[str, ...] = (), effect: str = "full", kind: str = "namespaces") -> Programs:
    return Programs(kind, rules, deny=deny, effect=effect)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "run").mkdir()
    with greeting(tmp_path.resolve() / "run" / "granted.sock") as path:
        yield path


@both_kinds
def test_a_granted_socket_is_reached(kind: str, server: Path) -> None:
    assert programs(f"socket:connect:{server}", kind=kind).python(TALK, str(server)) == SAID


def test_the_rule_shows_the_socket_and_nothing_beside_it(server: Path) -> None:
    (server.parent / "other").write_text("x")
    listed = programs(f"socket:connect:{server}").python(f"print(os.listdir({os.fspath(server.parent)!r}))")
    assert listed == "['granted.sock']\n"


REFUSED = {
    "no rule": ((), (), "full"),
    "a rule about another path": (("socket:connect:/run/other.sock",), (), "full"),
    "a rule about the directory": (("socket:connect:{directory}",), (), "full"),
    "every file and every host": (("fs:*:{directory}", "network:*:*"), (), "full"),
    "a deny": (("socket:connect:{socket}",), ("socket:*:*",), "full"),
    "a class that only writes": (("socket:connect:{socket}",), (), "write_limited"),
}


@both_kinds
@pytest.mark.parametrize("case", REFUSED)
def test_a_socket_is_not_reached_by(kind: str, case: str, server: Path) -> None:
    rules, deny, effect = REFUSED[case]
    written = [rule.format(directory=server.parent, socket=server) for rule in rules]
    assert SAID not in programs(*written, deny=deny, effect=effect, kind=kind).python(TALK, str(server))


def test_a_granted_socket_opens_no_other_one(server: Path) -> None:
    with greeting(server.with_name("other.sock")) as other:
        held = (f"socket:connect:{server}", f"fs:*:{server.parent}")
        assert SAID not in programs(*held).python(TALK, str(other))


def test_a_link_of_a_program_in_place_of_the_socket_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with greeting(tmp_path.resolve() / "guarded.sock") as guarded:
        link = tmp_path.resolve() / "project" / "service.sock"
        held = (f"socket:connect:{link}", f"fs:write:{link.parent}", f"fs:read:{link.parent}")
        programs(*held).python(f"os.symlink({os.fspath(guarded)!r}, {os.fspath(link)!r})")
        assert link.is_symlink()
        assert SAID not in programs(*held).python(TALK, str(link))


@both_kinds
def test_a_socket_that_a_program_may_have_put_there_is_not_reached(kind: str, tmp_path: Path) -> None:
    directory = tmp_path.resolve() / "run"
    directory.mkdir()
    with greeting(directory / "admin.sock") as other:
        granted = directory / "app.sock"
        held = (f"socket:connect:{granted}", *(f"fs:{action}:{directory}" for action in ("read", "write", "delete")))
        walled = Programs(kind, held, effect="full", deletes="session")
        for move in ("link", "rename"):
            walled.python(f"os.{move}({os.fspath(other)!r}, {os.fspath(granted)!r})")
        assert SAID not in Programs(kind, held, effect="full").python(TALK, os.fspath(granted))
        os.link(granted if granted.exists() else other, tmp_path / "second.sock")
    outside = f"socket:connect:{tmp_path.resolve()}/second.sock"
    assert SAID not in Programs(kind, (outside,), effect="full").python(TALK, f"{tmp_path.resolve()}/second.sock")


def test_the_agent_of_ssh_is_named_where_its_socket_is_granted(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", os.fspath(server))
    show = "print(os.environ.get('SSH_AUTH_SOCK'))"
    assert programs(f"socket:connect:{server}").python(show) == f"{server}\n"
    assert programs().python(show) == "None\n"


# ssh, through the proxy -----------------------------------------------------------------------------------------------

ANSWERS = {"200 Connection established": (0, b"pong"), "403 Forbidden": (1, b"")}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
@pytest.mark.parametrize("login", ["", "run:secret@"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_tunnel_speaks_to_the_proxy(answer: str, login: str) -> None:
    code, said = ANSWERS[answer]
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def serve() -> None:
            client, _ = proxy.accept()
            with client, client.makefile("rwb") as stream:
                while (line := stream.readline()).strip():
                    asked.append(line.strip())
                stream.write(f"HTTP/1.1 {answer}\r\nX: y\r\n\r\n".encode())
                stream.flush()
                if code == 0 and stream.read(4) == b"ping":
                    stream.write(b"pong")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        tunnel = host_sockets.ssh_variables(())["LICET_SSH_TUNNEL"]
        proxy_url = f"http://{login}127.0.0.1:{proxy.getsockname()[1]}"
        ended = subprocess.run(
            ["bash", "-c", tunnel, "-", "git.example", "22"],
            env={"https_proxy": proxy_url, "PATH": "/usr/bin:/bin"}, input=b"ping", capture_output=True, timeout=30,
        )  # fmt: skip
        thread.join(10)
    assert (ended.stdout, asked[0]) == (said, b"CONNECT git.example:22 HTTP/1.1")
    assert (b"Proxy-Authorization: Basic cnVuOnNlY3JldA==" in asked) is bool(login)
    assert code == 0 or b"the proxy refuses git.example:22" in ended.stderr


def test_git_is_led_to_the_proxy_only_where_a_rule_names_the_port_of_ssh() -> None:
    show = "print('GIT_SSH_COMMAND' in os.environ)"
    for rule, led in (("network:tcp:git.example:22", True), ("network:tcp:git.example:443", False)):
        assert Programs("namespaces", (rule,), http=HttpClient()).python(show) == f"{led}\n"
