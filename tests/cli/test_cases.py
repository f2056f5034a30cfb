"""The cases of the YAML files here."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import verbs
from cli.cases import DO, Case, Differs, World, all_cases
from command_line import enter_project

DO.update(verbs.VERBS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project; what a case imports from it is forgotten afterwards."""
    before = set(sys.modules)
    yield enter_project(tmp_path, monkeypatch)
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path.resolve()):
            del sys.modules[name]


@pytest.mark.parametrize("case", all_cases())
def test_case(case: Case, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(here, monkeypatch, case.known)
    for step in case.steps:
        place = f"{case.file.name}:{step.line}: {case.name}\n  {step.text}"
        try:
            world.step(step)
        except Differs as differs:
            what, expected, found = differs.args
            found = found if isinstance(found, str) else repr(found)
            raise pytest.fail.Exception(f"{place}\n  {what}: {expected!r}\n  found: {found}", pytrace=False) from None
        except Exception as error:
            error.add_note(place)
            raise
