"""A gate compares its tools with the lock next to its manifest: what they declare, and the files that they load."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from licet import Backends, Gate, Refused, Tool, load_manifest, run, tool
from licet.assemble.importing import imported_tools
from licet.cli.app import licet
from licet.core.policy.lock import Lock, LockedTool, read_lock, write_lock

from .gates import call

TOOLS = '''
from licet import tool
from locked_helper import GREETING

RAN = __import__("pathlib").Path(__file__).with_name("ran").write_text("x")

@tool(needs=[], effect="read_only", sandbox="native")
def hello(name: str = "you") -> str:
    """Greet somebody."""
    return f"{GREETING} {name}"
'''
POLICY = """\
agent: a
tools:
  hello: {from: "locked_tools:hello"}
  plain: {needs: [], effect: read_only, sandbox: native}
capabilities: {tools: [hello, plain, extra], native: [hello, plain, extra]}
"""


@tool(needs=[], effect="read_only", sandbox="native")
def plain() -> str:
    """Do nothing."""
    return "done"


@tool(needs=[], effect="read_only", sandbox="native")
def extra() -> str:
    """Do more."""
    return "more"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("locked_tools", "locked_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "a.yaml").write_text(POLICY)
    (tmp_path / "locked_tools.py").write_text(TOOLS)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "locked_helper.py").write_text('GREETING = "hello"\n')
    said = CliRunner().invoke(licet, ["lock", "a.yaml"], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    (tmp_path / "ran").unlink(missing_ok=True)
    return tmp_path


def built(*more: Tool) -> Gate:
    manifest = load_manifest("a.yaml")
    return Gate(manifest, [*imported_tools(manifest), *more], Backends.memory())


def refusal(*more: Tool) -> str:
    with pytest.raises(Refused, match="MANIFEST_CHANGED") as refused:
        built(*more)
    return refused.value.explain()


def test_a_lock_has_every_file_that_a_tool_loads(place: Path) -> None:
    lock = read_lock((place / "licet.lock").read_bytes())
    assert sorted(lock.tools["hello"].sources) == ["locked_tools.py", "src/locked_helper.py"]
    assert lock.tools["plain"].sources == {}


def test_what_was_locked_runs() -> None:
    gate = built(plain)
    assert (call(gate, "hello").value, call(gate, "plain").value) == ("hello you", "done")


CHANGES = {
    "its code": ("locked_tools.py", "{GREETING} {name}", "{name}", "`hello` has another locked_tools.py"),
    "a file that it imports": ("src/locked_helper.py", "hello", "bye", "`hello` has another src/locked_helper.py"),
    "its description": ("locked_tools.py", "Greet somebody", "Greet", "`hello` declares something else"),
}


@pytest.mark.parametrize(("file", "old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_changed_code_is_refused_before_it_runs(file: str, old: str, new: str, expected: str, place: Path) -> None:
    text = (place / file).read_text()
    assert old in text
    (place / file).write_text(text.replace(old, new))
    told = refusal()
    assert expected in told
    assert "licet lock --update" in told
    assert "licet.lock" in told
    assert not (place / "ran").exists()


def test_a_changed_file_runs_where_there_is_no_lock(place: Path) -> None:
    (place / "src" / "locked_helper.py").write_text('GREETING = "bye"\n')
    (place / "licet.lock").unlink()
    assert call(built(plain), "hello").value == "bye you"


def test_a_tool_that_the_lock_does_not_have_is_refused() -> None:
    told = refusal(extra)
    assert "`extra` is not in the lock" in told
    assert "declare it under `tools` of the workspace" in told


def test_a_lock_without_tools_says_nothing_about_them(place: Path) -> None:
    lock = read_lock((place / "licet.lock").read_bytes())
    (place / "licet.lock").write_bytes(write_lock(Lock(format=1, manifests=lock.manifests)))
    assert call(built(extra), "extra").value == "more"


def test_an_entry_that_was_edited_is_refused(place: Path) -> None:
    lock = read_lock((place / "licet.lock").read_bytes())
    other = LockedTool("sha256:" + "0" * 64, lock.tools["hello"].sources)
    (place / "licet.lock").write_bytes(write_lock(replace(lock, tools={**lock.tools, "hello": other})))
    assert "`hello` declares something else since it was locked" in refusal()


def test_code_of_the_same_name_from_elsewhere_is_refused(place: Path, tmp_path: Path) -> None:
    """The declaration is equal, and the locked file too: only the function is another one."""
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "planted_tools.py").write_text(
        TOOLS.replace("{GREETING} {name}", "gotcha").replace("from locked_helper import GREETING", "")
    )
    spec = importlib.util.spec_from_file_location("planted_tools", planted / "planted_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manifest = load_manifest("a.yaml")
    with pytest.raises(Refused, match="MANIFEST_CHANGED") as refused:
        Gate(manifest, [module.hello], Backends.memory())
    assert "not in a file that was locked" in refused.value.explain()
    (place / "licet.lock").unlink()
    assert call(Gate(load_manifest("a.yaml"), [module.hello], Backends.memory()), "hello").value == "gotcha"


def test_a_reload_compares_tools_too(place: Path) -> None:
    gate = built(plain)
    (place / "src" / "locked_helper.py").write_text('GREETING = "bye"\n')
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        gate.reload(load_manifest("a.yaml"))
    result = run(gate, "plain")
    assert result.reason == "MANIFEST_CHANGED"
    assert "locked_helper" in result.explain()


@pytest.mark.parametrize("words", [["call", "a.yaml", "hello"], ["run", "a.yaml", "--tool", "hello", "--", "true"]])
def test_commands_refuse_changed_code(words: list[str], place: Path) -> None:
    (place / "src" / "locked_helper.py").write_text('GREETING = "bye"\n')
    said = CliRunner().invoke(licet, words, catch_exceptions=False)
    assert said.exit_code in (1, 125)
    assert "has another src/locked_helper.py since it was locked" in said.output
    assert not (place / "ran").exists()


def test_a_command_is_no_tool_of_the_lock() -> None:
    """`licet run` without a tool runs any command that the manifest allows, under a lock too."""
    said = CliRunner().invoke(licet, ["run", "a.yaml", "--", "true"], catch_exceptions=False)
    assert "MANIFEST_CHANGED" not in said.output
