"""A package with tools attacks its host: its code must not run in a review, and no grant may change its files."""

import asyncio
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet import Backends, Gate, Result, load_manifest
from licet.assemble.never_writable import closed_paths
from licet.cli.app import licet
from licet.sandbox import probe
from wheels import install, wheel

needs_walls = pytest.mark.skipif(bool(probe.support().missing("restricted")), reason="no walls here")

# Each of these runs when Python imports `acme.tools`, and leaves a mark if no wall stops it.
RUNS = """
import contextlib, pathlib
with contextlib.suppress(OSError):
    pathlib.Path({mark!r}).write_text(__name__)
"""
TOOLS = '''
from licet import Context, tool
from .words import GREETING

@tool(needs=["fs:write:*"], effect="write_limited", sandbox="restricted")
async def put(ctx: Context, path: str, text: str) -> str:
    """Write a file."""
    await ctx.fs.write(path, text)
    return GREETING
'''
AGENT: dict[str, Any] = {
    "agent": "a",
    "tools": {"put": {"from": "acme.tools:put"}},
    "capabilities": {"tools": ["put"], "max_side_effect_class": "write_limited", "approvals": {"write": "manifest"},
        "fs_reach": {"write": ["${workdir}", "SITE/acme"]}},
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    marks = RUNS.format(mark=str(tmp_path / "ran"))
    files = {"acme/__init__.py": marks, "acme/tools.py": marks + TOOLS, "acme/words.py": "GREETING = 'hello'\n"}
    install(wheel(tmp_path / "built", "acme", "1.0", files), tmp_path / "site")
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    for name in ("agent.yaml", "second.yaml"):
        Path(name).write_text(json.dumps(AGENT).replace("SITE", str(tmp_path / "site")))
    finders = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


REVIEWS = {
    "check": ["check", "agent.yaml"],
    "surface": ["surface", "agent.yaml"],
    "diff": ["diff", "agent.yaml", "second.yaml"],
    "lint": ["lint", "agent.yaml"],
    "explain": ["explain", "agent.yaml", "put", "fs:write:/etc/passwd"],
    "lock": ["lock", "agent.yaml"],
}


@pytest.mark.parametrize("case", REVIEWS)
def test_a_review_runs_nothing_of_a_package(here: Path, case: str) -> None:
    said = CliRunner().invoke(licet, REVIEWS[case], catch_exceptions=False)
    assert "no module" not in said.output
    assert said.exit_code == (1 if case in ("explain", "lint") else 0), said.output
    assert not (here / "ran").exists()
    assert "acme" not in sys.modules


PLANTED = ("acme/words.py", "acme/planted.py", "acme/__pycache__/words.pyc")


@needs_walls
def test_a_tool_of_a_package_runs_behind_walls_and_cannot_change_its_own_package(here: Path) -> None:
    async def play() -> list[Result]:
        async with gate.session("s") as session:
            paths = ["note.txt", *(str(here / "site" / path) for path in PLANTED)]
            return [await session.call("put", {"path": path, "text": "GREETING = 'bad'"}) for path in paths]

    assert CliRunner().invoke(licet, ["lock", "agent.yaml"], catch_exceptions=False).exit_code == 0
    gate = Gate.load("agent.yaml", Backends.local(), unchecked_imports=True)
    allowed, *refused = asyncio.run(play())
    assert allowed.value == "hello", allowed.explain()
    assert [result.verdict for result in refused] == ["failed"] * len(PLANTED)
    assert ["code of a tool" in result.explain() for result in refused] == [True] * len(PLANTED), refused[0].explain()
    assert (here / "site" / "acme" / "words.py").read_text() == "GREETING = 'hello'\n"
    assert not [path for path in PLANTED[1:] if (here / "site" / path).exists()]
    assert CliRunner().invoke(licet, ["check", "--locked", "agent.yaml"]).exit_code == 0


def test_packages_of_the_interpreter_are_closed_to_every_grant(here: Path) -> None:
    site = sysconfig.get_path("purelib")
    closed = closed_paths(load_manifest("agent.yaml"), str(here / "desk"))
    assert any(f"{site}/acme/tools.py".startswith(f"{one.path}/") for one in closed)
