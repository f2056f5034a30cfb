"""A program, or the server that it talks to, is after the key of a run that looks into HTTPS, behind real walls.

Each attack works where one thing is left to a simpler proxy: that is played first.
"""

import asyncio
import base64
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from attacks.walled_programs import PYTHON, needs_namespaces
from effort import LONG
from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.core.policy import inspection
from licet.guard.execution import Command, TakesSecrets
from licet.guard.grant import Grant
from licet.guard.ports import Exchange
from licet.sandbox.inspection import key_checks, stand_ins
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.client_trust import FOLDER
from licet.sandbox.inspection.inspected import Inspected
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from loopback import Server, authority_file, serving
from sandbox.inspection import key_search

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(shutil.which("curl", path="/usr/bin:/bin") is None, reason="there is no curl here"),
]
HOST, OTHER = "met.test", "other.test"
KEY = "ghp_Zx8WvQ2mN4kJ7hG1fD5sA9pO3iU6yT0rEwLq"
WITH_KEY = '-H "Authorization: Bearer $TOKEN"'


class Names(HttpClient):
    """The network of this machine, where two more names lead to loopback."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",) if host in (HOST, OTHER) else tuple(await super().resolve(host, port))


class Run:
    """A run whose programs use a key at one host, beside the real roots of a server for two."""

    def __init__(self, folder: Path, server: Server, *inspect: str, rules: tuple[str, ...] = ()) -> None:
        self.home, self.port = folder.resolve() / "home", server.port
        self.home.mkdir(exist_ok=True)
        self.roots = authority_file(self.home)
        reads = (os.path.dirname(os.path.dirname(PYTHON)), str(self.home), os.path.dirname(key_search.__file__))
        self.grant: Grant = grant(
            [
                *(f"network:https:get@{host}:{server.port}" for host in (HOST, OTHER)),
                *(f"fs:read:{path}" for path in reads),
                *("secret:read:met/token", "process:exec:*"),
                *rules,
            ],
            private=["127.0.0.0/8"],
        )
        stated = inspection.stand_ins({"TOKEN": {"secret": "met/token", "hosts": [f"{HOST}:{server.port}"]}})
        values = {"inspect": tuple(f"{host}:{server.port}" for host in inspect), "stand_ins": stated}
        manifest = self.grant.reach.manifest
        self.grant.reach = replace(self.grant.reach, manifest=replace(manifest, values={**manifest.values, **values}))
        self.authority: Authority | None = None
        self.stand_in = ""

    def says(self, *command: str | Callable[["Run"], str]) -> str:
        """What a program prints, once its secrets were taken. Words may be known only then."""

        async def run() -> str:
            network = Names(ca_file=self.roots)
            walls = ProgramWalls(network).walls(self.grant)
            assert isinstance(walls, TakesSecrets)
            await walls.take_secrets(_value)
            inspecting = walls._inspecting  # type: ignore[attr-defined]
            self.authority, self.stand_in = inspecting.authority, inspecting.keys.environment["TOKEN"]
            processes = LocalProcesses("/usr/bin:/bin")
            words = tuple(word if isinstance(word, str) else word(self) for word in command)
            binary = processes.find(words[0])
            assert binary is not None
            given = {"PATH": "/usr/bin:/bin", "ROOTS": self.roots, "HOME": str(self.home)}
            given |= {"URL": f"https://{HOST}:{self.port}", "OTHER": f"https://{OTHER}:{self.port}"}
            ended = await processes.run(Command(binary, words, given, str(self.home), b"", 120.0, 1 << 20), walls)
            await network.close()
            return ended.stdout + ended.stderr

        return asyncio.run(run())

    def shell(self, line: str) -> str:
        """What a line of a shell prints."""
        return self.says("sh", "-c", line)

    @property
    def reasons(self) -> list[str]:
        """The reasons of what was refused."""
        return [event.reason for event in self.grant.events if event.reason]


async def _value(_: str) -> str:
    return KEY


def site(exchange: Exchange) -> Answer:
    sent = dict(exchange.headers).get("authorization", "no key").encode()
    match exchange.url.rpartition("/")[2]:
        case "moved":
            return Answer(302, [("Location", f"https://{OTHER}:{exchange.port}/")])
        case "base64":
            return Answer(200, (), base64.b64encode(b"you: " + sent))
        case "percent":
            return Answer(200, (), "".join(f"%{byte:02x}" for byte in sent).encode())
        case "quoted":
            return Answer(200, (), quote(sent.decode(), safe="").encode())
        case "json":
            return Answer(200, (), "".join(f"\\u{byte:04x}" for byte in sent).encode())
        case "gzip":
            return Answer(200, [("Content-Encoding", "gzip")], gzip.compress(sent))
        case "split":
            return Answer(200, (), [bytes((byte,)) for byte in sent])
        case "header":
            return Answer(200, [("X-Echo", sent.decode())], b"-")
    return Answer(200, (), sent)


def met() -> Any:
    return serving(site, names=(HOST, OTHER))


def heard(server: Server) -> list[tuple[str, str]]:
    """The hosts that were asked, each with the credential that it got."""
    return [(one.host, dict(one.headers).get("authorization", "")) for one in server.seen]


# The key comes back ---------------------------------------------------------------------------------------------------

READ: dict[str, Callable[[str], str]] = {
    "raw": lambda said: said,
    "base64": lambda said: base64.b64decode(said).decode("latin-1"),
    "percent": lambda said: bytes.fromhex(said.replace("%", "")).decode(),
    "quoted": lambda said: said.replace("%20", " "),
    "json": lambda said: said.encode().decode("unicode-escape"),
    "gzip": lambda said: said,
    "split": lambda said: said,
    "header": lambda said: said,
}


@pytest.mark.parametrize("form", READ)
def test_a_server_sends_the_key_back(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"curl -sS {'-i' if form == 'header' else '--compressed'} {WITH_KEY} $URL/{form}"
    with met() as server:
        with monkeypatch.context() as simpler:
            simpler.setattr(key_checks.RequestKeys, "clean", lambda _, reply, __: reply)
            assert KEY in READ[form](Run(tmp_path, server, HOST).shell(line))
        run = Run(tmp_path, server, HOST)
        said = READ[form](run.shell(line))
        assert heard(server) == [(HOST, f"Bearer {KEY}")] * 2
    assert KEY not in said
    assert run.stand_in in said


# The key goes elsewhere -----------------------------------------------------------------------------------------------

FOLLOW = f"curl -sS -L --location-trusted {WITH_KEY} $URL/moved"


def test_a_redirect_leads_a_program_with_the_key_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with met() as server:
        with monkeypatch.context() as simpler:
            simpler.setattr(stand_ins.StandIns, "_lists", lambda *_: True)
            Run(tmp_path, server, HOST, OTHER).shell(FOLLOW)
        assert (OTHER, f"Bearer {KEY}") in heard(server)
        server.seen.clear()
        run = Run(tmp_path, server, HOST, OTHER)
        said = run.shell(FOLLOW)
        assert heard(server) == [(HOST, f"Bearer {KEY}")]
    assert run.reasons == ["SECRET_NOT_DECLARED"]
    assert KEY not in said


def test_what_leaves_in_a_tunnel_is_worth_nothing(tmp_path: Path) -> None:
    with met() as server:
        run = Run(tmp_path, server, HOST, rules=(f"network:tcp:{OTHER}:{server.port}",))
        run.shell(f"{FOLLOW} --cacert $ROOTS || curl -sS --cacert $ROOTS {WITH_KEY} $OTHER/")
        assert heard(server)[-1] == (OTHER, f"Bearer {run.stand_in}")
        assert KEY not in str(heard(server)[-1])


# The authority of the run ---------------------------------------------------------------------------------------------


def private(authority: Authority | None) -> bytes:
    """The secret number of an authority's key."""
    assert authority is not None
    key: ec.EllipticCurvePrivateKey = authority._key
    return key.private_numbers().private_value.to_bytes(32, "big")


SEARCH = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import key_search
for number in os.listdir("/proc/self/fd"):
    try:
        os.lseek(int(number), 0, 0)
    except OSError:
        pass
folders = [*sys.argv[3:], "/tmp", "/etc/ssl", "/run", "/proc/self/fd"]
print(key_search.places(bytes.fromhex(sys.argv[2])[::-1], folders), os.listdir(sys.argv[3]))
"""


def test_a_program_looks_for_the_key_of_the_authority(tmp_path: Path) -> None:
    def backwards(run: Run) -> str:
        return private(run.authority)[::-1].hex()

    def kept_in_a_file(run: Run) -> str:
        assert run.authority is not None
        found = run.authority._key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        (run.home / "authority-key.der").write_bytes(found)  # as proxies do that last longer than a run
        return backwards(run)

    with met() as server:
        for number, expected in ((kept_in_a_file, "['file']"), (backwards, "[]")):
            run = Run(tmp_path, server, HOST)
            words = (PYTHON, "-I", "-c", SEARCH, key_search.__file__, number, FOLDER, str(run.home))
            said = run.says(*words)
            assert said.startswith(expected), said
            assert "authority.pem" in said
            (run.home / "authority-key.der").unlink(missing_ok=True)


ALONE = f"curl -sS --cacert {FOLDER}/authority.pem --capath /dev/null $OTHER/ 2>&1"


def test_the_authority_vouches_for_no_host_that_is_not_looked_into(tmp_path: Path) -> None:
    with met() as server:
        tunnel = (f"network:tcp:{OTHER}:{server.port}",)
        everything = Run(tmp_path, server, HOST, OTHER)  # a proxy that looks into all hosts
        assert everything.shell(ALONE) == "no key"
        run = Run(tmp_path, server, HOST, rules=tunnel)
        said = run.shell(f"{ALONE}; curl -sS --cacert $ROOTS --capath /dev/null $OTHER/")
    assert "certificate" in said.partition("no key")[0]
    assert said.endswith("no key")  # by the server's own certificate


def test_a_program_that_trusts_nothing_else_gets_nothing_and_is_named(tmp_path: Path) -> None:
    with met() as server:
        run = Run(tmp_path, server, HOST)
        said = run.shell(f"curl -sS --cacert $ROOTS --capath /dev/null {WITH_KEY} $URL/ 2>&1")
        assert server.connections == 0
        tunnel = Run(tmp_path, server, OTHER, rules=(f"network:tcp:{HOST}:{server.port}",))
        assert tunnel.shell(f"curl -sS --cacert $ROOTS --capath /dev/null {WITH_KEY} $URL/").startswith("Bearer ghp_")
        assert heard(server) == [(HOST, f"Bearer {tunnel.stand_in}")]
    assert "certificate" in said
    assert run.reasons == ["CONNECT_FAILED"]
    (event,) = (event for event in run.grant.events if event.reason)
    assert f"{HOST}:{server.port}" in event.rule


# Many connections -----------------------------------------------------------------------------------------------------

OPEN = """
import os, socket, ssl, subprocess, sys, urllib.parse
place = urllib.parse.urlsplit(os.environ["URL"]).netloc
trust, kept = ssl.create_default_context(), []
for _ in range(int(sys.argv[1])):
    made = socket.create_connection(("127.0.0.1", 3128))
    made.sendall(f"CONNECT {place} HTTP/1.1\\r\\n\\r\\n".encode())
    try:
        if made.recv(1000):
            kept.append(trust.wrap_socket(made, server_hostname="met.test"))
    except OSError:
        pass
    if len(kept) > 300:
        kept.pop(0).close()
print(subprocess.run(["sh", "-c", sys.argv[2]], capture_output=True, text=True))
"""


@pytest.mark.skipif(not LONG, reason="a thousand connections take minutes: with LICET_LONG=1")
def test_a_program_with_a_thousand_connections_keeps_out_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"curl -sS --max-time {{}} {WITH_KEY} $URL/"
    with met() as server:
        with monkeypatch.context() as simpler:
            simpler.setattr(Inspected, "end_idle", lambda _: False)  # holds each one until the program ends it
            said = Run(tmp_path, server, HOST).says(PYTHON, "-I", "-c", OPEN, "200", line.format(3))
            assert "returncode=0" not in said
        assert server.connections == 0
        run = Run(tmp_path, server, HOST)
        said = run.says(PYTHON, "-I", "-c", OPEN, "1000", line.format(60))
        assert heard(server) == [(HOST, f"Bearer {KEY}")]
    assert "returncode=0" in said
    assert KEY not in said
