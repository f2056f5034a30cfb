"""A tool rewrites its own source file, for its next start."""

import importlib.util
from pathlib import Path
from typing import Any

from attacks.behind_walls import Outside

SOURCE = """
def attack():
    with open(__file__, "a", encoding="utf-8") as file:
        file.write("# more")
"""


def planted(path: Path) -> Any:
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_walls_stop_it(outside: Outside) -> None:
    path = Path(outside.place, "out", "planted.py")
    outside.shows(planted(path).attack, lambda _: path.read_text() != SOURCE)


def test_a_write_grant_over_its_directory_does_not_cover_it(outside: Outside) -> None:
    path = Path(outside.place, "out", "planted.py")
    needs = [f"fs:write:{outside.place}"]
    outside.shows(planted(path).attack, lambda _: path.read_text() != SOURCE, needs=needs)
