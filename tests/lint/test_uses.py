"""What `licet lint` finds in pieces of code, and that every name in its table exists."""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from licet.source import raw_io
from licet.source.source_files import Project, SourceFile
from licet.source.touches import Follower

CASES = yaml.safe_load((Path(__file__).parent / "uses.yaml").read_text("utf-8"))


def found_in(path: Path) -> list[str]:
    """Every use in a file: its line, kind and scope, with `!` if the scope is complete."""
    file = Project(str).read(str(path))
    assert isinstance(file, SourceFile)
    uses = sorted(Follower().of_module(file).uses(), key=lambda use: (use.line, use.offset))
    shown = []
    for use in uses:
        scope = f" {use.rule.split(':', 2)[2]}" if use.rule else ""
        shown.append(f"{use.line} {use.kind}{scope}{'!' if use.exact else ''}")
    return shown


@pytest.mark.parametrize("name", CASES)
def test_the_uses_in_a_piece_of_code(name: str, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(CASES[name]["code"])
    assert found_in(path) == CASES[name]["uses"]


def test_the_cases_have_both_kinds() -> None:
    silent = [name for name, case in CASES.items() if not case["uses"]]
    assert len(silent) > 20
    assert len(CASES) - len(silent) > 30


NAMES = sorted({*raw_io.uses(), *raw_io.values(), *raw_io.FORWARDING, *raw_io.items()})
# Of other systems or versions of Python.
ELSEWHERE = {
    "os.startfile", "os.listxattr", "os.getxattr", "os.setxattr", "os.removexattr", "ctypes.WinDLL", "ctypes.OleDLL",
    "ctypes.windll", "ctypes.windll.LoadLibrary", "pathlib.Path.walk", "pathlib.WindowsPath",
}  # fmt: skip
GONE = ("imp", "telnetlib", "nntplib")


@pytest.mark.parametrize("name", [name for name in NAMES if name.partition(".")[0] in sys.stdlib_module_names])
def test_a_name_of_the_standard_library_exists(name: str) -> None:
    if name in ELSEWHERE or name.partition(".")[0] in GONE:
        pytest.skip("of another system or version")
    assert resolved(name) is not None


def resolved(name: str) -> Any:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    return None


def test_the_methods_of_paths_that_only_compute_are_not_in_the_table() -> None:
    import pathlib

    pure = {name for name, _ in inspect.getmembers(pathlib.PurePath) if not name.startswith("_")}
    assert not {f"pathlib.Path.{name}" for name in pure} & raw_io.uses().keys()
