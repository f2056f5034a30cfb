"""The end of a session: no program behind walls can ask for it, and processes notice it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_walls
from gates import add
from licet import Backends, Gate
from licet.policy_files.data import manifest_from_data

SOURCE = """
from licet import Context, tool


@tool(capabilities={"storage": {"scope": "session"}}, effect="read_only", sandbox="native")
async def count(ctx: Context) -> int:
    number = (await ctx.kv.get("n") or 0) + 1
    await ctx.kv.set("n", number)
    return number
"""


def policy(**budget: int) -> dict[str, Any]:
    capabilities = {"tools": ["count"], "native": ["count"], **({"budget": budget} if budget else {})}
    return {"agent": "counter", "tools": {"count": {"from": "counting:count"}}, "capabilities": capabilities}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "counting.py").write_text(SOURCE)
    (tmp_path / "agent.yaml").write_text(json.dumps(policy()))
    return tmp_path


def licet(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(warm.PROGRAM, words, cwd=desk, env={**os.environ, "XDG_STATE_HOME": str(desk / "state")})


def count(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return licet(desk, "call", "agent.yaml", "count", *words)


def listed(desk: Path, *words: str) -> dict[str, bool]:
    said = licet(desk, "session", "list", "--json", *words)
    return {one["session"]: one["ended"] for one in json.loads(said.stdout)["sessions"]}


@needs_walls
def test_nothing_behind_walls_ends_a_session(desk: Path) -> None:
    assert count(desk).returncode == 0
    (desk / "shell.yaml").write_text(
        json.dumps({
            "agent": "shell",
            "capabilities": {
                "fs_reach": {"read": ["/"]},
                "env": ["XDG_STATE_HOME", "HOME", "PATH"],
                "process": {"allowed_binaries": [sys.executable]},
                "sandbox": {"allow_degraded": True},
            },
        })
    )  # fmt: skip
    words = [
        "session",
        "end",
        "main",
        "--agent",
        "counter",
        "--state",
        str(next((desk / "state" / "licet").glob("*/ledger.sqlite")).parent),
    ]
    for line in (words, words[:5]):
        command = [sys.executable, "-c", warm.PROGRAM, *line]
        ended = licet(desk, "run", "shell.yaml", "--", *command)
        assert ended.returncode == 1, ended.stderr
    assert listed(desk)["main"] is False
    assert licet(desk, *words).returncode == 0  # outside of the walls the same words do


def test_a_process_that_has_the_session_open_notices_its_end(desk: Path) -> None:
    manifest = manifest_from_data({"agent": "counter", "capabilities": {"tools": ["add"], "native": ["add"]}})
    gate = Gate(manifest, [add], Backends.local(desk / "state"), workdir=desk)

    async def calls() -> list[str]:
        async with gate.session("main") as session:
            child = session.delegate(agent="helper", allow=[])
            before = [(await one.call("add", {"a": 1})).reason for one in (session, child)]
            words = ["session", "end", "main", "--agent", "counter", "--state", str(desk / "state")]
            done = await asyncio.to_thread(licet, desk, *words)
            assert done.returncode == 0, done.stderr
            return [*before, *[(await one.call("add", {"a": 1})).reason for one in (session, child)]]

    assert asyncio.run(calls()) == ["ALLOWED", "ALLOWED", "SESSION_ENDED", "SESSION_ENDED"]
