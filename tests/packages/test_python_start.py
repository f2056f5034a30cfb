"""How a Python server is started: without the directory of its script, and with its `code`, on every Python."""

import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from glob import glob
from pathlib import Path

import pytest

from licet.packages.clients import is_native
from licet.packages.launchers import Launch, python_argv
from licet.packages.programs import find_program
from licet.packages.server_packages import Installed, launch_of

from .made import write

VERSIONS = [f"python3.{minor}" for minor in range(6, 16)]
MANAGED = sorted(glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3.[0-9]*[0-9]")))
OTHERS = [path for name in VERSIONS if (path := shutil.which(name)) and is_native(path)] + MANAGED
TELL = """\
import os, sys
print(__name__, os.path.basename(__file__), os.path.basename(sys.argv[0]), sys.argv[1:])
try:
    import beside
    print(beside.__name__)
except ImportError:
    print("nothing beside")
"""


def output(command: tuple[str, ...], *words: str, directory: Path) -> list[str]:
    done = subprocess.run([*command, *words], cwd=directory, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.splitlines()


def started(launch: Launch, directory: Path) -> Installed:
    return find_program(launch, directory).installed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path, {"server/main.py": TELL, "beside.py": "", "server/beside.py": ""})


@pytest.mark.parametrize("python", [sys.executable, *OTHERS], ids=os.path.basename)
@pytest.mark.parametrize("flags", [(), ("-u",), ("-I",), ("-O", "--")])
@pytest.mark.sampled(10)
def test_a_script_does_not_import_from_beside_it(place: Path, python: str, flags: tuple[str, ...]) -> None:
    launch = launch_of([python, *flags, "server/main.py", "-x", "a b"])
    assert output(started(launch, place).argv, *launch.arguments, directory=place) == [
        "__main__ main.py main.py ['-x', 'a b']",
        "nothing beside",
    ]


@pytest.mark.parametrize("python", [sys.executable, *OTHERS], ids=os.path.basename)
@pytest.mark.parametrize("flags", [(), ("-I", "-S")])
@pytest.mark.sampled(6)
def test_code_is_on_the_path_and_compiled_anew(place: Path, python: str, flags: tuple[str, ...]) -> None:
    source = place / "server" / "beside.py"
    source.write_text("__name__ = 'planted'")
    times = source.stat()
    subprocess.run([python, "-m", "py_compile", str(source)], check=True, env={})
    assert any((place / "server" / "__pycache__").iterdir())
    source.write_text("__name__ = 'pinned '")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))  # the compiled file seems to be of this source
    launch = Launch("file", program="server/main.py", interpreter=(python, *flags), code=(str(place / "server"),))
    assert output((python, str(place / "server" / "main.py")), directory=place)[1] == "planted"
    assert output(started(launch, place).argv, directory=place)[1] == "pinned "


@pytest.mark.parametrize("code", [False, True])
def test_a_module_is_started_without_the_current_directory(place: Path, code: bool) -> None:
    inside = place / "server"
    write(inside, {"tool/__init__.py": "", "tool/__main__.py": TELL})
    (inside / "beside.py").unlink()
    launch = Launch("file", program="tool", interpreter=(sys.executable, "-m"), code=(str(inside),) if code else ())
    if not code:
        with pytest.raises(Exception, match="name its directory in `code` of the server"):
            find_program(launch, inside)
        assert output(python_argv(sys.executable, ("-m",), "zipfile"), "-h", directory=place)
        return
    assert output(started(launch, place).argv, "-x", directory=place) == [
        "__main__ __main__.py __main__.py ['-x']",
        "nothing beside",
    ]


def test_an_archive_is_started_as_python_does(place: Path) -> None:
    with zipfile.ZipFile(place / "server.pyz", "w") as archive:
        archive.writestr("__main__.py", "import inner\nimport sys\nprint(inner.__name__, sys.argv[1:])")
        archive.writestr("inner.py", "")
    for code in ((), (str(place / "server"),)):
        launch = Launch("file", program="server.pyz", interpreter=(sys.executable,), code=code)
        assert output(started(launch, place).argv, "-x", directory=place) == ["inner ['-x']"]


def test_compiled_files_without_source_in_code_are_files_like_others(place: Path) -> None:
    py_compile.compile(str(place / "server" / "beside.py"), str(place / "server" / "beside.pyc"))
    (place / "server" / "beside.py").unlink()
    launch = Launch("file", program="server/main.py", interpreter=(sys.executable,), code=(str(place / "server"),))
    assert output(started(launch, place).argv, directory=place)[1] == "beside"
