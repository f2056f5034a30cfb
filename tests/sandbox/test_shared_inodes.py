"""Second names of closed files: found where they are, and refused where they cannot be looked for."""

import json
import os
import time
from pathlib import Path

import pytest

from licet.assemble.never_writable import installed_by_links
from licet.guard.execution import SandboxUnavailable
from licet.sandbox import second_names as search
from licet.sandbox.limits import CHANGE_SECONDS, REMEMBERED_SECONDS
from licet.sandbox.second_names import second_names


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


def test_a_closed_name_within_the_grant_is_found_by_its_link_and_by_its_own_name(trees: tuple[Path, Path]) -> None:
    _, granted = trees
    (granted / "link").symlink_to(granted / "deep")
    os.link(granted / "deep" / "file-1", granted / "second")
    assert second_names([str(granted)], [str(granted / "deep")]) == (str(granted / "second"),)
    both = second_names([str(granted)], [str(granted / "link")])
    assert sorted(both) == [str(granted / "deep" / "file-1"), str(granted / "second")]


# What a search of closed trees leaves on disk ------------------------------------------------------------------------


@pytest.fixture
def searched(trees: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The trees, after a search for a file of the grant with a name elsewhere: its outcome is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(search, "FEW_CLOSED_FILES", 0)
    monkeypatch.setattr(search, "CHANGE_SECONDS", -1.0)  # no test waits until a file is old enough
    closed, granted = trees
    os.link(granted / "deep" / "file-1", tmp_path / "elsewhere")
    assert _in_a_new_process(granted, closed) == ()
    return closed, granted


def _in_a_new_process(granted: Path, closed: Path) -> tuple[str, ...]:
    search._second_names.cache_clear()
    return second_names([str(granted)], [str(closed)])


def _kept(closed: Path) -> Path:
    (file,) = (closed.parent / "cache" / "licet" / "second-names").iterdir()
    return file


def test_closed_trees_are_not_searched_again_for_the_same_files(searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    _come_in_with_a_directory(closed, granted)  # of which nothing of the file tells, so this shows that nobody looked
    assert _in_a_new_process(granted, closed) == ()
    about = (granted / "deep" / "file-1").stat()
    version = [about.st_dev, about.st_ino, about.st_ctime_ns, about.st_nlink]
    assert version in json.loads(_kept(closed).read_text())["apart"]


def _come_in_with_a_directory(closed: Path, granted: Path) -> None:
    """Give the file a name that is searched for and not found, and move that into the closed tree."""
    (closed.parent / "moved").mkdir()
    os.link(granted / "deep" / "file-1", closed.parent / "moved" / "name")
    assert _in_a_new_process(granted, closed) == ()
    os.rename(closed.parent / "moved", closed / "moved")


def test_what_is_kept_counts_for_a_day(searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    _come_in_with_a_directory(closed, granted)
    file = _kept(closed)
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "begin": time.time() - REMEMBERED_SECONDS - 1}))
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)


@pytest.mark.parametrize("text", ["", "[]", '{"begin": 1e400, "apart": []}', "\0", '{"begin": "x"}'])
def test_what_is_kept_and_cannot_be_read_counts_for_nothing(text: str, searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    _come_in_with_a_directory(closed, granted)
    _kept(closed).write_text(text)
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)


def test_a_new_name_in_a_closed_tree_is_found_though_the_file_was_searched_for(searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    os.link(granted / "deep" / "file-1", closed / "new")
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)


def test_a_name_that_is_moved_into_a_closed_tree_is_found_though_the_count_stays(searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    os.rename(closed.parent / "elsewhere", closed / "here")
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)


def test_what_was_found_for_a_tree_counts_for_this_one_alone(searched: tuple[Path, Path]) -> None:
    closed, granted = searched
    os.rename(closed, closed.parent / "old")
    (closed.parent / "new").mkdir()
    os.rename(closed.parent / "elsewhere", closed.parent / "new" / "name")
    assert _in_a_new_process(granted, closed) == ()
    os.rename(closed.parent / "new", closed)
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)


def test_a_file_that_changed_a_moment_ago_is_searched_for_again(
    searched: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, granted = searched
    monkeypatch.setattr(search, "CHANGE_SECONDS", 3_600.0)
    os.link(granted / "deep" / "file-2", closed.parent / "another")
    _come_in_with_a_directory(closed, granted)
    assert _in_a_new_process(granted, closed) == (str(granted / "deep" / "file-1"),)
    assert CHANGE_SECONDS >= 1


def test_an_environment_of_links_is_known_by_its_metadata(tmp_path: Path) -> None:
    info = tmp_path / "site-packages" / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: thing")
    assert not installed_by_links([str(tmp_path / "site-packages"), "/nowhere"])
    os.link(info / "METADATA", tmp_path / "cached")
    assert installed_by_links([str(tmp_path / "site-packages")])
