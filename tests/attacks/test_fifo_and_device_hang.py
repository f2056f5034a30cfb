"""Reading a FIFO waits for ever, a device never ends: neither is a file, and neither makes a call wait."""

import os
import threading
from pathlib import Path

import pytest

from attacks.granted import both_ways, granted, refused, scoped


@both_ways
def test_a_fifo_is_refused_at_once(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("fifo")

    stuck = threading.Thread(target=(root / "fifo").read_bytes, daemon=True)
    stuck.start()
    stuck.join(0.2)
    assert stuck.is_alive()
    (root / "fifo").write_bytes(b"")  # lets it go
    stuck.join()

    fs = scoped(root, openat2)
    for path in ("fifo", "link"):
        for act in (fs.read(path), fs.write(path, "x"), fs.open(path, "rb"), fs.open(path, "ab"), fs.stat(path)):
            assert refused(act) == "PATH_NOT_REACHABLE"


@both_ways
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom", "/dev/ptmx"])
def test_a_device_is_refused_whatever_the_grant(tmp_path: Path, openat2: bool, device: str) -> None:
    root = granted(tmp_path)
    (root / "link").symlink_to(device)
    with (root / "link").open("rb", buffering=0):  # opens, and would be read without end
        pass

    assert refused(scoped(root, openat2).read("link")) == "PATH_NOT_REACHABLE"
    for grant in ("*", "/dev", device):
        fs = scoped(grant, openat2, workdir=root)
        assert refused(fs.read(device)) == "PATH_NOT_REACHABLE"
        assert refused(fs.write(device, "x")) == "PATH_NOT_REACHABLE"
