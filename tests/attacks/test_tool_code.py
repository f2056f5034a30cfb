"""The code of tools stays as it is: no write grant says that a tool may change it, or another's."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.gates import call
from licet import Backends, Gate, load_manifest
from licet.cli.app import licet
from pins import pinned, trust

# An agent that may write beside its manifest rewrites the code of its own tools: that is in no write grant ------------


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
    "capabilities": {"tools": {"clerk": {"sandbox": "native"}}, "native": ["clerk"],
        "max_side_effect_class": "write_limited", "approvals": {"write": "manifest"},
        "fs_reach": {"write": ["${workdir}"]}},
}  # fmt: skip


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


# A tool that a program hands to its gate rewrites its own code, or another tool's: no write grant says that -----------


GIVEN_CODE = '''
import functools
from licet import Context, tool

def logged(fn):
    @functools.wraps(fn)
    async def around(*args, **kwargs):
        return await fn(*args, **kwargs)
    return around

@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def NAME(ctx: Context, path: str) -> str:
    """Write a file."""
    await ctx.fs.write(path, "raise SystemExit('taken over')")
    return "written"
'''


def written(path: Path, name: str) -> Any:
    """The one tool of a module that is written to a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(GIVEN_CODE.replace("NAME", name))
    return imported(path, name)


def imported(path: Path, name: str) -> Any:
    """The tool of a module, as a program would import it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def gate_at(folder: Path, *tools: Any) -> Gate:
    content = {
        "agent": "clerk",
        "capabilities": {
            "tools": [tool.name for tool in tools],
            "native": [tool.name for tool in tools],
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            "fs_reach": {"write": [str(folder)]},
        },
    }
    policy = folder.parent / "policy" / "m.yaml"
    policy.parent.mkdir()
    policy.write_text(json.dumps(content))
    return Gate(pinned(load_manifest(policy)), tools, Backends.local(folder.parent / "state"), workdir=folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


GIVEN_PLACES = {
    "its own file": "tools.py",
    "its own file by another way": "notes/../tools.py",
    "the file of another tool": "more/others.py",
    "what was compiled of it": f"__pycache__/tools.{sys.implementation.cache_tag}.pyc",
    "what another Python would compile": "more/__pycache__/others.cpython-399.pyc",
}


@pytest.mark.parametrize("path", GIVEN_PLACES.values(), ids=GIVEN_PLACES)
def test_the_code_of_a_tool_is_in_no_write_grant(root: Path, path: str) -> None:
    (root / "notes").mkdir()
    tools = written(root / "tools.py", "clerk"), written(root / "more/others.py", "other")
    code = [file.read_text() for file in (root / "tools.py", root / "more/others.py")]
    at = gate_at(root, *tools)
    result = call(at, "clerk", {"path": path})
    assert result.reason == "PATH_NOT_REACHABLE", result
    assert "the code of a tool is never writable" in result.explain()
    assert "to allow it" not in result.explain()  # nothing would
    for beside in ("notes/a.txt", "more/a.py", "b.py"):  # beside it is as the manifest says
        assert call(at, "clerk", {"path": beside}).ok
    assert code == [file.read_text() for file in (root / "tools.py", root / "more/others.py")]


def test_a_function_behind_a_decorator_counts(root: Path) -> None:
    inner, outer = written(root / "inner.py", "clerk"), written(root / "outer.py", "other")
    around = outer.fn.__globals__["logged"](inner.fn)
    at = gate_at(root, type(inner)(around, inner.spec))
    for path in ("inner.py", "outer.py"):
        assert call(at, "clerk", {"path": path}).reason == "PATH_NOT_REACHABLE"
    assert call(at, "clerk", {"path": "a.txt"}).ok


def test_a_link_to_a_given_tool_protects_where_it_leads(root: Path) -> None:
    written(root / "real/tools.py", "clerk")
    (root / "linked").symlink_to("real")
    at = gate_at(root, imported(root / "linked/tools.py", "clerk"))
    assert call(at, "clerk", {"path": "real/tools.py"}).reason == "PATH_NOT_REACHABLE"
    assert call(at, "clerk", {"path": "real/a.txt"}).ok
