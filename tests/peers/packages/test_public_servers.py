"""Public servers from npm and PyPI, installed by their usual commands, and started from the store."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from licet.packages.server_packages import Resolved, install, installed, launch_of, resolve

pytestmark = pytest.mark.skipif(not os.environ.get("LICET_PEERS"), reason="asks registries: make test-peers")

COMMANDS = [
    ("npx -y @modelcontextprotocol/server-filesystem DIRECTORY", "secure-filesystem-server"),
    ("npx -y @modelcontextprotocol/server-everything@latest", "mcp-servers/everything"),
    ("uvx mcp-server-git", "mcp-git"),
    ("pipx run mcp-server-time", "mcp-time"),
    ("uvx --from mcp-server-fetch mcp-server-fetch", "mcp-fetch"),
]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "licet", "version": "1"},
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize(("command", "name"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_public_server_starts_from_the_store(command: str, name: str, store: Path, tmp_path: Path) -> None:
    if command.startswith("npx") and not shutil.which("npm"):
        pytest.skip("there is no Node here")
    launch = launch_of(command.replace("DIRECTORY", str(tmp_path)).split())
    resolved = resolve(launch, store, progress=print)
    assert name in server_name(resolved, store, launch.arguments)
    # On another machine the lock gives the same files.
    elsewhere = tmp_path / "elsewhere"
    assert install(launch, resolved, elsewhere, progress=print) == resolved
    assert name in server_name(resolved, elsewhere, launch.arguments)
    assert str(Path.home()) not in repr(resolved)


def server_name(resolved: Resolved, store: Path, arguments: tuple[str, ...]) -> str:
    """Start a server with nothing in its environment, and return the name that it gives itself."""
    how = installed(resolved, store, verify=True)
    assert how is not None
    command = [*how.argv, *arguments]
    env = {**how.environment, "PATH": os.defpath}
    with subprocess.Popen(
        command, env=env, cwd="/", text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{json.dumps(INITIALIZE)}\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        server.stdin.close()
        server.terminate()
    return str(answer["result"]["serverInfo"]["name"])
