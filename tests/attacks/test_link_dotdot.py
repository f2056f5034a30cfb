"""`in/link/../secret`: a check of the text sees `in/secret`, the system opens what stands beside the link's target."""

import asyncio
import os
from pathlib import Path

import pytest

from attacks.granted import CANARY, both_ways, granted, scoped


@both_ways
def test_dots_after_a_link_lead_where_the_text_says(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    (root.parent / "out" / "sub").mkdir()
    (root / "link").symlink_to("../out/sub")
    attack = f"{root}/link/../secret"

    assert os.path.normpath(attack).startswith(f"{root}/")  # the check of the text passes
    assert Path(attack).read_text() == CANARY  # and the attack works

    fs = scoped(root, openat2)
    with pytest.raises(FileNotFoundError):
        asyncio.run(fs.read(attack))
    asyncio.run(fs.write(attack, "mine"))
    assert (root / "secret").read_text() == "mine"
    assert (root.parent / "out" / "secret").read_text() == CANARY
