"""A hard link is a second name: writing through it changes a file that no grant names, and no path shows it."""

import asyncio
import os
from pathlib import Path

from attacks.granted import CANARY, both_ways, granted, refused, scoped


@both_ways
def test_a_file_with_another_name_is_not_written(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    secret = root.parent / "out" / "secret"
    os.link(secret, root / "hard")

    (root / "hard").write_text("overwritten")
    assert secret.read_text() == "overwritten"
    secret.write_text(CANARY)

    fs = scoped(root, openat2)
    assert refused(fs.write("hard", "x")) == "PATH_NOT_REACHABLE"
    for mode in ("w", "a", "r+"):
        assert refused(fs.open("hard", mode)) == "PATH_NOT_REACHABLE"
    assert secret.read_text() == CANARY


@both_ways
def test_a_denied_file_is_not_read_under_another_name(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    (root / ".env").write_text(CANARY)
    os.link(root / ".env", root / "notes")
    assert (root / "notes").read_text() == CANARY

    assert asyncio.run(scoped(root, openat2).read("notes")) == CANARY  # nothing denies it here
    assert refused(scoped(root, openat2, [f"{root}/.env"]).read("notes")) == "PATH_NOT_REACHABLE"
