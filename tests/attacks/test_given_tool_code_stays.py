"""A tool that a program hands to its gate rewrites its own code, or another tool's: no write grant says that."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call
from licet import Backends, Gate, load_manifest
from pins import pinned

CODE = '''
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
    path.write_text(CODE.replace("NAME", name))
    return imported(path, name)


def imported(path: Path, name: str) -> Any:
    """The tool of a module, as a program would import it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def desk(folder: Path, *tools: Any) -> Gate:
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
    root = tmp_path / "desk"
    root.mkdir()
    return root


PLACES = {
    "its own file": "tools.py",
    "its own file by another way": "notes/../tools.py",
    "the file of another tool": "more/others.py",
    "what was compiled of it": f"__pycache__/tools.{sys.implementation.cache_tag}.pyc",
    "what another Python would compile": "more/__pycache__/others.cpython-399.pyc",
}


@pytest.mark.parametrize("path", PLACES.values(), ids=PLACES)
def test_the_code_of_a_tool_is_in_no_write_grant(root: Path, path: str) -> None:
    (root / "notes").mkdir()
    tools = written(root / "tools.py", "clerk"), written(root / "more/others.py", "other")
    code = [file.read_text() for file in (root / "tools.py", root / "more/others.py")]
    at = desk(root, *tools)
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
    at = desk(root, type(inner)(around, inner.spec))
    for path in ("inner.py", "outer.py"):
        assert call(at, "clerk", {"path": path}).reason == "PATH_NOT_REACHABLE"
    assert call(at, "clerk", {"path": "a.txt"}).ok


def test_a_link_protects_where_it_leads(root: Path) -> None:
    written(root / "real/tools.py", "clerk")
    (root / "linked").symlink_to("real")
    at = desk(root, imported(root / "linked/tools.py", "clerk"))
    assert call(at, "clerk", {"path": "real/tools.py"}).reason == "PATH_NOT_REACHABLE"
    assert call(at, "clerk", {"path": "real/a.txt"}).ok
