"""Names that are not UTF-8: they can be listed and opened, and have one spelling, so that a deny cannot be missed."""

import asyncio
import os
from pathlib import Path

from attacks.granted import CANARY, both_ways, granted, refused, scoped


@both_ways
def test_any_bytes_can_be_a_name(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    name = b"caf\xe9-\xff\xfe"
    Path(os.fsdecode(bytes(root) + b"/" + name)).write_text("OK")
    fs = scoped(root, openat2)
    assert asyncio.run(fs.list()) == [os.fsdecode(name)]
    assert asyncio.run(fs.read(os.fsdecode(name))) == "OK"
    assert asyncio.run(fs.read(bytes(root) + b"/" + name)) == "OK"
    asyncio.run(fs.rename(name, b"\xff"))
    asyncio.run(fs.delete(b"\xff"))
    assert asyncio.run(fs.list()) == []


@both_ways
def test_a_second_spelling_does_not_pass_a_deny(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    denied = root / "café"
    denied.write_text(CANARY)
    attack = f"{root}/caf" + "é".encode().decode("ascii", "surrogateescape")  # the same bytes, another text

    assert attack != str(denied)  # a deny that compares texts misses it
    assert Path(attack).read_text() == CANARY

    fs = scoped(root, openat2, [str(denied)])
    assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(fs.read(denied)) == "PATH_NOT_REACHABLE"
    assert refused(fs.read(os.fsencode(denied))) == "PATH_NOT_REACHABLE"
    assert asyncio.run(fs.list()) == []
