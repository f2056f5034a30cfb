"""A path object that answers differently the second time: checked as one path, opened as another."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from attacks.granted import CANARY, both_ways, granted, scoped


class TwoFaced:
    """Answers with each of some paths in turn, and keeps to the last."""

    def __init__(self, *paths: Path) -> None:
        self.asked = 0
        self._paths: Iterator[str] = iter([*map(str, paths), *([str(paths[-1])] * 100)])

    def __fspath__(self) -> str:
        self.asked += 1
        return next(self._paths)


@both_ways
def test_a_path_is_asked_for_once(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    secret = root.parent / "out" / "secret"
    (root / "ok").write_text("OK")

    attack = TwoFaced(root / "ok", secret)
    assert os.fspath(attack).startswith(f"{root}/")  # the check
    with open(attack) as file:
        assert file.read() == CANARY

    fs = scoped(root, openat2)
    for mode in ("r", "rb", "r+"):
        attack = TwoFaced(root / "ok", secret)
        with asyncio.run(fs.open(attack, mode)) as file:
            assert file.read() in ("OK", b"OK")
        assert attack.asked == 1
    attack = TwoFaced(root / "ok", secret)
    assert asyncio.run(fs.read(attack)) == "OK"
    asyncio.run(fs.write(TwoFaced(root / "ok", secret), "new"))
    asyncio.run(fs.delete(TwoFaced(root / "ok", secret)))
    assert attack.asked == 1
    assert secret.read_text() == CANARY
    assert not (root / "ok").exists()
