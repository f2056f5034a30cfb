"""What is closed where the search for it does not get to the end."""

import subprocess
from pathlib import Path

import pytest

from licet.policy_files import trusted_paths
from licet.policy_files.trusted_paths import TrustedPaths


def project(place: Path) -> Path:
    for name in ("a/b/c", "d/e"):
        (place / name).mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(place / name)], check=True)
    return place


@pytest.mark.parametrize(("limit", "number"), [("MOST_LOOKED_THROUGH", 2), ("MOST_TRUSTED_PATHS", 1)])
def test_over_a_limit_directories_are_closed_as_a_whole(
    limit: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(project(tmp_path.resolve()))
    monkeypatch.setattr(trusted_paths, limit, number)
    closed = TrustedPaths([place], "/elsewhere", "")
    assert sorted(closed.unsearched) == [f"{place}/a", f"{place}/d"][-len(closed.unsearched) :]
    for name in ("a/b/c", "d/e"):
        assert any(f"{place}/{name}/.git/hooks".startswith(path) for path in closed.paths) or closed.unclosed


def test_a_directory_that_is_written_itself_is_not_closed_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(project(tmp_path.resolve()))
    monkeypatch.setattr(trusted_paths, "MOST_LOOKED_THROUGH", 2)
    closed = TrustedPaths([place, f"{place}/a"], "/elsewhere", "")
    assert f"{place}/a" not in closed.paths
    assert {f"{place}/a/b", f"{place}/d"} <= {*closed.unsearched}
    assert not closed.unclosed
