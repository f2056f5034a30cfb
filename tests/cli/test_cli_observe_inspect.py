"""`licet observe --inspect`: requests inside HTTPS become uses with their method, and nothing else of them is kept."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import warm
from attacks.walled_programs import needs_namespaces
from cli.test_cli_observe import Ended, observe
from licet.backends.memory import Answer
from licet.core.review.recording_lines import recording_start
from loopback import Server, authority_file, serving, talking
from pins import trust

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(shutil.which("curl", path="/usr/bin:/bin") is None, reason="there is no curl here"),
]
HOST = "api.example.com"
SECRET = "sk-ant-a-key-that-nobody-keeps-0123456789"

# The network of a run in which one more name leads to a server on loopback, also where it is asked for port 443.
NAMES = """
import ssl, httpcore2
from licet.backends import http
dial, resolve = httpcore2.AnyIOBackend.connect_tcp, http.HttpClient.resolve
async def connect_tcp(self, host, port, *args, **more):
    return await dial(self, host, {port} if port == 443 else port, *args, **more)
async def resolved(self, host, port):
    return ("127.0.0.1",) if host == {host!r} else await resolve(self, host, port)
httpcore2.AnyIOBackend.connect_tcp, http.HttpClient.resolve = connect_tcp, resolved
http.HttpClient._trust = lambda self: ssl.create_default_context(cafile={authority!r})
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def page(exchange: Any) -> Answer:
    return Answer(200, (("Set-Cookie", f"session={SECRET}"),), b"a page: " + exchange.body)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(page, names=(HOST,)) as started:
        yield started


def names(server: Server, tmp_path: Path) -> str:
    return NAMES.format(port=server.port, host=HOST, authority=authority_file(tmp_path))


def inspected(server: Server, tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> Ended:
    return observe(*words, options=("--inspect", *options), before=names(server, tmp_path))


def requests(ended: Ended) -> dict[str, int]:
    return {one.use: one.count for one in ended.touches if one.use.startswith("network:")}


def test_requests_inside_https_have_their_methods(desk: Path, tmp_path: Path, server: Server) -> None:
    line = f"curl -sS https://{HOST}/a https://{HOST}/b; curl -sS -d text https://{HOST}/c"
    ended = inspected(server, tmp_path, "sh", "-c", line)
    assert (ended.code, ended.out) == (0, "a page: a page: a page: text"), ended.error
    assert requests(ended) == {f"network:https:get@{HOST}:443": 2, f"network:https:post@{HOST}:443": 1}
    assert {one.tool for one in ended.touches if one.use.startswith("network:")} == {"curl"}
    assert recording_start(ended.recording.read_bytes().splitlines()[0]).inspected is True


def licet(before: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(before + warm.PROGRAM, list(words), env=os.environ, stdin="")


def learned(*extra: str) -> Path:
    """The policy that the recordings of this directory need, where servers on loopback may be reached."""
    ended = licet("", "learn", "--write", *extra)
    assert ended.returncode == 0, ended.stderr
    policy = Path(".licet/licet.yaml")
    print(policy.read_text())
    with policy.open("a") as file:
        file.write('  private: ["127.0.0.0/8"]\n')
        if "write_limited" in policy.read_text():
            file.write("  approvals: {write: manifest}\n")
    trust(policy.absolute(), Path(os.environ["XDG_STATE_HOME"]))
    return policy


def test_the_same_command_then_runs_under_the_draft_and_no_other_method_does(
    desk: Path, tmp_path: Path, server: Server
) -> None:
    before = names(server, tmp_path)
    line = f"curl -sS https://{HOST}/a; curl -sS -d text https://{HOST}/b"
    observed = licet(before, "observe", "--inspect", "--", "sh", "-c", line)
    assert observed.returncode == 0, observed.stderr
    drafted = yaml.safe_load(learned().read_text())["capabilities"]
    assert drafted["grants"] == [f"network:https:get@{HOST}:443", f"network:https:post@{HOST}:443"]
    assert drafted["inspect"] == [HOST]
    again = licet(before, "run", "--", "sh", "-c", line)
    assert (again.returncode, again.stdout, again.stderr) == (0, "a page: a page: text", "")
    other = licet(before, "run", "--", "sh", "-c", f"curl -sS -X PUT https://{HOST}/a")
    assert f"{HOST} is allowed, but not with PUT" in other.stdout
    assert [one.method for one in server.seen] == ["GET", "POST", "GET", "POST"]
