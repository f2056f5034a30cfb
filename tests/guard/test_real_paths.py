"""The real paths of many names are those that the system gives, for links of every kind."""

import os
from itertools import product
from pathlib import Path

import pytest

from licet.guard.import_path import followed
from licet.guard.real_paths import RealPaths

PARTS = ("d", "file", "to_d", "to_file", "up", "loop", "chain", "nowhere", "missing", "..", ".", "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Directories, files, and links: absolute, relative, in a row, in a circle, and to nothing."""
    for folder in (tmp_path, tmp_path / "d", tmp_path / "d" / "d"):
        folder.mkdir(exist_ok=True)
        (folder / "file").touch()
        (folder / "to_d").symlink_to("d")
        (folder / "to_file").symlink_to(folder / "file")
        (folder / "up").symlink_to("..")
        (folder / "loop").symlink_to("loop")
        (folder / "chain").symlink_to("to_d/to_file")
        (folder / "nowhere").symlink_to(folder / "missing" / "file")
    return tmp_path


def test_every_name_leads_where_the_system_says(tree: Path) -> None:
    real = RealPaths()  # one for all of them: what is known of one name must be right for the others
    for parts in product(PARTS, repeat=3):
        path = "/".join((str(tree), *parts))
        assert real.of(path) == os.path.realpath(path), path


def test_every_link_on_the_way_is_listed(tree: Path) -> None:
    real = RealPaths()
    for parts in product(PARTS, repeat=3):
        path = "/".join((str(tree), *parts))
        try:
            links = followed(path)[1]
        except OSError:
            with pytest.raises(OSError, match="Too many levels"):
                real.links_to(path)
        else:
            assert real.links_to(path) == links, path


@pytest.mark.parametrize("path", ["/", "//", "//usr", "", ".", "relative", "/.", "/..", "/usr/", "/proc/self"])
def test_unusual_names_lead_where_the_system_says(path: str) -> None:
    assert RealPaths().of(path) == os.path.realpath(path)


def test_a_link_that_appears_meanwhile_is_seen_by_the_next_one(tree: Path) -> None:
    before, place = RealPaths(), tree / "d" / "new"
    assert before.of(str(place)) == str(place)
    place.symlink_to(tree / "file")
    assert RealPaths().of(str(place)) == str(tree / "file")
