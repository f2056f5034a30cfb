"""Which programs are interpreters, by name: of those the script is pinned and closed, whatever reads the command."""

import os
import sys
from pathlib import Path

import pytest

from licet.packages.launchers import interpreter, is_python
from licet.packages.package_store import file_digest
from licet.packages.programs import find_program
from licet.packages.server_packages import LaunchError, launch_of
from licet.packages.started_from import started_from

PYTHONS = [
    *("python", "python3", "python3.13", "python3.13t", "python3.13d", "python3.14td", "python3.6m", "python-3.12"),
    *("pythonw", "python3-dbg", "python3.12-intel64", "Python", "pypy", "pypy3", "pypy3.10", "pypy3.10-c", "graalpy"),
]
OTHERS = {"node": "node", "nodejs": "node", "node20": "node", "bash5": "bash", "ruby3.2": "ruby", "perl5.36.0": "perl"}
NONE = ["python-lsp-server", "pythonic", "python_server", "python3-config", "nodemon", "shell", "rubyfmt", "demo", ""]


def test_names_of_interpreters() -> None:
    assert {name for name in PYTHONS if not is_python(name)} == set()
    assert {name: interpreter(name) for name in OTHERS} == OTHERS
    assert {name for name in NONE if interpreter(name)} == set()


@pytest.mark.parametrize("name", PYTHONS)
def test_the_script_of_each_python_is_pinned_and_closed(name: str, tmp_path: Path) -> None:
    real = os.path.realpath(sys.executable)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).symlink_to(real)
    (tmp_path / "server.py").write_text("print('hello')")
    launch = launch_of([f"bin/{name}", "server.py"])
    found = find_program(launch, tmp_path)
    assert found.resolved.digest == file_digest(tmp_path / "server.py")
    assert "-P" in found.installed.argv or "-c" in found.installed.argv  # nothing beside it is imported
    closed = started_from(launch, str(tmp_path), "", {})
    assert str(tmp_path / "server.py") in closed.own
    assert closed.sites


@pytest.mark.parametrize("name", OTHERS)
def test_the_script_of_each_other_interpreter_is_read_as_its_script(name: str) -> None:
    assert launch_of([name, "server.x"]).program == "server.x"


@pytest.mark.parametrize("name", ["python3.13", "bash", "node"])
def test_an_interpreter_under_another_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x7fELF")
    (tmp_path / name).chmod(0o755)
    (tmp_path / "run").symlink_to(tmp_path / name)
    with pytest.raises(LaunchError, match=rf"`\./run` is a link to `{name}`: name that instead"):
        find_program(launch_of(["./run", "server.py"]), tmp_path)
