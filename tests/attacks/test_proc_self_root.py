"""`/proc/self/root` and its like are links that no text shows: whoever follows them is anywhere."""

import os
from pathlib import Path

import pytest

from attacks.granted import CANARY, both_ways, granted, refused, scoped


@both_ways
@pytest.mark.parametrize(
    "door", ["/proc/self/root", "/proc/{pid}/root", "/proc/thread-self/root", "/proc/self/cwd/{up}"]
)
def test_a_link_of_the_kernel_is_no_way_out(tmp_path: Path, openat2: bool, door: str) -> None:
    root = granted(tmp_path)
    secret = root.parent / "out" / "secret"
    door = door.format(pid=os.getpid(), up="/".join([".."] * 40))
    attack = f"{door}{secret}"
    (root / "link").symlink_to(door)

    assert Path(attack).read_text() == CANARY
    assert (root / "link" / str(secret)[1:]).read_text() == CANARY

    deny = [str(root.parent / "out")]
    for fs in (scoped(root, openat2), scoped("/proc", openat2), scoped("*", openat2, deny)):
        assert refused(fs.read(f"{root}/link{secret}")) == "PATH_NOT_REACHABLE"
        assert refused(fs.write(f"{root}/link{secret}", "x")) == "PATH_NOT_REACHABLE"
        if ".." not in attack:  # resolved in the text, dots lead to the secret itself, which is refused as such
            assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert secret.read_text() == CANARY


@both_ways
def test_the_environment_of_this_process_is_not_part_of_everything(openat2: bool) -> None:
    attack = f"/proc/{os.getpid()}/environ"
    assert Path(attack).read_bytes()
    assert refused(scoped("*", openat2).read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(scoped("*", openat2).read("/proc/self/mem")) == "PATH_NOT_REACHABLE"
