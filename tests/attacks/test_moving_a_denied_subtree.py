"""Renaming the parent of a denied directory gives it a path that no deny names; removing it removes what is denied."""

import asyncio
from pathlib import Path

import pytest

from attacks.granted import CANARY, both_ways, granted, refused, scoped


@both_ways
def test_the_parent_of_what_is_denied_stays_where_it_is(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    secret = root / "project" / "private" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text(CANARY)

    (root / "project").rename(root / "moved")
    assert (root / "moved" / "private" / "key").read_text() == CANARY
    (root / "moved").rename(root / "project")

    fs = scoped(root, openat2, [str(secret.parent)])
    (root / "link").symlink_to("project")
    for path in ("project", "project/private", "project/private/key", "link/private"):
        assert refused(fs.rename(path, "moved")) == "PATH_NOT_REACHABLE"
        assert refused(fs.delete(path)) == "PATH_NOT_REACHABLE"
    (root / "other").mkdir()
    assert refused(fs.rename("other", "project")) == "PATH_NOT_REACHABLE"  # nor is it covered up
    assert secret.read_text() == CANARY


@both_ways
def test_what_is_not_readable_is_not_moved_to_where_it_is(tmp_path: Path, openat2: bool) -> None:
    from attacks.granted import agree
    from guard.grants import grant
    from licet.backends.files.local import LocalFiles
    from licet.guard.handles.files import ScopedFiles

    root = granted(tmp_path)
    (root / "inbox").mkdir()
    (root / "inbox" / "sealed").write_text(CANARY)
    (root / "desk").mkdir()
    rules = [f"fs:write:{root}", f"fs:delete:{root}", f"fs:read:{root}/desk"]
    fs = ScopedFiles(grant(rules, effect="full", ask=agree), LocalFiles(openat2=openat2), str(root))

    (root / "inbox" / "sealed").rename(root / "desk" / "open")
    assert asyncio.run(fs.read("desk/open")) == CANARY
    (root / "desk" / "open").rename(root / "inbox" / "sealed")

    assert refused(fs.rename("inbox/sealed", "desk/open")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename("inbox", "desk/all")) == "PATH_NOT_REACHABLE"
    asyncio.run(fs.rename("inbox/sealed", "inbox/later"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(fs.read("desk/open"))
