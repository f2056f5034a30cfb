"""Modules of installed packages are found as Python finds them, and nothing of them is imported."""

import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from licet.core.policy.tool import ToolSpec
from licet.core.values import Problem
from licet.source.declarations import find_tool

TOOL = "from licet import tool\n\n@tool(needs=['env:read:A'], sandbox='native')\ndef f(): ...\n"
RUNS = "raise SystemExit('this package was imported')\n"
Files = dict[str, str]
EXTENSION = EXTENSION_SUFFIXES[0]

# What is installed and what is in the project, the reference, and the file that is read.
FOUND: dict[str, tuple[Files, str, str]] = {
    "one module": ({"site/acme.py": TOOL}, "acme:f", "site/acme.py"),
    "a package": ({"site/acme/__init__.py": TOOL}, "acme:f", "site/acme/__init__.py"),
    "in a package, which would run": (
        {"site/acme/__init__.py": RUNS, "site/acme/deep/__init__.py": RUNS, "site/acme/deep/tools.py": TOOL},
        "acme.deep.tools:f",
        "site/acme/deep/tools.py",
    ),
    "in a namespace package": ({"site/acme/tools.py": TOOL}, "acme.tools:f", "site/acme/tools.py"),
    "in a namespace package in two places": (
        {"site/acme/other.py": "", "more/acme/tools.py": TOOL},
        "acme.tools:f",
        "more/acme/tools.py",
    ),
    "a package before a namespace package": (
        {"site/acme/tools.py": "", "more/acme/__init__.py": "", "more/acme/tools.py": TOOL},
        "acme.tools:f",
        "more/acme/tools.py",
    ),
    "a package before a module": (
        {"site/acme/__init__.py": TOOL, "site/acme.py": ""},
        "acme:f",
        "site/acme/__init__.py",
    ),
    "the first directory of the path": ({"site/acme.py": TOOL, "more/acme.py": ""}, "acme:f", "site/acme.py"),
    "through a relative import": (
        {"site/acme/__init__.py": "from .tools import f\n", "site/acme/tools.py": TOOL},
        "acme:f",
        "site/acme/tools.py",
    ),
    "through another package": (
        {"site/acme.py": "from other.tools import f\n", "more/other/__init__.py": RUNS, "more/other/tools.py": TOOL},
        "acme:f",
        "more/other/tools.py",
    ),
    "through a file of the project": (
        {"project/mine.py": "from acme import f\n", "site/acme.py": TOOL},
        "mine:f",
        "site/acme.py",
    ),
    "a directory of data with the name of the package": (
        {"project/acme/data.csv": "", "site/acme/__init__.py": "", "site/acme/tools.py": TOOL},
        "acme.tools:f",
        "site/acme/tools.py",
    ),
    "a stray directory in the libraries": (
        {"project/mine.py": TOOL, "site/mine/data.csv": ""},
        "mine:f",
        "project/mine.py",
    ),
}
REFUSED: dict[str, tuple[Files, str, str]] = {
    "nowhere": (
        {},
        "acme:f",
        "no module `acme`, expected a Python file below the directory of the manifest, or an installed",
    ),
    "a namespace package itself": ({"site/acme/tools.py": TOOL}, "acme:f", "no module `acme`"),
    "a module of a module": ({"site/acme.py": TOOL}, "acme.tools:f", "no module `acme.tools`"),
    "of Python itself": ({}, "csv:reader", "no module `csv`"),
    "compiled": ({f"site/acme{EXTENSION}": ""}, "acme:f", "`acme` without source"),
    "compiled before its source": (
        {f"site/acme{EXTENSION}": "", "site/acme.py": TOOL},
        "acme:f",
        "`acme` without source",
    ),
    "compiled, in a package": (
        {"site/acme/__init__.py": "", "site/acme/tools.pyc": ""},
        "acme.tools:f",
        "`acme.tools` without source",
    ),
    "a compiled package": (
        {"site/acme/__init__.pyc": "", "site/acme/tools.py": TOOL},
        "acme.tools:f",
        "`acme` without",
    ),
    "a setuptools hook": (
        {
            "site/__editable__.acme_kit-1.0.pth": "import __editable___acme_kit_1_0_finder; x.install()\n",
            "site/__editable___acme_kit_1_0_finder.py": "MAPPING = {'acme': '/src/acme'}\n",
        },
        "acme.tools:f",
        "`acme`, which an editable install provides (ROOT/site/__editable__",
    ),
    "another hook": ({"site/_acme.pth": "import _acme_hook\n"}, "acme:f", "`acme`, which an editable install provides"),
    "an egg link": ({"site/acme.egg-link": "/src/acme\n.\n"}, "acme:f", "`acme`, which an editable install provides"),
    "a hook of something else": ({"site/acmeology.pth": "import acmeology\n"}, "acme:f", "no module `acme`"),
    "a path of another project": ({"src/acme.py": "", "site/x.pth": "../src\n"}, "acme:f", "`acme`, which an editable"),
    "a path that is no hook": ({"site/acme.pth": "/src/acme\n"}, "acme:f", "no module `acme`"),
    "in the project and installed": (
        {"project/acme.py": TOOL, "site/acme/__init__.py": TOOL},
        "acme:f",
        "`acme` in two places: ROOT/project/acme.py, and ROOT/site/acme/__init__.py on the import path",
    ),
    "the project has the package, not the module": (
        {"project/acme/__init__.py": "", "site/acme/__init__.py": "", "site/acme/tools.py": TOOL},
        "acme.tools:f",
        "`acme` in two places: ROOT/project/acme/__init__.py",
    ),
    "a namespace package of the project, installed as a package": (
        {"project/acme/tools.py": TOOL, "site/acme/__init__.py": ""},
        "acme.tools:f",
        "`acme` in two places: ROOT/project/acme/tools.py",
    ),
    "in the project and compiled in the libraries": (
        {"project/acme.py": TOOL, f"site/acme{EXTENSION}": ""},
        "acme:f",
        "`acme` in two places: ROOT/project/acme.py",
    ),
    "an installed package that imports from the project": (
        {"project/mine.py": TOOL, "site/acme.py": "from mine import f\n"},
        "acme:f",
        "no module `mine`",
    ),
    "a zip file before a directory": ({"zip:acme.py": TOOL, "site/acme.py": TOOL}, "acme:f", "`acme` in the zip file"),
    "a zip file before the project": ({"zip:acme.py": TOOL, "project/acme.py": TOOL}, "acme:f", "`acme` in two places"),
    "a package in a zip file": (
        {"zip:acme/__init__.py": "", "zip:acme/tools.py": TOOL},
        "acme.tools:f",
        "`acme` in the zip file",
    ),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(sys, "path", [*(str(tmp_path / name) for name in ("a.zip", "site", "more")), *sys.path])
    return tmp_path


def found_in(root: Path, files: Files, reference: str) -> ToolSpec | Problem:
    for name, text in files.items():
        if name.startswith("zip:"):
            with zipfile.ZipFile(root / "a.zip", "a") as archive:
                archive.writestr(name.removeprefix("zip:"), text)
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    before = set(sys.modules)
    found = find_tool(reference, [root / "project"])
    assert not [name for name in set(sys.modules) - before if name.partition(".")[0] in ("acme", "mine", "other")]
    return found


@pytest.mark.parametrize("case", FOUND)
def test_an_installed_tool_is_found_where_python_would_find_it(root: Path, case: str) -> None:
    files, reference, file = FOUND[case]
    found = found_in(root, files, reference)
    assert isinstance(found, ToolSpec), str(found)
    assert found.origin is not None
    assert found.origin.file == str(root / file)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_reviewed_is_refused_with_the_reason(root: Path, case: str) -> None:
    files, reference, said = REFUSED[case]
    found = found_in(root, files, reference)
    assert isinstance(found, Problem), str(found)
    assert f"found {said.replace('ROOT', str(root))}" in str(found)
    assert found.hint


def test_a_project_that_is_on_the_import_path_is_one_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "project" / "src"))
    assert isinstance(found_in(root, {"project/src/acme/__init__.py": TOOL}, "acme:f"), ToolSpec)
