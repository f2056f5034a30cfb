"""Policy in a directory of its own: what it speaks for, what stays with it, and what can be written beside it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from cli.messages import message
from cli.walled_tools import make
from licet import Backends, Gate, load_manifest
from licet.assemble.review import state_directory
from pins import pinned, trust
from sandbox.levels import call

TOOLS = '''
from licet import Context, tool

@tool(needs=[], effect="read_only", sandbox="native")
def hello() -> str:
    """Greet somebody."""
    return "hello"
'''
MANIFEST: dict[str, Any] = {
    "agent": "a",
    "tools": {"hello": {"from": "own_tools:hello"}},
    "capabilities": {
        "tools": ["hello"],
        "native": ["hello"],
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
        "budget": {"max_calls_per_session": 2},
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]},
        "process": {"allowed_binaries": ["sh", "git"]},
    },
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "project"
    (root / ".licet").mkdir(parents=True)
    (root / ".licet" / "agent.yaml").write_text(json.dumps(MANIFEST))
    (root / "own_tools.py").write_text(TOOLS)
    trust(root / ".licet" / "agent.yaml", root.parent / "state")
    return root


def licet(root: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(root.parent / "state"), "HOME": str(root.parent)}
    return warm.run(warm.PROGRAM, words, cwd=cwd or root, env=environment)


@pytest.mark.parametrize("source", ["own_tools.py", "src/own_tools.py"])
@pytest.mark.sampled(1)
def test_tools_are_found_below_its_parent(source: str, project: Path) -> None:
    (project / source).parent.mkdir(exist_ok=True)
    (project / "own_tools.py").rename(project / source)
    for cwd, manifest, named in (
        (project, ".licet/agent.yaml", source),
        (project / ".licet", "agent.yaml", f"../{source}"),
        (project.parent, "project/.licet/agent.yaml", f"project/{source}"),
    ):
        ended = licet(project, "call", manifest, "hello", "--workdir", str(project), cwd=cwd)
        assert ended.stdout == "hello\n", ended.stderr
        shown = json.loads(licet(project, "surface", manifest, "--json", cwd=cwd).stdout)
        assert shown["tools"][0]["origin"].startswith(named), shown["tools"][0]["origin"]
        shutil.rmtree(project.parent / "state")  # the budget is for two calls


def test_moving_policy_there_keeps_receipts_and_budgets(project: Path) -> None:
    (project / ".licet" / "agent.yaml").rename(project / "agent.yaml")
    assert licet(project, "call", "agent.yaml", "hello").returncode == 0
    (project / "agent.yaml").rename(project / ".licet" / "agent.yaml")
    assert licet(project, "call", ".licet/agent.yaml", "hello").returncode == 0
    assert "BUDGET_EXCEEDED" in licet(project, "call", "agent.yaml", "hello", "--json", cwd=project / ".licet").stdout
    for cwd, words in ((project, ()), (project / ".licet", ()), (project.parent, ("--manifest", "project/.licet"))):
        listed = licet(project, "receipts", "list", "--json", *words, cwd=cwd)
        assert len(json.loads(listed.stdout)["receipts"]) == 3, (cwd, listed.stderr)


def test_the_state_of_both_places_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_directory(tmp_path) == state_directory(tmp_path / ".licet")
    assert state_directory(tmp_path) != state_directory(tmp_path / "licet")


def test_the_code_of_its_tools_is_closed_too(project: Path) -> None:
    ceiling = load_manifest(project / ".licet" / "agent.yaml").expand(str(project), "/home/nobody").ceiling
    for path in ("own_tools.py", "src/own_tools.py", ".licet", ".licet/agent.yaml", ".licet/licet.lock"):
        assert not ceiling.has(f"fs:write:{project}/{path}")
    for path in ("licet.yaml", "licet.lock", "new.yaml", "a"):
        assert ceiling.has(f"fs:write:{project}/{path}")


SCRIPT = """
git init -q repo && echo a > new && mkdir -p deep/er && echo b > deep/er/file && echo c > other.yaml || exit 9
echo x > .licet/agent.yaml; echo x > .licet/licet.yaml; mkdir .licet/sub; rm -rf .licet; mv .licet moved
ln -s / .licet/link; mv deep .licet/deep; ln .licet/agent.yaml second && echo x >> second
mkdir away; mv -T away .licet; rmdir .licet
exit 0
"""


def agreed(root: Path, manifest: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may delete, as `git` does all the time, once a person has agreed to that."""
    path = root / manifest
    given = json.loads(path.read_text())
    given["capabilities"]["max_side_effect_class"] = "destructive"
    path.write_text(json.dumps(given))
    assert licet(root, "run", manifest, "--", *words).returncode == 125
    waiting = json.loads(licet(root, "approvals", "list", "--json").stdout)["requests"]
    (request,) = [one["id"] for one in waiting if one["state"] == "waiting"]
    assert licet(root, "approvals", "approve", request, "--yes").returncode == 0
    return licet(root, "run", manifest, "--", *words)


@needs_namespaces
def test_a_program_writes_next_to_the_policy_directory_and_never_into_it(project: Path) -> None:
    ended = agreed(project, ".licet/agent.yaml", "sh", "-c", SCRIPT)
    assert ended.returncode == 0, ended.stderr
    assert (project / "repo" / ".git" / "HEAD").exists()
    assert {path.name for path in (project / ".licet").iterdir()} == {"agent.yaml"}
    assert not (project / ".licet").is_symlink()
    assert json.loads((project / ".licet" / "agent.yaml").read_text())["agent"] == "a"
    assert (project / "new").read_text() == "a\n"


@needs_namespaces
def test_the_same_program_without_a_shell(project: Path) -> None:
    ended = agreed(project, ".licet/agent.yaml", "git", "init", "-q", "repo")
    assert ended.returncode == 0, ended.stderr
    (project / ".licet" / "agent.yaml").rename(project / "agent.yaml")
    (project / ".licet").rmdir()
    ended = agreed(project, "agent.yaml", "git", "init", "-q", "other")
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in project.iterdir()) == ["agent.yaml", "other", "own_tools.py", "repo"]


@needs_walls
def test_a_walled_tool_creates_files_below_and_gets_a_reason_next_to_it(project: Path) -> None:
    (project / "below").mkdir()
    content = {**MANIFEST, "tools": {}, "capabilities": {**MANIFEST["capabilities"], "tools": ["make"], "native": []}}
    (project / ".licet" / "agent.yaml").write_text(json.dumps(content))
    gate = Gate(
        pinned(load_manifest(project / ".licet" / "agent.yaml")),
        [make],
        Backends.local(project.parent / "state"),
        workdir=project,
    )
    assert call(gate, "make", {"path": f"{project}/below/new"}).ok
    refused = call(gate, "make", {"path": f"{project}/new"})
    assert "PermissionError" in refused.error
    assert message("policy_directory.new_names_directly_next_names", project=project) in (refused.explain())
