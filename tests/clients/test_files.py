"""Only regular files of this user are edited, never through a link, and never over a change."""

import os
from pathlib import Path

import pytest

from licet.clients.known import Unusable, read_own, replace_own, write_own


def test_a_file_is_read_and_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{}\r\n")
    path.chmod(0o640)
    seen = read_own(path, tmp_path)
    assert seen is not None
    replace_own(seen, b"[]", tmp_path)
    assert path.read_bytes() == b"[]"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.json"]


def test_there_may_be_no_file(tmp_path: Path) -> None:
    assert read_own(tmp_path / "a" / "b.json", tmp_path) is None


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "a.json").symlink_to("real.json")
    with pytest.raises(Unusable, match=r"a\.json is a link: edit the file that it leads to by hand"):
        read_own(tmp_path / "a.json", tmp_path)


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A project could have its `.cursor` lead to that of the user."""
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text("{}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".cursor").symlink_to(tmp_path / "home" / ".cursor")
    path = tmp_path / "project" / ".cursor" / "mcp.json"
    assert path.read_text() == "{}"
    with pytest.raises(Unusable, match=r"\.cursor is a link"):
        read_own(path, tmp_path / "project")


def test_a_link_above_the_base_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").write_text("{}")
    (tmp_path / "home").symlink_to("real")
    assert read_own(tmp_path / "home" / "a.json", tmp_path / "home") is not None


@pytest.mark.who
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = Path("/etc/passwd")
    if os.geteuid() == 0:
        path = tmp_path / "a.json"
        path.write_text("{}")
        os.chown(path, 65534, 65534)
    with pytest.raises(Unusable, match="belongs to another user"):
        read_own(path, path.parent)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(Unusable, match="is a named pipe, not a regular file"):
        read_own(tmp_path / "a.json", tmp_path)


def test_a_file_that_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{}")
    seen = read_own(path, tmp_path)
    assert seen is not None
    path.write_bytes(b'{"new": 1}')
    with pytest.raises(Unusable, match="changed meanwhile"):
        replace_own(seen, b"[]", tmp_path)
    assert path.read_bytes() == b'{"new": 1}'


def test_a_new_file_is_private(tmp_path: Path) -> None:
    write_own(tmp_path / "a", b"x")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
