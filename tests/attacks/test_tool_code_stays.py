"""An agent that may write beside its manifest rewrites the code of its own tools: that is in no write grant."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from licet.cli.app import licet
from pins import trust

CODE = '''
from licet import Context, tool

@tool(needs=["fs:write:*"], effect="write_limited")
async def clerk(ctx: Context, path: str) -> str:
    """Write a file."""
    await ctx.fs.write(path, "raise SystemExit('taken over')")
    return "written"
'''

MANIFEST = {
    "agent": "clerk",
    "tools": {"clerk": {"from": "desk_tools.clerks:clerk"}},
    "capabilities": {
        "tools": {"clerk": {"sandbox": "native"}},
        "native": ["clerk"],
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
        "fs_reach": {"write": ["${workdir}"]},
    },
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for place in ("desk_tools", "real", "__pycache__", "notes"):
        (tmp_path / place).mkdir()
    (tmp_path / "real/clerks.py").write_text(CODE)
    (tmp_path / "desk_tools/__init__.py").write_text("")
    (tmp_path / "desk_tools/clerks.py").write_text(CODE)
    (tmp_path / "m.yaml").write_text(json.dumps(MANIFEST))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / "state"))
    trust(tmp_path / "m.yaml")
    return tmp_path


def write(path: str) -> Result:
    for name in [name for name in sys.modules if name.startswith("desk_tools")]:
        del sys.modules[name]
    return CliRunner().invoke(licet, ["call", "m.yaml", "clerk", f"path={path}"])


PLACES = [
    "desk_tools/clerks.py",
    "desk_tools/__init__.py",
    "desk_tools/new.py",
    "./notes/../desk_tools/clerks.py",
    "desk_tools.py",  # nothing stands there yet
    "desk_tools.so",
    "desk_tools/__pycache__/clerks.cpython-311.pyc",
    "__pycache__/desk_tools.cpython-311.pyc",
    "src/desk_tools/__init__.py",  # the other place that an import looks in
    "src/desk_tools.py",
    "src/__pycache__/desk_tools.cpython-311.pyc",
]


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.usefixtures("desk")
@pytest.mark.sampled(5)
def test_the_code_of_a_tool_is_not_written_by_it(path: str) -> None:
    done = write(path)
    assert done.exit_code == 1, done.output
    assert "the code of a tool is never writable" in done.output
    assert write("notes/a.txt").exit_code == 0  # beside it is as the manifest says


def test_a_link_protects_where_it_leads(desk: Path) -> None:
    (desk / "desk_tools/clerks.py").unlink()
    (desk / "desk_tools/__init__.py").unlink()
    (desk / "desk_tools").rmdir()
    (desk / "desk_tools").symlink_to("real")
    assert write("real/clerks.py").exit_code == 1
    assert write("notes/a.txt").exit_code == 0


def test_a_link_in_the_place_of_src_protects_where_it_leads(desk: Path) -> None:
    (desk / "src").symlink_to("real")
    assert "the code of a tool is never writable" in write("real/desk_tools/clerks.py").output
    assert write("real/a.txt").exit_code == 0
