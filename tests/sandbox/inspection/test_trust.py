"""Real clients behind real walls trust the authority of their run, each by the way that it looks for roots."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from licet.sandbox import probe
from licet.sandbox.inspection.authority import Authority
from licet.sandbox.inspection.trust import BUNDLES, CLIENTS
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
    """Whether a client sends its request to a server whose certificate is of the authority of its run, or of another."""

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
