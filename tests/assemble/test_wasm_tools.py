"""WASM tools that a manifest names: they are loaded, reviewed, locked and closed for writing as other tools are."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from licet import Gate, Tool, load_manifest
from licet.assemble.expected_lock import lock_problems
from licet.assemble.gate import Backends
from licet.assemble.importing import differing_tools, imported_tools
from licet.assemble.never_writable import never_writable
from licet.assemble.review import Places, review
from licet.cli.app import licet
from licet.declare.decorator import WasmTool
from licet.errors import ManifestError, Refused, RegistrationRefused
from licet.tools import python as licet_python
from wasm_files import EMPTY

OTHER = EMPTY + b"\0\1\0"  # another module: with an empty custom section
SOURCE = """
from licet import Tool

count = Tool.wasm(
    "modules/count.wasm",
    arguments={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    needs=["fs:read:${workdir}/notes"],
    effect="read_only",
)
"""
AGENT = """
agent: a
tools:
  count: {from: "wasm_kit:count"}
capabilities:
  tools: [count]
  fs_reach: {read: ["${workdir}/notes"]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "count.wasm").write_bytes(EMPTY)
    (tmp_path / "wasm_kit.py").write_text(SOURCE)
    (tmp_path / "agent.yaml").write_text(AGENT)
    before = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = before
    sys.modules.pop("wasm_kit", None)


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


# Loading --------------------------------------------------------------------------------------------------------------


def test_a_manifest_loads_it_by_name(here: Path) -> None:
    (loaded,) = imported_tools(load_manifest("agent.yaml"))
    assert isinstance(loaded, WasmTool)
    assert loaded.module.file == str(here / "modules" / "count.wasm")
    assert loaded.spec.origin is not None
    assert loaded.spec.origin.file == "wasm_kit.py"  # as a review names it
    assert (loaded.reuse, loaded.is_async) == (True, False)
    assert [tool.name for tool in Gate.load("agent.yaml").tools] == ["count"]


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "no module": (SOURCE.replace("count.wasm", "no.wasm"), EMPTY, "found `modules/no.wasm`, expected a WebAssembly"),
    "no WebAssembly": (SOURCE, b"hello", "it begins with the bytes 68 65 6c 6c"),
    "more than the manifest allows": (SOURCE.replace("/notes", ""), EMPTY, "fs:read:"),
}


@pytest.mark.parametrize(("source", "module", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_not_loaded(here: Path, source: str, module: bytes, text: str) -> None:
    (here / "wasm_kit.py").write_text(source)
    (here / "modules" / "count.wasm").write_bytes(module)
    with pytest.raises((ManifestError, RegistrationRefused)) as refused:
        Gate.load("agent.yaml")
    assert text in str(refused.value)
    assert text in run("check", "agent.yaml").output


def test_a_module_that_changes_between_review_and_import_is_refused(here: Path) -> None:
    # Code of the module's own file, which runs first, replaces the reviewed module.
    (here / "other.wasm").write_bytes(OTHER)
    (here / "wasm_kit.py").write_text("import os\nos.replace('other.wasm', 'modules/count.wasm')\n" + SOURCE)
    with pytest.raises(ManifestError, match="declares a different `module` when it runs than in its source"):
        Gate.load("agent.yaml")


def test_a_tool_with_another_module_than_its_source_names_is_refused(here: Path) -> None:
    (here / "count.wasm").write_bytes(OTHER)
    given: dict[str, Any] = {"needs": ["fs:read:${workdir}/notes"], "effect": "read_only"}
    manifest = load_manifest("agent.yaml")
    same = Tool.wasm(here / "modules" / "count.wasm", **given)
    other = Tool.wasm(here / "count.wasm", **given)
    assert differing_tools(manifest, [same]) == []
    (ground,) = differing_tools(manifest, [other])
    assert ground.reason == "MANIFEST_CHANGED"
    assert "`count` has another `module` than its source" in ground.text


# The lock -------------------------------------------------------------------------------------------------------------


def locked(here: Path) -> dict[str, str]:
    done = run("lock", "agent.yaml")
    assert done.exit_code == 0, done.output
    tools = json.loads((here / "licet.lock").read_text())["tools"]
    sources: dict[str, str] = tools["count"]["sources"]
    return sources


def test_a_lock_names_the_module(here: Path) -> None:
    assert list(locked(here)) == ["modules/count.wasm", "wasm_kit.py"]
    assert lock_problems(Path("agent.yaml")) == []
    assert [tool.name for tool in Gate.load("agent.yaml").tools] == ["count"]


def test_a_changed_module_refuses_calls(here: Path) -> None:
    locked(here)
    (loaded,) = imported_tools(load_manifest("agent.yaml"))
    (here / "modules" / "count.wasm").write_bytes(OTHER)
    (problem,) = lock_problems(Path("agent.yaml"))
    assert "modules/count.wasm" in problem.found
    with pytest.raises(Refused, match=r"has another modules/count\.wasm since it was locked") as refused:
        Gate.load("agent.yaml")
    assert refused.value.code == "MANIFEST_CHANGED"
    with pytest.raises(Refused) as refused:  # also a tool that was declared before the module changed
        Gate(load_manifest("agent.yaml"), [loaded], Backends.memory())
    assert refused.value.code == "MANIFEST_CHANGED"
    again = run("lock", "agent.yaml", "--update")
    assert again.exit_code == 0, again.output
    sys.modules.pop("wasm_kit", None)
    assert [tool.name for tool in Gate.load("agent.yaml").tools] == ["count"]


def test_a_module_outside_of_the_directory_is_locked_by_the_digest(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "count.wasm"
    outside.write_bytes(EMPTY)
    (here / "wasm_kit.py").write_text(SOURCE.replace("modules/count.wasm", str(outside)))
    assert list(locked(here)) == ["wasm_kit.py"]
    outside.write_bytes(OTHER)
    with pytest.raises(Refused, match="`count` declares something else since it was locked"):
        Gate.load("agent.yaml")


# What no grant writes -------------------------------------------------------------------------------------------------


def test_no_grant_writes_the_module_of_a_registered_tool(here: Path) -> None:
    real = here / "real.wasm"
    real.write_bytes(EMPTY)
    (here / "link.wasm").symlink_to(real)
    closed = {path.path for path in never_writable(str(here), None, [Tool.wasm(here / "link.wasm", needs=[])])}
    assert {str(here / "link.wasm"), str(real), os.path.abspath(__file__)} <= closed


def test_no_grant_writes_the_module_that_a_manifest_names(here: Path) -> None:
    manifest = review("agent.yaml", places=Places.here()).manifest
    assert manifest is not None
    assert str(here / "modules" / "count.wasm") in {path.path for path in never_writable(str(here), manifest)}
    told = json.loads(run("surface", "agent.yaml", "--json").output)
    assert str(here / "modules" / "count.wasm") in json.dumps(told)


# Commands -------------------------------------------------------------------------------------------------------------


def test_reviews_treat_it_as_any_tool() -> None:
    assert run("check", "agent.yaml").exit_code == 0
    surface = run("surface", "agent.yaml").output
    assert "restricted" in surface
    assert "${workdir}/notes" in surface
    assert "allowed: `count` may be called" in run("explain", "agent.yaml", "count").output
    lint = run("lint", "wasm_kit.py")
    assert (lint.exit_code, lint.output) == (0, "0 tools in 0 files, fine\n")
    assert run("lint", "agent.yaml").exit_code == 0


def test_init_writes_a_manifest_for_it(here: Path) -> None:
    (here / "agent.yaml").unlink()
    done = run("init", "wasm_kit.py", "--agent", "a")
    assert done.exit_code == 0, done.output
    assert 'count: {from: "wasm_kit:count"}' in (here / ".licet" / "licet.yaml").read_text()
    checked = run("check")
    assert checked.exit_code == 0, checked.output


def test_a_diff_reads_the_module_of_a_revision(here: Path) -> None:
    names = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True, env=environment)
    (here / "wasm_kit.py").write_text(SOURCE.replace('"read_only"', '"write_limited"'))
    (here / "agent.yaml").write_text(AGENT + "  max_side_effect_class: write_limited\n")
    done = run("diff", "HEAD", "agent.yaml")
    assert "no file" not in done.output, done.output
    assert "write_limited" in done.output, done.output


# The Python of licet --------------------------------------------------------------------------------------------------

ANALYST = """
from licet import Tool

analyst = Tool.wasm("licet:python", name="analyst", needs=["secret:read:desk/token"], effect="read_only")
"""


def test_a_tool_of_ones_own_on_the_python_of_licet_is_reviewed_and_locked_as_others_are(here: Path) -> None:
    (here / "wasm_kit.py").write_text(ANALYST)
    (here / "agent.yaml").write_text(
        'agent: a\ntools: {analyst: {from: "wasm_kit:analyst"}}\n'
        "capabilities: {tools: [analyst], secrets: [desk/token]}\n"
    )
    assert run("check", "agent.yaml").exit_code == 0
    (loaded,) = imported_tools(load_manifest("agent.yaml"))
    assert isinstance(loaded, WasmTool)
    assert list(loaded.schema["properties"]) == ["code", "data"]
    assert loaded.description.startswith("Run Python")
    assert (loaded.spec.source, loaded.module.file) == ("", "licet:python")
    assert run("lock", "agent.yaml").exit_code == 0
    assert "licet:python" not in (here / "licet.lock").read_text()
    assert not [
        place.path for place in never_writable(str(here), load_manifest("agent.yaml")) if "licet:" in place.path
    ]


def test_the_ready_made_tool_is_found_by_its_reference(here: Path) -> None:
    (here / "agent.yaml").write_text(
        'agent: a\ntools: {python: {from: "licet.tools:python"}}\n'
        "capabilities: {tools: {python: {side_effect_class: read_only}}}\n"
    )
    assert run("check", "agent.yaml").exit_code == 0
    (loaded,) = imported_tools(load_manifest("agent.yaml"))
    assert (type(loaded), loaded.needs, loaded.digest) == (WasmTool, licet_python.needs, licet_python.digest)
