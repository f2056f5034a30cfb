"""Wheels that would run code at the start of Python, or replace a part of their environment."""

from pathlib import Path

import pytest

from licet.backends.packages.store import PackageError
from licet.backends.packages.wheels import check_wheel

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
    ("demo-1.0.data/data/./pyvenv.cfg", "home = /srv", "part of the environment"),
    ("../evil.py", "", "leads out"),
    ("/srv/evil.py", "", "leads out"),
    ("demo-1.0.data/data/../../evil.py", "", "leads out"),
    ("evil.pth", "a" * (1 << 21), "too large"),
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
        check_wheel(wheel(tmp_path, "demo", files={"demo.py": "", name: text}))
    assert reason in str(refusal.value)


@pytest.mark.parametrize("program", ["python", "Python3", "pypy"])
def test_a_program_with_the_name_of_the_interpreter_is_refused(tmp_path: Path, program: str) -> None:
    with pytest.raises(PackageError, match="part of the environment"):
        check_wheel(wheel(tmp_path, "demo", scripts={"demo": "demo:main", program: "demo:main"}))


@pytest.mark.parametrize(("name", "text"), HARMLESS, ids=[name for name, _ in HARMLESS])
def test_a_wheel_without_such_files_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    check_wheel(wheel(tmp_path, "demo", files={"demo.py": "", name: text}))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"PK but not really")
    with pytest.raises(PackageError, match="no wheel that can be read"):
        check_wheel(path)
