"""`licet wasm`: what a module asks for, without running it; and the Python of models, built ahead."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from licet import Tool
from licet.cli import wasm as command
from licet.cli import wasm as wasm_progress
from licet.cli.app import licet
from licet.declare.limits import LARGEST_MODULE
from licet.sandbox import probe
from licet.sandbox.probe import Attempted, Support
from licet.wasm.python import build as kept
from licet.wasm.python.build import BuildFailed, Report
from sandbox.levels import call, gate, needs_walls
from wasm import modules
from wasm_files import EMPTY, wasm

ADD = """(module
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "wide") (param i64 f32) (result f64) (f64.const 0.5))
  (func (export "reference") (param externref))
  (func (export "_initialize")) (func (export "__wasm_call_ctors"))
  (memory (export "memory") 2 32))"""
SHOUT = """(component
  (import "call" (func (param "op" string) (param "args" string) (result (result string (error string)))))
  (core module $m (memory (export "memory") 3) (func (export "f") (param i64) (result i64) local.get 0))
  (core instance $i (instantiate $m))
  (func $same (param "amount" u64) (result u64) (canon lift (core func $i "f")))
  (export "same" (func $same)))"""
SYSTEM = '(module (import "env" "system" (func (param i32) (result i32))) (func (export "_start") unreachable))'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code is kept: not where earlier runs have left theirs, with what it says of a module."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs_walls()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["wasm", *words], catch_exceptions=False)


def inspected(data: bytes, name: str = "guest.wasm", code: int = 0) -> Any:
    """What `licet wasm inspect --json` says of these bytes."""
    Path(name).write_bytes(data)
    ended = run("inspect", name, "--json")
    assert ended.exit_code == code, ended.output
    return json.loads(ended.output)


# What a module is -----------------------------------------------------------------------------------------------------


def test_a_command_is_described(folder: Path) -> None:
    said = inspected(modules.ECHO)
    assert (said["kind"], said["usable"], said["command"], said["functions"]) == ("module", True, "_start", [])
    assert said["size_bytes"] == len(modules.ECHO)
    assert said["memory"] == {"at_start_bytes": 4 << 16, "most_bytes": None}
    assert said["imports"]["host"] == ["licet.call", "licet.take"]
    assert said["imports"]["wasi"]["standard streams"] == ["fd_write", "fd_read"]
    assert said["imports"]["impossible"] == []
    assert {"name": "_start", "type": "func() -> ()"} in said["exports"]
    assert [line.partition(":")[0] for line in said["needs"]] == [*("files", "environment", "host function", "sockets")]


def test_functions_are_listed_with_those_that_can_be_called(folder: Path) -> None:
    said = inspected(wasm(ADD))
    assert (said["command"], said["functions"]) == (None, ["add", "wide"])
    assert said["memory"] == {"at_start_bytes": 2 << 16, "most_bytes": 32 << 16}
    assert said["needs"] == ["nothing: it only computes"]
    assert len(said["exports"]) == 6


def test_a_component_is_described_with_the_memory_of_the_modules_inside(folder: Path) -> None:
    said = inspected(wasm(SHOUT))
    assert (said["kind"], said["functions"], said["imports"]["host"]) == ("component", ["same"], ["call"])
    assert said["exports"] == [{"name": "same", "type": "func(amount: u64) -> u64"}]
    assert said["memory"]["at_start_bytes"] == 3 << 16


def test_the_page_for_people_says_the_same(folder: Path) -> None:
    Path("add.wasm").write_bytes(wasm(ADD))
    ended = run("inspect", "add.wasm")
    assert ended.exit_code == 0
    for line in (
        "kind      core module",
        "memory    128 KB at the start, at most 2.0 MB",
        "runs as   a function, which `function=` names: add, wide",
        "imports: none",
        "  add  func(i32, i32) -> (i32)",
        "  nothing: it only computes",
        "  add = Tool.wasm(",
        "  tools: [add]",
    ):
        assert line in ended.stdout.splitlines() or f"  {line}" in ended.stdout.splitlines(), line


# The declaration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "given", "value"),
    [
        (wasm(ADD), {"a": 2, "b": 40}, 42),
        (wasm(SHOUT), {"amount": 2**63}, 2**63),
        (modules.ECHO, {"text": "Grüße"}, {"text": "Grüße"}),
    ],
    ids=["function", "component", "command"],
)
def test_the_declaration_can_be_pasted_and_called(folder: Path, data: bytes, given: Any, value: Any) -> None:
    said = inspected(data, str(folder / "my-tool.wasm"))
    names: dict[str, Any] = {}
    exec(said["declaration"], names)
    tool = names["my_tool"]
    assert isinstance(tool, Tool)
    (folder / "work").mkdir()
    result = call(gate(folder / "work", "restricted", tool), "my_tool", given)
    assert (result.error, result.value) == ("", value)
    assert yaml.safe_load(said["manifest"]) == {
        "tools": {"my_tool": {"from": "tools:my_tool"}},
        "capabilities": {"tools": ["my_tool"]},
    }


@pytest.mark.parametrize("name", ["123.wasm", "no.wasm", "class.wasm", "é.wasm", "a b.wasm", 'it\'s "so".wasm'])
def test_any_file_name_gives_a_declaration_that_works(folder: Path, name: str) -> None:
    said = inspected(wasm(ADD), name)
    names: dict[str, Any] = {}
    exec(compile(said["declaration"], str(folder / "tools.py"), "exec"), names)
    (tool,) = (value for value in names.values() if isinstance(value, Tool))
    manifest = yaml.safe_load(said["manifest"])
    assert manifest["capabilities"]["tools"] == [tool.name] == list(manifest["tools"])
    assert names[manifest["tools"][tool.name]["from"].partition(":")[2]] is tool


def test_memory_beyond_the_usual_limit_is_in_the_manifest(folder: Path) -> None:
    said = inspected(wasm('(module (memory (export "memory") 10000) (func (export "f")))'))
    assert yaml.safe_load(said["manifest"])["capabilities"]["limits"] == {"memory_mb": 625}
    assert said["needs"][0].startswith("memory: it starts with 625 MB")


# What no grant can give -----------------------------------------------------------------------------------------------


def test_an_import_that_no_grant_can_give_is_said_and_the_exit_code_is_1(folder: Path) -> None:
    said = inspected(wasm(SYSTEM), code=1)
    assert said["usable"] is False
    assert [one["name"] for one in said["imports"]["impossible"]] == ["env.system"]
    ended = run("inspect", "guest.wasm")
    assert ended.exit_code == 1
    assert "it cannot run here: 1 import that no grant can give\n  env.system: a guest has WASI" in ended.stdout
    assert "Tool.wasm(" not in ended.stdout


def test_a_module_without_functions_cannot_be_a_tool(folder: Path) -> None:
    assert inspected(EMPTY, code=1)["usable"] is False
    assert "it exports no function that can be called" in run("inspect", "guest.wasm").stdout


def test_nothing_of_a_module_runs(folder: Path) -> None:
    """A start function that never ends would be called when the module is made ready to run."""
    assert inspected(wasm('(module (start $f) (func $f (loop br 0)) (func (export "f")))'))["functions"] == ["f"]


# What is no module ----------------------------------------------------------------------------------------------------


def _large(file: Path) -> None:
    with file.open("wb") as made:
        made.write(EMPTY)
        made.truncate(LARGEST_MODULE + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: None, "there is no file guest.wasm"),
        (lambda file: file.mkdir(), "it is a directory"),
        (lambda file: os.mkfifo(file), "it is a named pipe"),
        (lambda file: file.symlink_to("/dev/zero"), "it is a device"),
        (lambda file: file.write_bytes(b""), "it is empty"),
        (lambda file: file.write_text("(module)"), "convert it with `wat2wasm`"),
        (lambda file: file.write_bytes(wasm(ADD)[:-7]), "guest.wasm cannot be compiled: "),
        (lambda file: file.write_bytes(EMPTY + b"\x0a\x03\x01\xff"), "guest.wasm cannot be compiled: "),
        (lambda file: file.write_bytes(b"\0asm\x63\0\0\0"), "of a known version"),
        (lambda file: file.write_bytes(wasm('(module (func (export "f") (param v128)))')), "vectors (v128)"),
        (_large, "it is larger than 64 MiB"),
    ],
    ids=[
        "missing",
        "directory",
        "pipe",
        "device",
        "empty",
        "text",
        "truncated",
        "invalid",
        "version",
        "vectors",
        "large",
    ],
)
def test_what_is_no_module_is_refused_with_the_reason(folder: Path, make: Any, said: str) -> None:
    make(folder / "guest.wasm")
    ended = run("inspect", "guest.wasm")
    assert ended.exit_code == 1
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert said in json.loads(run("inspect", "guest.wasm", "--json").stdout)["error"]


def test_without_wasmtime_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    Path("guest.wasm").write_bytes(wasm(ADD))
    missing = importlib.metadata.PackageNotFoundError("wasmtime")

    def version(name: str) -> str:
        raise missing

    monkeypatch.setattr(importlib.metadata, "version", version)
    ended = run("inspect", "guest.wasm")
    assert ended.exit_code == 1
    assert "pip install 'licet[wasm]'" in ended.stderr
    ended = run("build")
    assert ended.exit_code == 1
    assert "pip install 'licet[wasm" in ended.stderr


def test_without_walls_it_is_compiled_only_where_that_is_allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe.look()
    broken = Attempted("landlock", "read a file", "it worked")
    monkeypatch.setattr(command, "look", lambda: Support(0, (broken, *found.findings)))
    Path("guest.wasm").write_bytes(wasm(ADD))
    ended = run("inspect", "guest.wasm")
    assert ended.exit_code == 1
    assert "`restricted` cannot be kept here" in ended.stderr
    assert run("inspect", "guest.wasm", "--allow-degraded").exit_code == 0


# Hostile names --------------------------------------------------------------------------------------------------------

HOSTILE = r"\1b[2J\1b]0;x\07\0d\e2\80\ae"  # clears the screen, sets the title, returns to the start, turns the line


@pytest.mark.parametrize("where", ["import", "export", "component"])
def test_names_in_a_module_cannot_draw_on_the_terminal(folder: Path, where: str) -> None:
    text = {
        "import": f'(module (import "{HOSTILE}" "{HOSTILE}" (func)) (func (export "f")))',
        "export": f'(module (func (export "{HOSTILE}")) (func (export "f")))',
        "component": f"""(component (core module (import "{HOSTILE}" "" (func)))
          (core module $m (func (export "{HOSTILE}")) (func (export "f"))) (core instance $i (instantiate $m))
          (func (export "f") (canon lift (core func $i "f"))))""",
    }[where]
    Path("guest.wasm").write_bytes(wasm(text))
    for words in (["inspect", "guest.wasm"], ["inspect", "guest.wasm", "--json"]):
        ended = run(*words)
        assert ended.exit_code == (1 if where == "import" else 0)
        assert all(line.isprintable() for line in ended.output.splitlines())
        assert "\u202e" not in ended.output


def test_a_hostile_export_gives_a_declaration_that_names_it_exactly(folder: Path) -> None:
    said = inspected(wasm(f'(module (func (export "{HOSTILE}") (result i32) (i32.const 7)))'), str(folder / "g.wasm"))
    names: dict[str, Any] = {}
    exec(said["declaration"], names)
    (folder / "work").mkdir()
    assert call(gate(folder / "work", "restricted", names["g"]), "g", {}).value == 7


def test_long_names_are_cut_and_long_lists_counted(folder: Path) -> None:
    functions = "".join(f'(func (export "{"x" * 5000}{number}"))' for number in range(300))
    Path("guest.wasm").write_bytes(wasm(f"(module {functions})"))
    ended = run("inspect", "guest.wasm")
    exports = ended.stdout.partition("\nexports\n")[2].partition("\n\n")[0].splitlines()
    assert (len(exports), exports[-1]) == (41, "  … and 260 more: --json lists all")
    assert max(map(len, exports)) < 200
    said = json.loads(run("inspect", "guest.wasm", "--json").stdout)
    assert (len(said["exports"]), said["functions"]) == (300, [])  # a name of more than 512 characters is not declared


def test_an_export_name_that_is_made_to_be_slow_is_read_at_once(folder: Path) -> None:
    name = "#[]" * 30_000 + "\\n"
    Path("guest.wasm").write_bytes(wasm(f'(module (func (export "{name}")) (func (export "f")))'))
    assert json.loads(run("inspect", "guest.wasm", "--json").stdout)["functions"] == ["f"]


# build ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A builder that takes no time, and a data directory of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def build(target: Path, report: Report) -> None:
        report("preparing", 0.0)
        report("building", 0.5)
        report("building", 0.6)
        target.write_bytes(wasm(SHOUT))

    monkeypatch.setattr(command, "runner", lambda report: kept.runner(report, build))
    return tmp_path / "data" / "licet" / "wasm"


def test_build_says_where_the_python_is_kept_and_does_nothing_the_second_time(quick: Path) -> None:
    first = run("build")
    phases = [line.partition(":")[0] for line in first.stderr.splitlines()]
    assert (first.exit_code, phases) == (0, ["preparing", "building", "compiling for this machine"])
    assert re.match(r"built in \d+ seconds\n", first.stdout)
    said = json.loads(run("build", "--json").stdout)
    assert said["built"] is False
    assert Path(said["file"]).read_bytes() == wasm(SHOUT)
    assert Path(said["compiled"]).parent == quick / "compiled"
    for line in (f"kept in   {said['file']}", f"sha256    {said['sha256']}", f"inputs    {said['inputs']}"):
        assert line in first.stdout.splitlines()
    assert f"size      {len(wasm(SHOUT)):,} bytes" in first.stdout
    second = run("build")
    assert second.stdout.startswith("it is built already: nothing to do\n")
    assert second.stderr == ""


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_build_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with wasm_progress.progress(quiet=False) as report:
        report("building", 0.5)
    assert re.search(r"building: .*━", terminal.getvalue())


# What was reported and when, the moment, and what is said then.
STANDS = {
    "nothing yet": ([], 3, "starting"),
    "too early to tell": ([(1, "building", 0.05)], 3, "building"),
    "half of the first part": ([(1, "building", 0.1), (9, "building", 0.5)], 9, "building: about 30 seconds left"),
    "a slow machine": ([(90, "building", 0.5)], 90, "building: about 5 minutes left"),
    "the second part": ([(18, "building", 0.9), (20, "compiling for this machine", 1.0)], 24,
                        "compiling for this machine: about 20 seconds left"),
    "it takes longer": ([(20, "compiling for this machine", 1.0)], 90, "compiling for this machine: nearly done"),
    "another process": ([(1, "waiting for another process that builds it", 0.0)], 9,
                        "waiting for another process that builds it"),
}  # fmt: skip


@pytest.mark.parametrize("case", STANDS)
def test_the_time_that_is_left_follows_the_pace_of_this_machine(case: str) -> None:
    reported, now, said = STANDS[case]
    pace = wasm_progress.Pace(0)
    for moment, phase, part in reported:
        pace.report(phase, part, moment)
    stand = pace.stand(now)
    assert stand.text == said
    assert 0 <= stand.done < 1


def test_without_a_terminal_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with wasm_progress.progress(quiet=False, clock=lambda: now[0]) as report:
        for second in range(41):
            now[0] = second
            report("building", second / 45)
        report("done", 1.0)
        report(wasm_progress.COMPILING, 1.0)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "building", "building", "building", "compiling for this machine"
    ]  # fmt: skip


def test_a_build_that_fails_says_why(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(report: Report) -> kept.Runner:
        raise BuildFailed("componentize-py ended with 1: \x1b[2Jno")

    monkeypatch.setattr(command, "runner", fails)
    ended = run("build")
    assert (ended.exit_code, ended.stderr) == (1, "componentize-py ended with 1: \\u001b[2Jno\n")
    assert json.loads(run("build", "--json").stdout)["error"].startswith("componentize-py ended with 1")


def test_the_kept_python_is_inspected_as_such(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = SHOUT.replace(
        "(component", '(component (import "wasi:sockets/network@0.2.0" (instance (export "f" (func))))', 1
    )

    def build(target: Path, report: Report) -> None:
        target.write_bytes(wasm(sockets))

    made = kept.runner(builder=build)
    said = json.loads(run("inspect", made.file, "--json").stdout)
    assert (said["usable"], said["imports"]["wasi"]) == (True, {"sockets": ["wasi:sockets/network@0.2.0"]})
    assert "sockets: it imports them, and each use fails; the host function has `fetch`" in said["needs"]
    names: dict[str, Any] = {}
    exec(said["declaration"], names)
    assert names["python"].module.file == "licet:python"
