"""A server of SDK 2.x asks clients of SDK 1.x and 2.x through the gateway, as it does without it.

`LICET_MCP1_PYTHON` and `LICET_MCP2_PYTHON` name Pythons with mcp 1.x and 2.x, and `LICET_NPM` where npm installed the
SDK for TypeScript. What is not there is skipped.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.levels import needs_walls

from .test_http_peers import needed

HERE = Path(__file__).resolve().parent
LICET = [sys.executable, "-m", "licet"]
SAID = ("ask", "count", "sample")
POLICY = {
    "agent": "a",
    "capabilities": {"tools": [f"s.{name}" for name in (*SAID, "submit")]},
}


def locked_policy(folder: Path) -> Path:
    """A policy for the asking server, locked by the command that a person types."""
    shutil.copy(HERE / "sdk_asking_server.py", folder / "server.py")
    server = {
        "command": [needed("LICET_MCP2_PYTHON"), "server.py"],
        "client": {"elicitation": "allow", "sampling": "allow"},
        "tools": {"*": {"effect": "read_only"}},
    }
    (folder / "agent.yaml").write_text(json.dumps({**POLICY, "servers": {"s": server}}))
    done = subprocess.run(
        [*LICET, "lock", "agent.yaml"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "tools/submit is left out: its server hides it from models" in done.stderr
    return folder / "agent.yaml"


def client(kind: str) -> list[str]:
    if kind == "npm 1.x":
        return ["node", str(HERE / "asked_client.mjs"), needed("LICET_NPM")]
    variable, mode = {"1.x": ("LICET_MCP1_PYTHON", ""), "2.x in 2025": ("LICET_MCP2_PYTHON", "legacy")}[kind]
    return [needed(variable), str(HERE / "asked_client.py"), mode]


@pytest.mark.parametrize("kind", ["1.x", "2.x in 2025", "npm 1.x"])
def test_a_client_of_2025_is_asked_through_the_gateway_as_it_is_directly(tmp_path: Path, kind: str) -> None:
    needs_walls()
    policy = locked_policy(tmp_path)

    def seen(*server: str) -> Any:
        done = subprocess.run(
            [*client(kind), *server], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    direct = seen(needed("LICET_MCP2_PYTHON"), "server.py")
    governed = seen(*LICET, "gateway", str(policy), "--state", str(tmp_path / "state"))
    assert governed == {"version": "2025-11-25", "said": {name: direct["said"][name] for name in SAID}}
    assert {name: governed["said"][name] for name in ("ask", "sample")} == {"ask": "accept True", "sample": "yo"}
    assert direct["said"]["submit"] == "done"  # which only the gateway leaves out
