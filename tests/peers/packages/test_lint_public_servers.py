"""`licet lint --all` on public MCP servers: every line that it names does what it says, and what is known is found."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("LICET_PEERS"), reason="asks registries: make test-peers")

SERVERS = {"mcp_server_git": {"fs"}, "mcp_server_time": set[str](), "mcp_server_fetch": {"env", "network"}}
# The text of a line that does something, by kind. A finding on any other line is wrong until somebody has looked at it.
DOES = {
    "fs": re.compile(r"\b(open|exists|is_file|is_dir|iterdir|read_text|write_text|unlink|stat|mkdir)\("),
    "network": re.compile(r"\bclient\.(get|post|head|request|send|stream)\("),
    "env": re.compile(r"\b(os\.environ|getenv)\b"),
    "process": re.compile(r"\bsubprocess\."),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servers") / "site-packages"
    names = [name.replace("_", "-") for name in SERVERS]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *names]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize("name", SERVERS)
def test_the_findings_in_a_public_server_are_right(name: str, packages: Path) -> None:
    command = [sys.executable, "-m", "licet", "lint", "--all", "--json", str(packages / name)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    kinds = set()
    for finding in said["findings"]:
        assert finding["code"] == "LIC701", finding["message"]
        kind = finding["capability"].partition(":")[0]
        line = Path(finding["file"]).read_text("utf-8").splitlines()[finding["line"] - 1]
        assert DOES[kind].search(line), finding["message"]
        kinds.add(kind)
    assert kinds >= SERVERS[name]
