"""`licet doctor`: a table of what holds, JSON of the same, and an exit code."""

import importlib.metadata
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli import doctor
from licet.cli.app import licet
from licet.sandbox.probe import Attempted, Support
from licet.wasm.python.build import Report, runner


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, words)


HOLDING = tuple(Attempted(wall, f"break {wall}", "holds") for wall in ("landlock", "seccomp", "hardening"))
OPEN = (
    Attempted("namespaces", "reach the network", "cannot be built: unshare: denied"),
    Attempted("private root", "look", "no"),
)
WHOLE = Support(7, (*HOLDING, Attempted("namespaces", "reach", "holds"), Attempted("private root", "look", "holds")))
WITHOUT_NAMESPACES = Support(3, (*HOLDING, *OPEN))
NOTHING = Support(0, (), "this system is not Linux")


@pytest.mark.parametrize(
    ("found", "code", "lines"),
    [
        (WHOLE, 0, ["restricted   yes", "isolated     yes", "programs     yes", "landlock (version 7)   yes"]),
        (
            WITHOUT_NAMESPACES,
            0,
            ["restricted   yes", "programs     degraded", "allow_degraded", "no network", "unshare: denied"],
        ),
        (NOTHING, 1, ["restricted   no", "programs     no", "this system is not Linux", "native       yes"]),
    ],
)
def test_the_table_says_what_holds(
    monkeypatch: pytest.MonkeyPatch, found: Support, code: int, lines: list[str]
) -> None:
    monkeypatch.setattr(doctor, "look", lambda: found)
    ended = run("doctor")
    assert ended.exit_code == code
    assert [line for line in lines if line not in ended.output] == []


def test_json_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: NOTHING)
    ended = run("doctor", "--json")
    said = json.loads(ended.output)
    assert ended.exit_code == 1
    assert {level: told["kept"] for level, told in said["levels"].items()} == {
        "restricted": False, "isolated": False, "native": True,
    }  # fmt: skip
    assert said["levels"]["restricted"]["missing"]
    assert said["trouble"] == message("doctor.system_not_linux")


def test_attempts_are_listed_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: WHOLE)
    assert "tried to" not in run("doctor").output
    assert "tried to" in run("doctor", "--attempts").output


def test_here_it_really_tries() -> None:
    said = json.loads(run("doctor", "--json").output)
    assert said["trouble"] or len(said["attempts"]) > 10


@pytest.mark.parametrize(
    ("found", "kept", "missing", "lines"),
    [
        (WHOLE, "yes", [], ["wasmtime {version}, in a process of its own"]),
        (
            Support(0, HOLDING[1:]),
            "degraded",
            ["landlock"],
            ["around it is missing: landlock; wasmtime alone then keeps `restricted`", "allow_degraded: true"],
        ),
        (NOTHING, "degraded", ["landlock", "seccomp", "hardening"], ["`isolated` needs them all, and is refused"]),
    ],
)
def test_wasm_tools_have_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: Support, kept: str, missing: list[str], lines: list[str]
) -> None:
    pytest.importorskip("wasmtime")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "look", lambda: found)
    said = json.loads(run("doctor", "--json").output)["wasm"]
    version = importlib.metadata.version("wasmtime")
    assert (said["kept"], said["wasmtime"], said["missing"], said["python"]) == (kept, version, missing, None)
    text = "\n".join(said["notes"])
    assert [line for line in (*lines, "`licet wasm build`") if line.format(version=version) not in text] == []
    assert f"wasm tools   {kept}" in run("doctor").output
    assert list(tmp_path.iterdir()) == []  # looking makes no directory


def test_the_exit_code_does_not_depend_on_wasmtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "look", lambda: WHOLE)
    monkeypatch.setattr(importlib.metadata, "version", version)
    ended = run("doctor", "--json")
    said = json.loads(ended.output)["wasm"]
    assert (ended.exit_code, said["kept"], said["wasmtime"]) == (0, "no", None)
    assert "pip install 'licet[wasm]'" in said["notes"][0]


def test_the_row_says_that_the_python_of_models_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wasmtime")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "look", lambda: WHOLE)

    def build(target: Path, report: Report) -> None:
        target.write_bytes(b"built")

    made = runner(builder=build)
    said = json.loads(run("doctor", "--json").output)["wasm"]
    assert said["python"] == made.file
    assert said["notes"][-1] == "the Python of `licet.tools.python` is built"
