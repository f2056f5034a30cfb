"""The files of a project that its tools import, found from their source as Python would find them."""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from licet.source.project import ProjectModules, project_modules


def found_in(root: Path, files: dict[str, str], *references: str) -> ProjectModules:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return project_modules(references, [root])


def names(root: Path, found: ProjectModules) -> dict[str, str]:
    """Module -> its file, or the directory of a namespace package, relative to the root."""
    places = ((name, place.file or f"{place.directory}/") for name, place in found.modules.items())
    return {name: path.removeprefix(f"{root}/") for name, path in places}


LAYOUTS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "one file": ({"tools.py": ""}, "tools:f", {"tools": "tools.py"}),
    "a helper": (
        {"tools.py": "import helper", "helper.py": ""},
        "tools:f",
        {"tools": "tools.py", "helper": "helper.py"},
    ),
    "a helper of a helper, inside a function": (
        {"tools.py": "import a", "a.py": "def f():\n    from b import x", "b.py": ""},
        "tools:f",
        {"tools": "tools.py", "a": "a.py", "b": "b.py"},
    ),
    "what is not imported is not there": ({"tools.py": "", "other.py": ""}, "tools:f", {"tools": "tools.py"}),
    "the standard library wins": (
        {"tools.py": "import csv, json.decoder", "csv.py": "", "json/__init__.py": ""},
        "tools:f",
        {"tools": "tools.py"},
    ),
    "an installed package wins": (
        {"tools.py": "import click, yaml.nodes", "click.py": "", "yaml/__init__.py": ""},
        "tools:f",
        {"tools": "tools.py"},
    ),
    "licet wins": ({"tools.py": "import licet.tools", "licet.py": ""}, "tools:f", {"tools": "tools.py"}),
    "what a manifest names wins over what is installed": ({"click.py": ""}, "click:f", {"click": "click.py"}),
    "src": (
        {"src/tools.py": "import helper", "src/helper.py": ""},
        "tools:f",
        {"tools": "src/tools.py", "helper": "src/helper.py"},
    ),
    "the directory itself comes before src": (
        {"tools.py": "import helper", "helper.py": "", "src/helper.py": ""},
        "tools:f",
        {"tools": "tools.py", "helper": "helper.py"},
    ),
    "a package comes before a module": (
        {"tools.py": "import helper", "helper.py": "", "helper/__init__.py": ""},
        "tools:f",
        {"tools": "tools.py", "helper": "helper/__init__.py"},
    ),
    "a package with relative imports": (
        {
            "pkg/__init__.py": "from . import shared",
            "pkg/shared.py": "",
            "pkg/deep/__init__.py": "",
            "pkg/deep/tools.py": "from .. import other\nfrom .near import x\nfrom ..far.away import y",
            "pkg/deep/near.py": "",
            "pkg/other.py": "",
            "pkg/far/__init__.py": "",
            "pkg/far/away.py": "",
            "pkg/unused.py": "",
        },
        "pkg.deep.tools:f",
        {
            "pkg": "pkg/__init__.py",
            "pkg.shared": "pkg/shared.py",
            "pkg.deep": "pkg/deep/__init__.py",
            "pkg.deep.tools": "pkg/deep/tools.py",
            "pkg.deep.near": "pkg/deep/near.py",
            "pkg.other": "pkg/other.py",
            "pkg.far": "pkg/far/__init__.py",
            "pkg.far.away": "pkg/far/away.py",
        },
    ),
    "packages without a file, one inside the other": (
        {"one/two/tools.py": "import one.two.other", "one/two/other.py": "", "one/unused.py": ""},
        "one.two.tools:f",
        {
            "one": "one/",
            "one.two": "one/two/",
            "one.two.tools": "one/two/tools.py",
            "one.two.other": "one/two/other.py",
        },
    ),
    "a package without a file in two places": (
        {"ns/tools.py": "import ns.other", "src/ns/other.py": ""},
        "ns.tools:f",
        {"ns": "ns/", "ns.tools": "ns/tools.py", "ns.other": "src/ns/other.py"},
    ),
    "import_module with a literal": (
        {
            "tools.py": "import importlib\nimportlib.import_module('a')\n__import__('b')\n",
            "a.py": "",
            "b.py": "",
        },
        "tools:f",
        {"tools": "tools.py", "a": "a.py", "b": "b.py"},
    ),
    "imports that fail": (
        {"tools.py": "try:\n    import fast\nexcept ImportError:\n    import slow as fast\n", "slow.py": ""},
        "tools:f",
        {"tools": "tools.py", "slow": "slow.py"},
    ),
    "a circle": ({"tools.py": "import a", "a.py": "import tools"}, "tools:f", {"tools": "tools.py", "a": "a.py"}),
    "a file that is not Python": ({"tools.py": "import a", "a.py": "("}, "tools:f", {"tools": "tools.py", "a": "a.py"}),
    "compiled code without source": ({"tools.py": "import a", "a.pyc": ""}, "tools:f", {"tools": "tools.py"}),
    "ready-made tools": ({"licet/tools.py": ""}, "licet.tools:read_file", {}),
    "nothing": ({}, "tools:f", {}),
}


@pytest.mark.parametrize(("files", "reference", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_imports_of_a_project_are_found_as_python_finds_them(
    tmp_path: Path, files: dict[str, str], reference: str, expected: dict[str, str]
) -> None:
    before = set(sys.modules)
    assert names(tmp_path, found_in(tmp_path, files, reference)) == expected
    assert set(sys.modules) - before <= {"click", "yaml"}  # nothing of a project is imported to find this out


def test_an_extension_module_comes_first(tmp_path: Path) -> None:
    found = found_in(tmp_path, {"tools.py": "import a", "a.py": "", f"a{EXTENSION_SUFFIXES[0]}": ""}, "tools:f")
    assert names(tmp_path, found)["a"] == f"a{EXTENSION_SUFFIXES[0]}"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_instead_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "helper.py")
    assert names(tmp_path, found_in(tmp_path, {"tools.py": "import helper"}, "tools:f")) == {"tools": "tools.py"}


def test_paths_at_which_a_planted_file_would_be_loaded_are_closed(tmp_path: Path) -> None:
    files = {"tools.py": "import csv, click, missing\nfrom helper import x", "src/helper.py": "import deep.er"}
    found = found_in(tmp_path, files, "tools:f")
    endings = ("", ".py", *EXTENSION_SUFFIXES)
    for place in (tmp_path, tmp_path / "src"):
        for names, paths in ((("missing", "deep"), found.missing), (("tools", "helper"), found.second)):
            assert {str(place / f"{name}{end}") for name in names for end in endings} <= set(paths)
        assert not {str(place / "csv.py"), str(place / "click.py")} & dict(found.closed()).keys()  # nobody loads these
    closed = dict(found.closed())
    assert not closed[str(tmp_path / "missing.py")]
    assert not closed[str(tmp_path / "tools.py")]
    assert closed[str(tmp_path / "helper.py")]  # a second one, which loading refuses


DOUBLED = {
    "src": ({"helper.py": "", "src/helper.py": ""}, "helper.py and src/helper.py"),
    "a package": ({"helper.py": "", "helper/__init__.py": ""}, "helper and helper.py"),
    "an extension": ({"helper.py": "", "helper.abi3.so": ""}, "helper.py and helper.abi3.so"),
    "of the tool itself": ({"src/tools.py": ""}, "tools.py and src/tools.py"),
    "data": ({"helper.py": "", "helper/data.txt": ""}, ""),
    "a package without a file in two places": ({"helper/a.py": "", "src/helper/b.py": ""}, ""),
    "of a library": ({"csv.py": "", "src/csv.py": ""}, ""),
}


@pytest.mark.parametrize(("files", "where"), DOUBLED.values(), ids=DOUBLED)
def test_a_module_in_two_places_is_reported(tmp_path: Path, files: dict[str, str], where: str) -> None:
    text = found_in(tmp_path, {"tools.py": "import csv, helper", **files}, "tools:f").doubled
    assert text.replace(f"{tmp_path}/", "").rpartition(": ")[2] == where


def test_without_references_nothing_is_closed(tmp_path: Path) -> None:
    assert found_in(tmp_path, {"tools.py": ""}) == ProjectModules({}, (), ())


def test_every_loaded_file_and_the_targets_of_links_are_closed(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "helper.py"
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    real.parent.mkdir()
    real.write_text("")
    (root / "helper.py").symlink_to(real)
    closed = dict(found_in(root, {"tools.py": "import helper"}, "tools:f").closed())
    assert {str(root / "tools.py"), str(root / "helper.py"), str(real), str(root / "helper")} <= closed.keys()
