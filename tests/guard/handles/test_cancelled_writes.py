"""A large file is written in a thread, which cannot be stopped: after a cancel it must not replace the file."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.files.local import LocalFiles
from licet.backends.files.memory import MemoryFiles
from licet.guard.handles.files import ScopedFiles
from licet.guard.held_paths import held_paths
from licet.guard.ports import ANY_TIME, Held, Turn

LARGE = b"x" * (2 << 20)
LONG = 60  # seconds: that something hangs, not that it is slow


class Gates:
    """Events at which a write waits for the test."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.over = threading.Event(), threading.Event(), threading.Event()


def gated(kind: type[Any], gates: Gates, *, after: bool) -> type[Any]:
    """A backend that waits at the gates, before or after it has replaced the file."""

    class Gated(kind):  # type: ignore[misc]
        def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
            try:
                if after:
                    super().write(path, data, held, turn)
                gates.begun.set()
                assert gates.go_on.wait(LONG)
                if not after:
                    super().write(path, data, held, turn)
            finally:
                gates.over.set()

    return Gated


async def cancelled(files: ScopedFiles, gates: Gates) -> None:
    writing = asyncio.ensure_future(files.write("f", LARGE))
    assert await asyncio.to_thread(gates.begun.wait, LONG)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    gates.go_on.set()
    assert await asyncio.to_thread(gates.over.wait, LONG)


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[type[Any], str]:
    return request.param, str(tmp_path.resolve()) if request.param is LocalFiles else "/srv"


both = pytest.mark.parametrize("backend", [LocalFiles, MemoryFiles], indirect=True)


@both
@pytest.mark.parametrize("before", [None, b"old"])
@pytest.mark.parametrize("after", [False, True])
def test_a_cancelled_write_replaces_the_file_before_the_cancel_returns_or_never(
    backend: tuple[type[Any], str], before: bytes | None, after: bool
) -> None:
    (kind, place), gates = backend, Gates()
    files = gated(kind, gates, after=after)()
    holds = grant([f"fs:*:{place}"], effect="full")
    held = held_paths(holds.reach.grant)
    if kind is MemoryFiles:
        files.mkdir(place, held)
    if before is not None:
        kind.write(files, f"{place}/f", before, held)
    asyncio.run(cancelled(ScopedFiles(holds, files, place), gates))
    names = ["f"] if after or before is not None else []
    assert files.list(place, held) == names  # and nothing that was on its way
    if names:
        with files.open(f"{place}/f", "rb", held) as file:
            assert file.read() == (LARGE if after else before)


@both
def test_backends_replace_a_file_only_while_holding_the_write_lock(backend: tuple[type[Any], str]) -> None:
    kind, place = backend
    files, held = kind(), held_paths(grant([f"fs:*:{place}"], effect="full").reach.grant)
    if kind is MemoryFiles:
        files.mkdir(place, held)
    seen: list[list[str]] = []

    @contextmanager
    def turn(*, refused: bool) -> Iterator[None]:
        if refused:
            raise LookupError
        yield
        seen.append(files.list(place, held))

    files.write(f"{place}/f", b"old", held, turn(refused=False))
    with pytest.raises(LookupError):
        files.write(f"{place}/f", b"new", held, turn(refused=True))
    assert seen == [["f"]]
    assert files.list(place, held) == ["f"]
    with files.open(f"{place}/f", "rb", held) as file:
        assert file.read() == b"old"
