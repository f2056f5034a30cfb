"""The official SDK clients talk to a connection: `mcp` 1.x, and 2.x in both eras.

The environment names the Pythons: LICET_MCP1_PYTHON has `mcp` 1.x installed, LICET_MCP2_PYTHON has 2.x.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SERVER = [sys.executable, str(HERE / "stdio_main.py")]
YES = {"action": "accept", "content": {"ok": True}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "yo"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///srv"}]}

STORY: dict[str, Any] = {
    "server": "licet",
    "instructions": "be careful",
    "pages": [167],
    "echo": [False, '{"a": 1}', None],
    "no arguments": [False, "{}", None],
    "sum": [False, "3", {"sum": 3}],
    "refused sum": [True, "BUDGET_EXCEEDED: s.refuse would exceed the budget", None],
    "refused": [True, "BUDGET_EXCEEDED: s.refuse would exceed the budget", None],
    "unknown": [True, "UNKNOWN_TOOL: there is no tool `nothing`", None],
    "progress": [[0.5, 1.0, "half"]],
    "log": ["warning", "error"],
    "asked": [False, json.dumps([YES, SAMPLED, ROOTS]), None],
    "asked at once": [False, json.dumps([YES, ROOTS]), None],
    "resources": ["a://doc", "a://secret"],
    "templates": ["a://{name}"],
    "read": "hi",
    "read refused": [-32602, "PATH_NOT_REACHABLE: read not permitted", {"reason": "PATH_NOT_REACHABLE"}],
    "prompts": ["draft"],
    "prompt": "d",
    "completion": ["a"],
    "after a timeout": [False, "{}", None],
    "many": 50,
}
OLDER = {"version": "2025-11-25", "told": ["notifications/tools/list_changed", "notifications/resources/updated"]}
NEWER = {
    "version": "2026-07-28",
    "honored": {"toolsListChanged": True, "resourceSubscriptions": ["a://doc"]},
    "events": ["ResourceUpdated", "ToolsListChanged"],
}


def python_of(variable: str) -> str:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no Python with this SDK")
    return python


@pytest.mark.parametrize(
    ("variable", "script", "era"),
    [
        pytest.param("LICET_MCP1_PYTHON", ["sdk1_client.py"], OLDER, id="1.x"),
        pytest.param("LICET_MCP2_PYTHON", ["sdk2_client.py", "legacy"], OLDER, id="2.x in 2025"),
        pytest.param("LICET_MCP2_PYTHON", ["sdk2_client.py", "auto"], NEWER, id="2.x finds 2026"),
        pytest.param("LICET_MCP2_PYTHON", ["sdk2_client.py", "2026-07-28"], NEWER, id="2.x without discover"),
    ],
)
def test_an_sdk_client_sees_the_whole_story(variable: str, script: list[str], era: dict[str, Any]) -> None:
    python = python_of(variable)
    name, *mode = script
    command = [python, str(HERE / name), *mode, *SERVER]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    unasked = {"server": None, "instructions": None} if mode == ["2026-07-28"] else {}  # nobody asked who the server is
    expected = {**STORY, **era, **unasked}
    assert {key: seen.get(key) for key in expected} == expected
