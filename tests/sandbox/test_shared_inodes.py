"""Second names of closed files: found where they are, and refused where they cannot be looked for."""

import os
from pathlib import Path

import pytest

from licet.assemble.never_writable import installed_by_links
from licet.guard.execution import SandboxUnavailable
from licet.sandbox.grant_paths import second_names


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    closed, granted = tmp_path / "closed", tmp_path / "granted"
    for tree in (closed, granted):
        (tree / "deep").mkdir(parents=True)
        for number in range(5):
            (tree / "deep" / f"file-{number}").write_text("x")
    return closed, granted


def test_where_no_file_has_two_names_nothing_is_found(trees: tuple[Path, Path]) -> None:
    closed, granted = trees
    assert second_names([str(granted)], [str(closed)]) == ()
    assert second_names([str(granted)], [str(closed)], most=1) == ()  # too many to search, and nothing to search for


def test_a_second_name_is_found_below_a_directory_and_for_a_file(trees: tuple[Path, Path]) -> None:
    closed, granted = trees
    os.link(closed / "deep" / "file-1", granted / "deep" / "second")
    expected = (str(granted / "deep" / "second"),)
    assert second_names([str(granted)], [str(closed)]) == expected
    assert second_names([str(granted)], [str(closed / "deep" / "file-1")]) == expected
    assert second_names([str(granted)], [str(closed / "deep" / "file-2")]) == ()


def test_names_that_are_all_closed_are_nothing_to_look_for(trees: tuple[Path, Path]) -> None:
    closed, granted = trees
    os.link(closed / "deep" / "file-1", closed / "again")
    assert second_names([str(granted)], [str(closed)], most=1) == ()


def test_a_grant_that_is_too_large_is_refused_where_a_name_is_missing(trees: tuple[Path, Path]) -> None:
    closed, granted = trees
    os.link(closed / "deep" / "file-1", closed.parent / "elsewhere")
    with pytest.raises(SandboxUnavailable, match="more than 3 files"):
        second_names([str(granted)], [str(closed)], most=3)
    assert second_names([str(granted)], [str(closed)]) == ()


def test_a_link_that_is_made_to_a_closed_file_later_is_found(trees: tuple[Path, Path]) -> None:
    closed, granted = trees
    file = closed / "deep" / "file-1"
    assert second_names([str(granted)], [str(file)]) == ()
    os.link(file, granted / "later")
    assert second_names([str(granted)], [str(file)]) == (str(granted / "later"),)


def test_an_environment_of_links_is_known_by_its_metadata(tmp_path: Path) -> None:
    info = tmp_path / "site-packages" / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: thing")
    assert not installed_by_links([str(tmp_path / "site-packages"), "/nowhere"])
    os.link(info / "METADATA", tmp_path / "cached")
    assert installed_by_links([str(tmp_path / "site-packages")])
