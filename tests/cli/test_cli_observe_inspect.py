"""`licet observe --inspect`: requests inside HTTPS become uses with their method, and nothing else of them is kept."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import warm
from attacks.walled_programs import needs_namespaces
from cli.test_cli_observe import Ended, observe, refusing
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
    (receipt,) = re.findall(r"licet receipts show (r-\S+)", other.stderr)
    explained = licet("", "explain", receipt).stdout
    assert f"refused       denied network:https:put@{HOST}:443  HOST_NOT_ALLOWED" in explained
    assert f"to allow it   see `licet explain .licet/licet.yaml run network:https:put@{HOST}:443`" in explained


# What is kept, and what is said --------------------------------------------------------------------------------------


def test_keys_go_through_as_they_are_and_only_host_and_method_are_kept(
    desk: Path, tmp_path: Path, server: Server
) -> None:
    line = f'curl -sS -H "Authorization: Bearer {SECRET}" -d "text of the body" "https://{HOST}/private/path?q=1"'
    Path("line.sh").write_text(line)
    ended = inspected(server, tmp_path, "sh", "line.sh")
    assert (ended.code, ended.out) == (0, "a page: text of the body"), ended.error
    (sent,) = server.seen
    assert dict(sent.headers)["authorization"] == f"Bearer {SECRET}"
    text = ended.recording.read_text() + ended.error
    assert f"network:https:post@{HOST}:443" in text
    found = [part for part in (SECRET, "text of the body", "private/path", "q=1", "a page", "session") if part in text]
    assert found == []


def test_what_is_looked_into_is_said_before_the_command_starts(desk: Path, tmp_path: Path, server: Server) -> None:
    ended = inspected(server, tmp_path, "sh", "-c", "echo the command itself >&2")
    said, _, _ = ended.error.partition("the command itself")
    for part in ("ends the TLS of the command", "with their keys", "no body", "pin certificates"):
        assert part in said
    report = json.loads(inspected(server, tmp_path, "true", options=("--json",)).error)
    assert report["inspected"] is True
    assert not json.loads(observe("true", options=("--json",)).error)["inspected"]


def test_the_certificates_of_a_run_are_for_this_user_alone_and_go_with_it(
    desk: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURL_CA_BUNDLE", authority_file(tmp_path))  # a bundle of the operator, which stays trusted
    code = f'echo $CURL_CA_BUNDLE; stat -c %a "${{CURL_CA_BUNDLE%/*}}"; curl -sS https://{HOST}/'
    ended = inspected(server, tmp_path, "sh", "-c", code)
    file, mode, answer = ended.out.splitlines()
    assert (mode, answer, os.path.exists(file), os.path.exists(os.path.dirname(file))) == (
        "700",
        "a page: ",
        False,
        False,
    )
    assert [use for use in ended.uses if os.path.dirname(file) in use] == []


# What cannot be looked into ------------------------------------------------------------------------------------------


def test_a_client_that_trusts_one_certificate_alone_is_named(desk: Path, tmp_path: Path, server: Server) -> None:
    pinned = authority_file(tmp_path)
    ended = inspected(server, tmp_path, "sh", "-c", f"curl -sS --cacert {pinned} https://{HOST}/ || echo failed")
    assert (ended.out, requests(ended), server.seen) == ("failed\n", {}, [])
    assert f"did not let be looked into, so they failed ({HOST}:443: " in ended.error
    assert "run these without --inspect" in ended.error


def test_a_distrustful_client_does_not_undo_the_request_of_another(desk: Path, tmp_path: Path, server: Server) -> None:
    pinned = authority_file(tmp_path)
    line = f"curl -sS https://{HOST}/; curl -sS --cacert {pinned} https://{HOST}/; true"
    assert requests(inspected(server, tmp_path, "sh", "-c", line)) == {f"network:https:get@{HOST}:443": 1}


def test_a_host_whose_certificate_is_wrong_is_named_and_no_use(desk: Path, tmp_path: Path) -> None:
    with serving(page, names=("another.example.com",)) as server:
        ended = inspected(server, tmp_path, "curl", "-sS", "-k", f"https://{HOST}/")
        assert server.seen == []
    assert requests(ended) == {}
    assert f"requests in HTTPS without an answer, which are no uses ({HOST}:443: its certificate is not" in ended.error


def test_metadata_stays_closed(desk: Path, tmp_path: Path, server: Server) -> None:
    ended = inspected(server, tmp_path, "curl", "-sS", "-k", "https://169.254.169.254/")
    assert requests(ended) == {}
    assert "requests to cloud metadata, which no policy allows (network:https:get@169.254.169.254:443)" in ended.error


def test_a_connection_to_another_port_stays_a_tunnel(desk: Path, tmp_path: Path, server: Server) -> None:
    place = f"{HOST}:{server.port}"
    ended = inspected(server, tmp_path, "curl", "-sS", "--cacert", authority_file(tmp_path), f"https://{place}/")
    assert (ended.out, requests(ended)) == ("a page: ", {f"network:tcp:{place}": 1}), ended.error


async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(
        b"HTTP/1.1 101 Ok\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: y\r\n\r\nhello"
    )
    await writer.drain()


def test_an_upgrade_is_its_request_and_a_connection(desk: Path, tmp_path: Path) -> None:
    headers = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
    line = f"curl -sS -i {' '.join(f'-H {one!r}' for one in headers)} https://{HOST}/; true"
    with talking(greets, names=(HOST,)) as server:
        ended = inspected(server, tmp_path, "sh", "-c", line)
        policy = yaml.safe_load(learned(str(ended.recording)).read_text())["capabilities"]
    assert "HTTP/1.1 101" in ended.out, ended.error
    assert requests(ended) == {f"network:https:get@{HOST}:443": 1, f"network:tcp:{HOST}:443": 1}
    assert policy["grants"] == [f"network:https:get@{HOST}:443", f"network:tcp:{HOST}:443"]


# Where it cannot run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "options", "code", "said"),
    [
        ("", ("--no-proxy",), 2, "--inspect needs the proxy, and --no-proxy leaves it out"),
        (refusing("unshare"), (), 125, "--inspect needs a proxy, and this machine has no network namespaces"),
        (
            "import os; os.environ['SSL_CERT_FILE'] = '{here}/large'\n",
            (),
            125,
            "certificates of this run cannot be made",
        ),
    ],
    ids=["no-proxy", "no-namespaces", "large-bundle"],
)
def test_without_a_proxy_nothing_is_run(
    desk: Path, before: str, options: tuple[str, ...], code: int, said: str
) -> None:
    Path("large").write_bytes(bytes(5 << 20))
    before = before.replace("{here}", str(desk))
    ended = observe("touch", "new", options=("--inspect", *options), before=before)
    assert (ended.code, said in " ".join(ended.error.split())) == (code, True), ended.error
    assert not Path("new").exists()


def test_a_command_that_is_not_looked_into_loads_none_of_it() -> None:
    code = "import sys, licet.cli.observe, licet.sandbox.observe.recorder as _\n"
    code += "print([name for name in sys.modules if '.inspection.' in name or name.startswith('cryptography')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in eval(found.stdout) if name != "licet.core.policy.inspection"] == []
