"""A write through a link that leads to nothing creates the file there: outside."""

from pathlib import Path

import pytest

from attacks.granted import both_ways, granted, refused, scoped


@both_ways
@pytest.mark.parametrize("to", ["../out/new", "{out}/new"])
def test_nothing_is_created_through_a_dangling_link(tmp_path: Path, openat2: bool, to: str) -> None:
    root = granted(tmp_path)
    outside = root.parent / "out" / "new"
    (root / "link").symlink_to(to.format(out=outside.parent))

    (root / "link").write_text("x")
    assert outside.read_text() == "x"
    outside.unlink()

    fs = scoped(root, openat2)
    assert refused(fs.write("link", "x")) == "PATH_NOT_REACHABLE"
    for mode in ("w", "a", "x", "r+"):
        assert refused(fs.open("link", mode)) == "PATH_NOT_REACHABLE"
    assert not outside.exists()
    assert (root / "link").is_symlink()
