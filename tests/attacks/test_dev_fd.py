"""`/dev/fd/N` opens what this process has open, whoever granted it and wherever it is."""

from pathlib import Path

import pytest

from attacks.granted import CANARY, both_ways, granted, refused, scoped


@both_ways
@pytest.mark.parametrize("door", ["/dev/fd", "/proc/self/fd"])
def test_open_files_are_no_files_of_a_grant(tmp_path: Path, openat2: bool, door: str) -> None:
    root = granted(tmp_path)
    with (root.parent / "out" / "secret").open() as mine:
        attack = f"{door}/{mine.fileno()}"
        (root / "link").symlink_to(attack)

        assert Path(attack).read_text() == CANARY
        assert (root / "link").read_text() == CANARY

        assert refused(scoped(root, openat2).read("link")) == "PATH_NOT_REACHABLE"
        for grant in ("*", "/dev", "/proc"):
            assert refused(scoped(grant, openat2, workdir=root).read(attack)) == "PATH_NOT_REACHABLE"
            assert refused(scoped(grant, openat2, workdir=root).stat(attack)) == "PATH_NOT_REACHABLE"
