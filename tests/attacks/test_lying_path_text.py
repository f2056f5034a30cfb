"""A subclass of `str` answers the check as one path and the system as another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from attacks.granted import CANARY, both_ways, granted, refused, scoped
from core.liars import BrokenText, FalseText, Liar, LyingBytes
from licet.errors import Refused


@both_ways
def test_only_the_characters_of_a_text_count(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    secret = root.parent / "out" / "secret"
    (root / "ok").write_text("OK")
    attack = Liar(str(secret), f"{root}/ok")

    assert attack.startswith(f"{root}/")  # the check of the text passes
    with open(attack) as file:
        assert file.read() == CANARY

    fs = scoped(root, openat2)
    assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(fs.write(attack, "x")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename(f"{root}/ok", attack)) == "PATH_NOT_REACHABLE"
    assert asyncio.run(fs.read(Liar(f"{root}/ok", str(secret)))) == "OK"  # what it is, not what it claims
    assert asyncio.run(fs.read(BrokenText(f"{root}/ok"))) == "OK"
    assert secret.read_text() == CANARY


@both_ways
@pytest.mark.parametrize("kind", [LyingBytes, FalseText])
def test_what_only_looks_like_text_is_refused(tmp_path: Path, openat2: bool, kind: type) -> None:
    root = granted(tmp_path)
    attack: Any = kind() if kind is FalseText else kind(bytes(root.parent / "out" / "secret"))
    with pytest.raises(Refused):
        asyncio.run(scoped(root, openat2).read(attack))


@both_ways
def test_what_is_written_are_the_characters_of_a_text_too(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    asyncio.run(scoped(root, openat2).write("f", Liar("true", "claimed")))
    assert (root / "f").read_text() == "true"
