"""A granted directory with a secret beside it: where the attacks on files take place."""

import asyncio
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet import Refused, Use
from licet.backends.files.local import LocalFiles
from licet.guard.handles.files import ScopedFiles
from licet.ports import Approval

CANARY = "CANARY"
both_ways = pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])


async def agree(approval: Approval, use: Use) -> None:
    """A person who agrees to everything: what is refused then is refused by the guard."""


def granted(place: Path) -> Path:
    """A directory `in`, and beside it `out/secret`, which nothing grants."""
    place = place.resolve()
    (place / "in").mkdir()
    (place / "out").mkdir()
    (place / "out" / "secret").write_text(CANARY)
    return place / "in"


def scoped(root: Path | str, openat2: bool, deny: Iterable[str] = (), workdir: Path | None = None) -> ScopedFiles:
    """The files of a call that holds everything below a root, with some paths denied."""
    holds = grant([f"fs:*:{root}"], deny=[f"fs:*:{path}" for path in deny], effect="full", ask=agree)
    return ScopedFiles(holds, LocalFiles(openat2=openat2), str(workdir or root))


class Place:
    """Such a directory, and the handles of calls that hold it; tests get one for each way to open files."""

    def __init__(self, place: Path, openat2: bool) -> None:
        self.root, self._openat2 = granted(place), openat2
        self.secret = self.root.parent / "out" / "secret"

    def files(self, deny: Iterable[str] = (), root: Path | str | None = None) -> ScopedFiles:
        """The files of a call that holds everything below the directory, or below another root, and starts in it."""
        return scoped(root or self.root, self._openat2, deny, self.root)


def refused(act: Awaitable[Any]) -> str:
    """The code of the refusal that an act ends in."""

    async def run() -> None:
        await act

    with pytest.raises(Refused) as refusal:
        asyncio.run(run())
    return refusal.value.code
