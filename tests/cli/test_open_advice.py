"""What a result says of a tool at `restricted` that opens a file without a handle."""

from pathlib import Path

import pytest

from attacks.walled_programs import needs_walls
from command_line import enter_project, run
from pins import trust

TOOLS = """\
from licet import tool

@tool(needs=["fs:read:${workdir}"], effect="read_only", sandbox="restricted")
def plain(path: str) -> str:
    return open(path).read()
"""
POLICY = """\
agent: a
tools: {plain: {from: "open_tools:plain"}}
capabilities: {tools: [plain], fs_reach: {read: ["${workdir}"]}, sandbox: {allow_degraded: true}}
"""


@needs_walls
def test_a_plain_open_is_answered_with_the_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = enter_project(tmp_path, monkeypatch)
    (folder / "open_tools.py").write_text(TOOLS)
    (folder / "licet.yaml").write_text(POLICY)
    (folder / "a.txt").write_text("there")
    trust(Path("licet.yaml"))
    said = run("call", "plain", "path=a.txt", code=1).stderr
    assert "FileNotFoundError" in said
    assert "use `ctx.fs`, see `licet lint`" in said
