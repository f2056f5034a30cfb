"""The settings of this user for npm and pip: a registry with an authority of its own, played on a loopback address.

Settings of a project decide nothing.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from licet.backends.memory import Answer
from licet.guard.ports import Exchange
from licet.packages.clients import client_environment
from licet.packages.resolving import Pip, choose_wheels
from licet.packages.server_packages import PackageError, in_thread, launch_of, resolve
from loopback import Server, authority_file, serving

from .made import Index, Registry, needs_node, silent, wheel, write

HOST = "127.0.0.1"
PINNED = {"npm": ["demo@1.0.0"], "pip": ["demo==1.0"]}
CLIENTS = [pytest.param("npm", marks=needs_node), "pip"]


class Network:
    """A registry of npm, which is an index of wheels as well, behind TLS."""

    def __init__(self, place: Path) -> None:
        self.npm, self.pip = Registry(), Index(place / "wheels")
        self.npm.add("demo")
        wheel(self.pip.directory, "demo")
        self.authority = authority_file(place)
        self.origin = ""

    def answer(self, exchange: Exchange) -> Answer:
        # A proxy is asked with a whole address where a server is asked with a path.
        *_, path = re.split(r"(?<=.)https?://[^/]+", exchange.url)
        url = path if path.startswith("http") else f"http://{HOST}{path}"
        asked = Exchange("GET", url, HOST, 0, HOST, (), b"", 0)
        return (self.pip if re.search("^[^/]*//[^/]*/(simple|files)/", url) else self.npm).answer(asked)

    @contextmanager
    def behind(self, *names: str) -> Iterator[Server]:
        with serving(self.answer, names=names) as server:
            yield server


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    for name in os.environ:
        if re.match(r"(?i)npm_config|pip_|.*_proxy$|.*(ca_bundle|ca_certs|cert_file|cert_dir)$|xdg_|prefix$", name):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PREFIX", str(home / "all"))  # and not the settings of all users of this machine
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "cache"))
    return Network(tmp_path)


def put(path: Path, text: str) -> None:
    write(path.parent, {path.name: text})


def fetched(client: str, place: Path) -> list[str]:
    """What is pinned for `demo`. npm is ended long before it would give up by itself."""

    def fetch() -> list[str]:
        if client == "npm":
            return list(resolve(launch_of(["npx", "demo"]), place, progress=silent).integrity["any"])
        place.mkdir()
        return list(choose_wheels(["demo"], Pip(place), {}))

    return asyncio.run(in_thread(120, fetch))


# What counts ----------------------------------------------------------------------------------------------------------

WAYS = {
    "npm, of the user": ({".npmrc": "registry=ORIGIN/\ncafile=CERTIFICATES\n"}, {}),
    "npm, of all users": (
        {".npmrc": "prefix=${HOME}/node\n", "node/etc/npmrc": "registry=ORIGIN/\ncafile=CERTIFICATES\n"},
        {},
    ),
    "npm, of all users with this Node": ({"all/etc/npmrc": "registry=ORIGIN/\ncafile=CERTIFICATES\n"}, {}),
    "npm, one of each": (
        {".npmrc": "globalconfig=${HOME}/all\nregistry=ORIGIN/\n", "all": "cafile=CERTIFICATES\n"},
        {},
    ),
    "npm, variables": ({}, {"NPM_CONFIG_REGISTRY": "ORIGIN/", "NODE_EXTRA_CA_CERTS": "CERTIFICATES"}),
    "npm, options of Node": (
        {".npmrc": "registry=ORIGIN/\n"},
        {"NODE_OPTIONS": "--use-openssl-ca", "SSL_CERT_FILE": "CERTIFICATES"},
    ),
    "npm, by default all packages are global": (
        {".npmrc": "registry=ORIGIN/\ncafile=CERTIFICATES\nlocation=global\n"},
        {},
    ),
    "pip, of the user": (
        {".config/pip/pip.conf": "[global]\nindex-url = ORIGIN/simple\ncert = CERTIFICATES\n"},
        {},
    ),
    "pip, in the old place": ({".pip/pip.conf": "[global]\nindex-url = ORIGIN/simple\ncert = CERTIFICATES\n"}, {}),
    "pip, variables": ({}, {"PIP_INDEX_URL": "ORIGIN/simple", "PIP_CERT": "CERTIFICATES"}),
    "pip, a bundle": ({}, {"PIP_INDEX_URL": "ORIGIN/simple", "REQUESTS_CA_BUNDLE": "CERTIFICATES"}),
}  # fmt: skip


@needs_node
@pytest.mark.parametrize(("files", "variables"), WAYS.values(), ids=WAYS)
@pytest.mark.sampled(3)
def test_the_settings_of_the_person_find_the_registry_and_its_authority(
    network: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    files: dict[str, str],
    variables: dict[str, str],
) -> None:
    client = request.node.callspec.id.partition(",")[0]
    with network.behind(HOST) as server:
        network.npm.origin = origin = f"https://{HOST}:{server.port}"
        for name, text in files.items():
            put(tmp_path / "home" / name, text.replace("ORIGIN", origin).replace("CERTIFICATES", network.authority))
        for name, text in variables.items():
            monkeypatch.setenv(name, text.replace("ORIGIN", origin).replace("CERTIFICATES", network.authority))
        assert fetched(client, tmp_path / "store") == PINNED[client]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_proxy_of_the_person_is_asked(network: Network, tmp_path: Path, client: str) -> None:
    network.npm.origin = "http://registry.test"
    with network.behind() as server:
        proxy = f"http://{HOST}:{server.port}"
        put(tmp_path / "home/.npmrc", f"registry=http://registry.test/\nproxy={proxy}\n")
        put(tmp_path / "home/.config/pip/pip.conf", PIP.format(origin="http://registry.test", more=f"proxy = {proxy}"))
        assert fetched(client, tmp_path / "store") == PINNED[client]


PIP = "[global]\nindex-url = {origin}/simple\ntrusted-host = registry.test\n{more}\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_the_settings_of_a_project_decide_nothing(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """Neither where the command is given, nor where the store lies, should that be in a project."""
    project = tmp_path / "project"
    with network.behind() as server, serving(network.answer) as evil:
        network.npm.origin, elsewhere = (f"http://{HOST}:{one.port}" for one in (server, evil))
        put(tmp_path / "home/.npmrc", f"registry={network.npm.origin}/\n")
        put(tmp_path / "home/.config/pip/pip.conf", PIP.format(origin=network.npm.origin, more=""))
        put(project / "package.json", '{"name": "project", "workspaces": ["**"]}')
        put(project / "node_modules/etc/npmrc", f"registry={elsewhere}/\n")
        put(project / "etc/npmrc", f"registry={elsewhere}/\n")
        put(project / ".npmrc", f"registry={elsewhere}/\nprefix={project}\nglobalconfig={project}/etc/npmrc\n")
        put(project / "pip.conf", PIP.format(origin=elsewhere, more=""))
        monkeypatch.chdir(project)
        assert fetched(client, project / "store") == PINNED[client]
        assert (bool(server.seen), evil.seen) == (True, [])


@needs_node
def test_the_settings_of_a_project_decide_nothing_by_way_of_npm_run(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    with network.behind() as server, serving(network.answer) as evil:
        network.npm.origin, elsewhere = (f"http://{HOST}:{one.port}" for one in (server, evil))
        put(tmp_path / "home/.npmrc", f"registry={network.npm.origin}/\n")
        put(project / "package.json", '{"name": "project", "scripts": {"lock": "env -0"}}')
        put(project / ".npmrc", f"registry={elsewhere}/\n")
        command = ["npm", "run", "--silent", "lock"]
        said = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout
        variables = dict(line.split("=", 1) for line in said.split("\0") if line.startswith("npm_"))
        assert variables["npm_config_registry"] == f"{elsewhere}/"
        evil.seen.clear()  # npm has asked it about a newer npm
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert fetched("npm", tmp_path / "store") == PINNED["npm"]
        assert (bool(server.seen), evil.seen) == (True, [])


def test_settings_of_the_person_in_upper_case_count_by_way_of_npm_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("npm_lifecycle_event", "npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.setenv(name, name)
    assert {name for name in client_environment() if name.lower().startswith("npm_")} >= {"NPM_CONFIG_REGISTRY"}
    assert "npm_config_registry" not in client_environment()
    monkeypatch.delenv("npm_lifecycle_event")
    for name in [name for name in os.environ if re.match("npm_(?!config)", name)]:
        monkeypatch.delenv(name)
    assert "npm_config_registry" in client_environment()


# What is said if it fails ---------------------------------------------------------------------------------------------

NOT_KNOWN = "of an authority that is not known: if your network has its own, name its file: "
FAILURES = {
    "npm, certificate": ("tls", f"{NOT_KNOWN}`npm config set cafile FILE`"),
    "npm, nobody there": ("nobody", "was not reached: `npm config set https-proxy URL` names the proxy"),
    "pip, certificate": ("tls", f"{NOT_KNOWN}`pip config set global.cert FILE`"),
    "pip, nobody there": ("nobody", "was not reached: `pip config set global.proxy URL` names the proxy"),
    "pip, no tries": ("nobody once", "was not reached: `pip config set global.proxy URL` names the proxy"),
}


@needs_node
@pytest.mark.parametrize(("why", "says"), FAILURES.values(), ids=FAILURES)
@pytest.mark.sampled(2)
def test_a_registry_that_is_not_reached_is_said_soon_and_with_the_setting_to_change(
    network: Network, tmp_path: Path, request: pytest.FixtureRequest, why: str, says: str
) -> None:
    client = request.node.callspec.id.partition(",")[0]
    with network.behind(HOST) as server:
        origin = f"https://{HOST}:{server.port if why == 'tls' else 9}"
        put(tmp_path / "home/.npmrc", f"registry={origin}/\nfetch-retry-mintimeout=600000\n")
        tries = "retries = 0" if why == "nobody once" else ""
        put(tmp_path / "home/.config/pip/pip.conf", f"{PIP.format(origin=origin, more=tries)}cert = {certifi_file()}\n")
        with pytest.raises(PackageError) as refusal:
            fetched(client, tmp_path / "store")
    assert says in str(refusal.value)
    assert str(refusal.value).count(says) == 1


def certifi_file() -> str:
    """Authorities that are known everywhere, in place of those of this machine."""
    from pip._vendor.certifi import where

    return str(where())


def test_an_index_that_does_not_have_a_package_is_not_called_unreachable(network: Network, tmp_path: Path) -> None:
    with network.behind() as server:
        put(tmp_path / "home/.config/pip/pip.conf", PIP.format(origin=f"http://{HOST}:{server.port}", more=""))
        with pytest.raises(PackageError, match="no wheel that fits") as refusal:
            choose_wheels(["absent"], Pip(tmp_path), {})
    assert "reached" not in str(refusal.value)
