"""Wheels that would run code at the start of Python, or replace a part of their environment."""

import stat
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from licet.packages.archives import Bounds
from licet.packages.clients import PackageError
from licet.packages.resolving import check_wheel

from .made import wheel

PLANTED = [
    ("evil.pth", "import os; os.system('x')", "would run at each start"),
    ("evil.pth", "good\nimport\tos", "would run at each start"),
    ("evil.pth", "\ufeffimport os", "would run at each start"),
    ("evil.pth", "good\x0cimport os", "would run at each start"),
    ("evil.PTH", "import os", "would run at each start"),
    ("evil.pth", "/srv/elsewhere", "is not in the package"),
    ("evil.pth", "../../elsewhere", "is not in the package"),
    ("demo-1.0.data/purelib/evil.pth", "import os", "would run at each start"),
    ("demo-1.0.data/platlib/evil.pth", "import os", "would run at each start"),
    ("demo-1.0.data/data/lib/python3.11/site-packages/evil.pth", "import os", "part of the environment"),
    ("demo-1.0.data/data/lib64/python3.11/os.py", "", "part of the environment"),
    ("evil.start", "os:system", "would run at each start"),
    ("sitecustomize.py", "", "would run at each start"),
    ("usercustomize.py", "", "would run at each start"),
    ("sitecustomize/__init__.py", "", "would run at each start"),
    ("sitecustomize.cpython-311-x86_64-linux-gnu.so", "", "would run at each start"),
    ("demo-1.0.data/purelib/sitecustomize.py", "", "would run at each start"),
    ("demo-1.0.data/scripts/python", "", "part of the environment"),
    ("demo-1.0.data/scripts/python3.11", "", "part of the environment"),
    ("demo-1.0.data/data/bin/python", "", "part of the environment"),
    ("demo-1.0.data/data/pyvenv.cfg", "home = /srv", "part of the environment"),
    ("demo-1.0.data/data/./pyvenv.cfg", "home = /srv", "plain path"),
    ("../evil.py", "", "leads out"),
    ("/srv/evil.py", "", "leads out"),
    ("demo-1.0.data/data/../../evil.py", "", "leads out"),
    ("evil.pth", "a" * (1 << 21), "too large"),
    ("demo-1.0.data/scripts/pyvenv.cfg", "home = /srv", "part of the environment"),
    ("demo-1.0.data/data/bin/pyvenv.cfg", "home = /srv", "part of the environment"),
    ("demo-1.0.data/scripts/pybuilddir.txt", "/srv", "part of the environment"),
    ("demo-1.0.data/purelib//evil.pth", "import os", "plain path"),
    ("demo-1.0.data//purelib/evil.pth", "import os", "plain path"),
    ("demo-1.0.data/./purelib/evil.pth", "import os", "plain path"),
    ("demo-1.0.data/data//bin/python", "", "plain path"),
    ("demo-1.0.data/data/.//lib/python3.11/site-packages/evil.pth", "import os", "plain path"),
    (".//evil.pth", "import os", "plain path"),
    ("./sitecustomize.py", "", "plain path"),
    ("demo/../evil.pth", "import os", "leads out"),
    ("demo-1.0.data/purelib\\evil.pth", "import os", "leads out"),
    ("evil.pth\n", "import os", "control character"),
    ("evil.pth.", "import os", "would run at each start"),
    ("evil.pth ", "import os", "would run at each start"),
    ("SiteCustomize.py", "", "would run at each start"),
    ("\uff53itecustomize.py", "", "would run at each start"),
    ("demo-1.0.data/data/BIN/Python", "", "part of the environment"),
    ("demo-1.0.data/PURELIB/evil.pth", "import os", "not known"),
    ("demo-1.0.DATA/purelib/evil.pth", "import os", "not known"),
    ("demo-1.0.data/other/evil.pth", "import os", "not known"),
    ("a" * 256, "", "too long"),
    ("/".join(["abcdefgh"] * 120), "", "too long"),
]
HARMLESS = [
    ("demo.pth", "demo_parts\n# import os\n\n"),
    ("demo/evil.pth", "import os"),
    ("demo/sitecustomize.py", ""),
    ("demo-1.0.data/scripts/serve", "#!python\n"),
    ("demo-1.0.data/data/share/doc/readme", ""),
    ("demo-1.0.data/data/lib/libdemo.so", ""),
    ("demo-1.0.data/headers/demo.h", ""),
    ("importlib_demo.py", ""),
]


@pytest.mark.parametrize(
    ("name", "text", "reason"), PLANTED, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(PLANTED)]
)
def test_a_wheel_that_would_run_code_is_refused(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(PackageError) as refusal:
        check_wheel(wheel(tmp_path, "demo", files={"demo.py": "", name: text}), Bounds())
    assert reason in str(refusal.value)


@pytest.mark.parametrize("program", ["python", "Python3", "pypy", "./python", "../python", "a/../python", "pyvenv.cfg"])
def test_a_program_with_the_name_of_the_interpreter_is_refused(tmp_path: Path, program: str) -> None:
    with pytest.raises(PackageError, match="part of the environment"):
        check_wheel(wheel(tmp_path, "demo", scripts={"demo": "demo:main", program: "demo:main"}), Bounds())


@pytest.mark.parametrize(("name", "text"), HARMLESS, ids=[name for name, _ in HARMLESS])
def test_a_wheel_without_such_files_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    check_wheel(wheel(tmp_path, "demo", files={"demo.py": "", name: text}), Bounds())


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"PK but not really")
    with pytest.raises(PackageError, match="no wheel that can be read"):
        check_wheel(path, Bounds())


# Archives -------------------------------------------------------------------------------------------------------------


def packed(path: Path, members: Iterable[tuple[zipfile.ZipInfo, bytes]]) -> Path:
    with warnings.catch_warnings():  # of a name that is there twice
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members:
                archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return path


def refused(path: Path, bounds: Bounds | None = None) -> str:
    with pytest.raises(PackageError) as refusal:
        check_wheel(path, bounds or Bounds())
    return str(refusal.value)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = [(zipfile.ZipInfo("demo.py"), b""), (zipfile.ZipInfo("demo.py"), b"other")]
    assert "`demo.py` is in it twice" in refused(packed(tmp_path / "demo-1.0-py3-none-any.whl", twice))


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("demo.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "`demo.py` is a link" in refused(packed(tmp_path / "demo-1.0-py3-none-any.whl", [(link, b"/etc/passwd")]))


def test_a_small_archive_of_much_is_refused(tmp_path: Path) -> None:
    zeros = bytes(10 << 20)
    path = packed(tmp_path / "demo-1.0-py3-none-any.whl", ((zipfile.ZipInfo(f"{n}"), zeros) for n in range(8)))
    assert path.stat().st_size < 1 << 20
    assert "unpacks to far more than its own size" in refused(path)


def test_sizes_that_an_archive_states_are_not_believed(tmp_path: Path) -> None:
    path = packed(tmp_path / "demo-1.0-py3-none-any.whl", [(zipfile.ZipInfo("demo.py"), b"x" * 1000)])
    path.write_bytes(path.read_bytes().replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    assert "Bad CRC" in refused(path)


def test_what_all_archives_of_a_package_unpack_to_is_counted_together(tmp_path: Path) -> None:
    bounds = Bounds()
    for number in range(200_000 // 1000):
        bounds.start(f"{number}", 1)
        for _ in range(1000):
            bounds.file()
    made = wheel(tmp_path, "demo")
    assert "more than 200000 files" in refused(made, bounds)
    bounds = Bounds()
    for number in range(4):
        bounds.start(f"{number}", 1 << 30)
        bounds.unpacked(1 << 30)
    assert "more than 4 GiB" in refused(made, bounds)
