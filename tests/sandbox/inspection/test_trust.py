"""Real clients behind real walls trust the authority of their run, each by the way that it looks for roots."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from licet.sandbox import probe
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.client_trust import BUNDLES, CLIENTS, FOLDER, HASHED, Client, Trust, trust_in
from licet.sandbox.limits import LARGEST_BUNDLE
from sandbox.inspection.behind import HOST, PYTHON, SITE, Inspected
from sandbox.inspection.test_authority import serving

needs_namespaces = pytest.mark.skipif(not probe.support().namespaces, reason="user namespaces are not to be had here")
SYSTEM_BUNDLE = os.path.exists(BUNDLES[0])
PIP = [
    "env",
    "-u",
    "SSL_CERT_FILE",
    "-u",
    "REQUESTS_CA_BUNDLE",
    "-u",
    "CURL_CA_BUNDLE",
    PYTHON,
    "-m",
    "pip",
    "--isolated",
]
NODE_FETCH = "fetch(process.argv[1]).then(r=>r.text()).then(console.log,e=>console.log(e.cause||e))"
NODE_TLS = """
const [host, port] = process.argv[1].split("/")[2].split(":");
const asked = require("http").request({host: "127.0.0.1", port: 3128, method: "CONNECT", path: host + ":" + port});
asked.on("connect", (_, socket) => require("tls").connect({socket, servername: host}, function () {
    this.end("GET / HTTP/1.1\\r\\n\\r\\n"); this.on("data", d => console.log(String(d)));
}).on("error", e => console.log(e.code))).end();
"""


def only(variable: str, *command: str) -> list[str]:
    """A command with no variable about certificates but one."""
    others = [word for client in CLIENTS if client.variable != variable for word in ("-u", client.variable)]
    return ["env", *others, *command]


def python(code: str) -> list[str]:
    return [PYTHON, "-c", f"import sys; url = sys.argv[1]\n{code}", "{url}"]


URLLIB = python("import urllib.request as u; print(u.urlopen(url).read())")
CURL = ["curl", "-sS", "{url}"]
REQUESTS = python("import requests; print(requests.get(url).text)")
GIT = ["git", "ls-remote", "{url}"]
OPENSSL = [
    "openssl",
    "s_client",
    "-proxy",
    "127.0.0.1:3128",
    "-connect",
    "{place}",
    "-verify_return_error",
    "-quiet",
    "-no_ign_eof",
]
# Each client with the one way by which it finds roots; what it makes of the answer does not matter.
ROWS = {
    "urllib by SSL_CERT_FILE": only("SSL_CERT_FILE", *URLLIB),
    "curl by SSL_CERT_FILE": only("SSL_CERT_FILE", *CURL),
    "curl by CURL_CA_BUNDLE": only("CURL_CA_BUNDLE", *CURL),
    "requests by REQUESTS_CA_BUNDLE": only("REQUESTS_CA_BUNDLE", *REQUESTS),
    "requests by CURL_CA_BUNDLE": only("CURL_CA_BUNDLE", *REQUESTS),
    "httpx2 by SSL_CERT_FILE": only("SSL_CERT_FILE", *python("import httpx2; print(httpx2.get(url).text)")),
    "aiohttp by SSL_CERT_FILE": only("SSL_CERT_FILE", *python("""
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.get(url) as r: print(await r.text())
asyncio.run(main())""")),
    "git by GIT_SSL_CAINFO": only("GIT_SSL_CAINFO", *GIT),
    "node by NODE_EXTRA_CA_CERTS": only("NODE_EXTRA_CA_CERTS", "node", "-e", NODE_TLS, "{url}"),
    "npm by npm_config_cafile": only("npm_config_cafile", "npm", "view", "x", "--registry={url}", "--fetch-retries=0"),
    "pip by PIP_CERT": only("PIP_CERT", PYTHON, "-m", "pip", "download", "x", "--index-url", "{url}", "--retries=0"),
    "cargo by CARGO_HTTP_CAINFO": only("CARGO_HTTP_CAINFO", "cargo", "search", "x", "--index", "sparse+{url}"),
    "urllib by the bundle of the system": only("", *URLLIB),
    "curl by the bundle of the system": only("", *CURL),
    "git by the bundle of the system": only("", *GIT),
    "wget by the bundle of the system": only("", "wget", "-qO-", "{url}"),
    "openssl by the directory of the system": only("", *OPENSSL, "-CApath", "/etc/ssl/certs", "-no-CAfile"),
    "openssl by the bundle of the system": only("", *OPENSSL, "-CAfile", BUNDLES[0], "-no-CApath"),
}  # fmt: skip


def rules(port: int) -> list[str]:
    prefix = os.path.dirname(os.path.dirname(PYTHON))
    places = [SITE, prefix, os.path.expanduser("~/.rustup")]
    return [f"network:tcp:{HOST}:{port}", *(f"fs:read:{place}" for place in places if os.path.isdir(place))]


def client(row: str, port: int) -> list[str]:
    given = {"{url}": f"https://{HOST}:{port}/", "{place}": f"{HOST}:{port}"}
    command = []
    for word in ROWS[row]:
        for name, value in given.items():
            word = word.replace(name, value)
        command.append(word)
    return command


def path_of(name: str) -> str | None:
    cargo = sorted(Path("~/.rustup/toolchains").expanduser().glob("*/bin/cargo"))
    return str(cargo[0]) if name == "cargo" and cargo else shutil.which(name, path="/usr/bin:/bin")


def missing(row: str) -> bool:
    words = ROWS[row]
    name = next(word for word in words[1:] if word not in ("-u", *(one.variable for one in CLIENTS)))
    if "system" in row and not SYSTEM_BUNDLE:
        return True
    return name != PYTHON and path_of(name) is None


def is_met(row: str, monkeypatch: pytest.MonkeyPatch, *, trusting: bool) -> tuple[bool, str]:
    """Whether a client sends its request to a server with a certificate of its own run, or of another."""

    async def meet() -> tuple[bool, str]:
        first = Inspected(monkeypatch, environment={"PYTHONPATH": SITE})
        authority = await first.authority()
        with serving((authority if trusting else Authority((HOST,))).context(HOST)) as met:
            walled = first.again(rules(met.port))
            words = [path_of(word) or word if word == "cargo" else word for word in client(row, met.port)]
            ended = await walled.run(*words)
        return bool(met.seen), (ended.stdout_bytes + ended.stderr_bytes).decode()

    return asyncio.run(meet())


@needs_namespaces
@pytest.mark.parametrize("row", ROWS)
def test_a_client_trusts_the_authority_of_its_run_alone(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing(row):
        pytest.skip("there is no such client here")
    sent, said = is_met(row, monkeypatch, trusting=True)
    assert sent, said
    sent, said = is_met(row, monkeypatch, trusting=False)
    assert not sent, said


@pytest.mark.who
@needs_namespaces
@pytest.mark.skipif(shutil.which("curl", path="/usr/bin:/bin") is None, reason="there is no curl here")
def test_any_user_s_programs_trust_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_met("curl by SSL_CERT_FILE", monkeypatch, trusting=True)[0]
    assert is_met("curl by the bundle of the system", monkeypatch, trusting=True)[0] or not SYSTEM_BUNDLE


# Which files show it --------------------------------------------------------------------------------------------------

AUTHORITY = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
ROOT = b"-----BEGIN CERTIFICATE-----\nROOT\n-----END CERTIFICATE-----\n"
OWN = b"-----BEGIN CERTIFICATE-----\nOWN0\n-----END CERTIFICATE-----\n"
# The bundle of each system: files with contents, and links.
LAYOUTS: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "debian": (["etc/ssl/certs/ca-certificates.crt"], {"usr/lib/ssl/certs": "etc/ssl/certs"}, ["etc/ssl/certs"]),
    "fedora": (
        ["etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/pki/tls/certs/0.txt"],
        {
            "etc/pki/tls/certs/ca-bundle.crt": "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
            "etc/pki/tls/cert.pem": "etc/pki/tls/certs/ca-bundle.crt",
            "etc/ssl/certs": "etc/pki/tls/certs",
        },
        ["etc/pki/tls/certs"],
    ),
    "alpine": (
        ["etc/ssl/certs/ca-certificates.crt"],
        {"etc/ssl/cert.pem": "etc/ssl/certs/ca-certificates.crt"},
        ["etc/ssl/certs"],
    ),
}  # fmt: skip


def laid_out(where: Path, layout: str) -> tuple[Path, list[str], list[str]]:
    where, (files, links, hashed) = where.resolve(), LAYOUTS[layout]
    for name in files:
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(b"# a comment\n" + ROOT)
    for name, target in links.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).symlink_to(where / target)
    return where, files, hashed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_of_the_bundle_shows_the_roots_and_the_authority(layout: str, tmp_path: Path) -> None:
    where, files, hashed = laid_out(tmp_path, layout)
    bundles, directories = [f"{where}{name}" for name in BUNDLES], [f"{where}{name}" for name in HASHED]
    found = trust_in(AUTHORITY, "0a1b2c3d", {}, "/", bundles=bundles, hashed=directories)
    shown = {path for path in found.files if path.startswith(str(where))}
    bundle = f"{where}/{files[0]}"
    assert shown == {bundle, *(f"{where}/{name}/0a1b2c3d.0" for name in hashed)}
    assert found.files[bundle] == ROOT + AUTHORITY == found.files[found.variables["SSL_CERT_FILE"]]
    assert {os.path.realpath(name) for name in found.names} == {bundle}
    assert set(found.names) == {name for name in bundles if os.path.exists(name)}
    assert found.files[found.variables["NODE_EXTRA_CA_CERTS"]] == AUTHORITY
    assert found.added == tuple(f"{where}/{name}/0a1b2c3d.0" for name in hashed)


def test_a_machine_without_a_bundle_gets_one_with_the_roots_of_fetch() -> None:
    found = trust_in(AUTHORITY, "0a1b2c3d", {}, "/", bundles=(), hashed=(), built_in=lambda: ROOT)
    assert found.files[BUNDLES[0]] == ROOT + AUTHORITY == found.files[found.variables["SSL_CERT_FILE"]]
    assert found.added == (BUNDLES[0],)
    real = trust_in(AUTHORITY, "0a1b2c3d", {}, "/", bundles=(), hashed=())
    assert real.files[BUNDLES[0]].count(b"BEGIN CERTIFICATE") > 1 or not SYSTEM_BUNDLE


def given(where: Path, **environment: str) -> Trust:
    (where / "system.pem").write_bytes(ROOT)
    bundles = [str(where / "system.pem")]
    return trust_in(AUTHORITY, "0a1b2c3d", environment, str(where), bundles=bundles, hashed=())


@pytest.mark.parametrize("client", [one for one in CLIENTS if one.kind != "directories"], ids=lambda one: one.variable)
def test_a_bundle_of_the_operator_is_extended_and_not_replaced(client: Client, tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(OWN)
    for path in (str(tmp_path / "own.pem"), "own.pem"):
        found = given(tmp_path, **{client.variable: path})
        assert found.files[found.variables[client.variable]] == OWN + AUTHORITY
        assert found.variables[client.variable].startswith(f"{FOLDER}/")


def test_what_a_client_reads_otherwise_is_not_overridden(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(OWN)
    found = given(tmp_path, SSL_CERT_FILE="own.pem")
    assert "CURL_CA_BUNDLE" not in found.variables
    assert found.files[found.variables["GIT_SSL_CAINFO"]] == ROOT + AUTHORITY  # git does not read the other one
    everything = set(given(tmp_path).variables)
    assert everything == {one.variable for one in CLIENTS if one.kind in ("whole", "extra")}


def test_directories_of_the_operator_get_one_more(tmp_path: Path) -> None:
    found = given(tmp_path, SSL_CERT_DIR="/own")
    assert found.variables["SSL_CERT_DIR"] == f"/own:{FOLDER}/hashed"
    assert found.files[f"{FOLDER}/hashed/0a1b2c3d.0"] == AUTHORITY


@pytest.mark.parametrize("name", ["key.pem", "pipe", "missing", "directory", "long.pem"])
def test_of_a_file_that_a_variable_names_only_certificates_are_shown(name: str, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\nSECRET\n")
    (tmp_path / "long.pem").write_bytes(b" " * (LARGEST_BUNDLE + 1))
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    if name == "long.pem":
        with pytest.raises(ValueError, match="bytes of trusted certificates"):
            given(tmp_path, SSL_CERT_FILE=name)
        return
    found = given(tmp_path, SSL_CERT_FILE=name)
    assert found.files[found.variables["SSL_CERT_FILE"]] == AUTHORITY
    assert not any(b"SECRET" in content for content in found.files.values())


def test_clients_are_named_once() -> None:
    assert len({client.variable for client in CLIENTS}) == len(CLIENTS)
    assert all(other in {one.variable for one in CLIENTS} for client in CLIENTS for other in client.otherwise)
