"""Servers with a `url` behind the gateway: what policy says of them, and their calls through the whole path."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.http_servers import LEGACY, MODERN, Asked, HttpServer, Out, listening, text_result
from gateway.servers import bounded, run
from licet import ManifestError, load_manifest
from licet.assemble.server_process import ServerError
from licet.backends.ledger.reader import LedgerReader
from licet.cli.app import licet
from licet.core.algebra.rules import Use
from licet.core.decision.foreseen import process_misfits, process_reach, remote_misfits
from licet.core.policy.lock import Lock, LockedServer, write_lock
from licet.core.policy.servers import Server
from licet.gateway.gateway import gateway_servers
from licet.mcp.shown_names import naming

from .clients import Client, text_of
from .workspaces import connected

KEY = "sk-7f3a9c51e2d84b06"
TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}

WORKSPACE = """
servers:
  far:
    url: {url}
    headers: {{X-Api-Key: FAR_KEY}}
    tools:
      "*": {{effect: read_only}}
"""
MANIFEST = """
agent: clerk
capabilities:
  tools: {{far.echo: {{}}, far.bad: {{}}}}
  {rules}
"""
ALLOWED = "destinations: {allow: [127.0.0.1]}\n  secrets: [FAR_KEY]"


class Workspace:
    """A policy with one remote server, and its lock."""

    def __init__(self, place: Path, server: HttpServer, rules: str = ALLOWED, *, names: tuple[str, ...] = ()) -> None:
        self.place, self.server = place, server
        tools = tuple({**TOOL, "name": name} for name in ("echo", *names))
        version = LEGACY if server.era == "2025" else MODERN
        (place / "licet.yaml").write_text(WORKSPACE.format(url=server.url))
        (place / "clerk.yaml").write_text(MANIFEST.format(rules=rules))
        (place / ".env").write_text(f"FAR_KEY={KEY}\n")
        (place / ".env").chmod(0o600)
        locked = LockedServer(url=server.url, version=version, tools=tools)
        digest = load_manifest(place / "clerk.yaml").digest
        lock = Lock(format=1, manifests={"clerk.yaml": digest}, servers={"far": locked})
        (place / "licet.lock").write_bytes(write_lock(lock))
        self.reports: list[str] = []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        manifest = load_manifest(self.place / "clerk.yaml")
        backend = gateway_servers(
            manifest,
            self.place / "state",
            session="g-1",
            report=self.reports.append,
            workdir=self.place,
            secrets_file=self.place / ".env",
        )
        async with connected(backend, naming(manifest.servers, ""), "2025") as client:
            yield client


async def called(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> tuple[bool, str]:
    """Whether a call went well, and its text."""
    result = await client.call(tool, arguments)
    return not result.get("isError", False), text_of(result)


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_call_of_a_remote_tool_is_checked_recorded_and_answered(tmp_path: Path, era: str) -> None:
    async def work() -> None:
        async with listening(HttpServer(era, tools=[TOOL])) as server:
            space = Workspace(tmp_path, server)
            async with space.client() as client:
                tools = await client.tools()
                assert list(tools) == ["echo"]
                assert await called(client, "echo", {"a": 1}) == (True, '{"a": 1}')
            assert {one.headers["x-api-key"] for one in server.seen} == {KEY}

    run(work())
    with LedgerReader(tmp_path / "state" / "ledger.sqlite") as reader:
        bodies = [json.loads(row.body) for row in reader.entries()]
    assert [body["tool"] for body in bodies if "tool" in body] == [
        "far.bad",  # named and not offered: recorded once
        *["far.echo"] * 2,  # decision and result
    ]


@bounded
async def test_a_secret_in_a_header_does_not_come_back(tmp_path: Path) -> None:
    async def echoes(asked: Asked, out: Out) -> None:
        await out.result(text_result(f"you sent {asked.headers['x-api-key']}"))

    server = HttpServer("2026", tools=[TOOL], calls={"echo": echoes})
    async with listening(server), Workspace(tmp_path, server).client() as client:
        assert await called(client, "echo") == (True, "you sent [redacted FAR_KEY]")


@bounded
async def test_a_call_that_a_server_breaks_off_costs_only_itself(tmp_path: Path) -> None:
    async def bad(asked: Asked, out: Out) -> None:
        return

    tools = [TOOL, {**TOOL, "name": "bad"}]
    server = HttpServer("2026", tools=tools, calls={"bad": bad})
    async with listening(server), Workspace(tmp_path, server, names=("bad",)).client() as client:
        ok, text = await called(client, "bad")
        assert (ok, text.partition(":")[0]) == (False, "TOOL_NOT_AVAILABLE")
        assert "whether the call had an effect is not known" in text
        assert await called(client, "echo") == (True, "{}")


MISFITS = {
    "no host": ("secrets: [FAR_KEY]", "https://mcp.test/mcp", "needs network:https:get@mcp.test:443"),
    "another host": (
        "destinations: {allow: [api.test]}\n  secrets: [FAR_KEY]",
        "https://mcp.test/mcp",
        "needs network:https:get@mcp.test:443",
    ),
    "another port": (
        "grants: ['network:https:get@mcp.test:8443']\n  secrets: [FAR_KEY]",
        "https://mcp.test/mcp",
        "needs network:https:get@mcp.test:443",
    ),
    "no secret": ("destinations: {allow: [mcp.test]}", "https://mcp.test/mcp", "needs secret:read:FAR_KEY"),
    "this machine": (
        "destinations: {allow: [localhost]}\n  secrets: [FAR_KEY]",
        "http://localhost:8000/mcp",
        "`private` is empty",
    ),
    "an address of this machine": (
        "destinations: {allow: ['*']}\n  secrets: [FAR_KEY]",
        "http://127.0.0.1:8000/mcp",
        "127.0.0.1 is loopback",
    ),
    "metadata": (
        "destinations: {allow: [169.254.169.254]}\n  secrets: [FAR_KEY]\n  private: [169.254.0.0/16]",
        "http://169.254.169.254/mcp",
        "metadata service",
    ),
}
FITS = {
    "its host": ("destinations: {allow: [mcp.test]}\n  secrets: [FAR_KEY]", "https://mcp.test/mcp"),
    "no more than a GET": ("grants: ['network:https:get@mcp.test:443', 'secret:read:FAR_KEY']", "https://mcp.test/mcp"),
    "this machine": (
        "destinations: {allow: [localhost]}\n  secrets: [FAR_KEY]\n  private: [127.0.0.0/8]",
        "http://localhost:8000/mcp",
    ),
}


def _misfits(place: Path, rules: str, url: str) -> str:
    (place / "clerk.yaml").write_text(MANIFEST.format(rules=rules))
    server = Server(name="far", url=url, headers={"X-Api-Key": "FAR_KEY"})
    reach = process_reach(load_manifest(place / "clerk.yaml"), server, (), (str(place), "/home/me"))
    return "; ".join(f"{ground} {ground.fix}" for ground in remote_misfits(server, reach))


@pytest.mark.parametrize("case", MISFITS)
def test_a_server_that_the_ceiling_does_not_cover_is_a_misfit(tmp_path: Path, case: str) -> None:
    rules, url, expected = MISFITS[case]
    assert expected in _misfits(tmp_path, rules, url)


@pytest.mark.parametrize("case", FITS)
def test_a_server_that_the_ceiling_covers_fits(tmp_path: Path, case: str) -> None:
    assert _misfits(tmp_path, *FITS[case]) == ""


@bounded
async def test_a_gateway_to_a_server_whose_host_is_not_allowed_does_not_start_and_nothing_is_sent(
    tmp_path: Path,
) -> None:
    async with listening(HttpServer("2026", tools=[TOOL])) as server:
        with pytest.raises(ServerError, match="needs network:http:get@127"):
            async with Workspace(tmp_path, server, "secrets: [FAR_KEY]").client():
                pass
        assert not server.seen


@bounded
async def test_a_server_whose_secret_is_not_allowed_is_not_connected_to(tmp_path: Path) -> None:
    async with listening(HttpServer("2026", tools=[TOOL])) as server:
        space = Workspace(tmp_path, server, "destinations: {allow: [127.0.0.1]}")
        with pytest.raises(ServerError, match="needs secret:read:FAR_KEY"):
            async with space.client():
                pass
        assert not server.seen


@bounded
async def test_a_write_in_the_name_of_a_tool_needs_no_more_than_a_get_of_the_host(tmp_path: Path) -> None:
    """The POST that carries a call is no effect of the tool: one that reads stays `read_only`."""
    async with listening(HttpServer("2026", tools=[TOOL])) as server:
        rules = f"grants: ['network:http:get@127.0.0.1:{server.port}', 'secret:read:FAR_KEY']\n"
        async with Workspace(tmp_path, server, f"{rules}  max_side_effect_class: read_only").client() as client:
            assert await called(client, "echo") == (True, "{}")


def test_a_grant_of_which_the_ceiling_leaves_nothing_is_a_misfit(tmp_path: Path) -> None:
    (tmp_path / "clerk.yaml").write_text(MANIFEST.format(rules="fs_reach: {read: [/srv/a]}"))
    manifest = load_manifest(tmp_path / "clerk.yaml")
    for grants, expected in ((("fs:read:/srv/a/b",), 0), (("fs:read:/srv/c",), 1), (("fs:read:/srv",), 0)):
        server = Server(name="near", command=("x",), grants=grants)
        reach = process_reach(manifest, server, (), (str(tmp_path), "/home/me"))
        assert len(process_misfits(reach)) == expected, grants
        assert not reach.grant.has(Use("fs:read:/srv/c/x")), grants
    assert reach.grant.has(Use("fs:read:/srv/a/x"))  # the overlap of /srv and /srv/a


HEADERS = {
    "Host": "the gateway writes it itself",
    "content-type": "the gateway writes it itself",
    "Mcp-Session-Id": "the gateway writes it itself",
    "MCP-Protocol-Version": "the gateway writes it itself",
    "Transfer-Encoding": "the gateway writes it itself",
    "X-HTTP-Method-Override": "the gateway writes it itself",
    "x-api-key": "one secret for each header",
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_the_gateway_writes_is_refused(tmp_path: Path, header: str) -> None:
    text = WORKSPACE.format(url="https://mcp.test/mcp").replace(
        "X-Api-Key: FAR_KEY", f"X-Api-Key: FAR_KEY, {header}: OTHER"
    )
    (tmp_path / "licet.yaml").write_text(text)
    (tmp_path / "clerk.yaml").write_text(MANIFEST.format(rules="secrets: []"))
    with pytest.raises(ManifestError, match=HEADERS[header]):
        load_manifest(tmp_path / "clerk.yaml")


@pytest.mark.parametrize("line", ["grants: []", "env: [HOME]", "secrets: {A: B}", "sandbox: native", "command: [x]"])
def test_keys_about_a_process_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "licet.yaml").write_text(WORKSPACE.format(url="https://mcp.test/mcp") + f"    {line}\n")
    (tmp_path / "clerk.yaml").write_text(MANIFEST.format(rules="secrets: []"))
    with pytest.raises(ManifestError, match="`url`"):
        load_manifest(tmp_path / "clerk.yaml")


def test_the_surface_shows_that_a_server_is_remote(tmp_path: Path) -> None:
    workspace = WORKSPACE + "  near: {{command: [serve]}}\n  bare: {{command: [serve], sandbox: native}}\n"
    (tmp_path / "licet.yaml").write_text(workspace.format(url="https://mcp.test/mcp"))
    (tmp_path / "clerk.yaml").write_text(MANIFEST.format(rules="secrets: [FAR_KEY]"))
    shown = {
        options: CliRunner().invoke(licet, ["surface", str(tmp_path / "clerk.yaml"), *options.split()])
        for options in ("", "--json", "--svg -")
    }
    assert [result.exit_code for result in shown.values()] == [0, 0, 0], shown
    text = " ".join(shown[""].stdout.split())
    assert "server far remote, at https://mcp.test/mcp: what it does there is not seen or limited here" in text
    assert "server bare unrestricted code of this user" in text
    servers = json.loads(shown["--json"].stdout)["servers"]
    assert {name: one["kind"] for name, one in servers.items()} == {
        "bare": "native",
        "far": "remote",
        "near": "isolated",
    }
    picture = shown["--svg -"].stdout
    assert "remote server · https://mcp.test/mcp" in picture
    assert "mcp.test" in picture
    assert "FAR_KEY" in picture
