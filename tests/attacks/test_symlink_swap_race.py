"""A directory and a link swap places while a path is opened: whoever checks first and opens then loses the race."""

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from attacks.granted import CANARY, both_ways, granted, scoped
from effort import LONG
from licet import Refused

ATTEMPTS = 200_000 if LONG else 10_000
OF_EACH = 100  # attempts that must meet each side of a race
PATIENCE = 300.0  # seconds for what comes soon on a machine that has time

SWAPPER = """
import ctypes, sys
swap = ctypes.CDLL(None, use_errno=True).renameat2
one, two = (path.encode() for path in sys.argv[1:])
if swap(-100, one, -100, two, 2):
    sys.exit(f"renameat2: {ctypes.get_errno()}")
print("swapping", flush=True)
while True:
    swap(-100, one, -100, two, 2)
"""

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "renameat2"), reason="names can be swapped in one step on Linux only"
)


@contextmanager
def swapping(one: Path, two: Path) -> Iterator[None]:
    """Another process that keeps swapping two names."""
    command = [sys.executable, "-I", "-S", "-c", SWAPPER, str(one), str(two)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"swapping\n"
            yield
        finally:
            child.kill()


def world(tmp_path: Path) -> Path:
    root = granted(tmp_path)
    (root / "dir").mkdir()
    (root / "dir" / "secret").write_text("inside")
    (root / "link").symlink_to("../out")
    (root / "via").symlink_to("dir")
    return root


def naive(root: Path) -> Callable[[], str]:
    def read() -> str:
        path = os.path.realpath(root / "dir" / "secret")
        if not path.startswith(f"{root}/"):
            raise PermissionError(path)
        return Path(path).read_text()

    return read


def attempts(read: Callable[[], str], over: Callable[[Counter[str]], bool]) -> Counter[str]:
    """What comes of reading again and again until it is enough: texts and errors, counted."""
    seen, end = Counter[str](), time.monotonic() + PATIENCE
    while not over(seen) and time.monotonic() < end:
        for _ in range(50):
            try:
                seen[read()] += 1
            except (OSError, Refused) as error:
                seen[type(error).__name__] += 1
    return seen


def both_sides(seen: Counter[str], done: str, most: int) -> bool:
    return seen.total() >= most and seen[done] > OF_EACH and seen["Refused"] > OF_EACH


def test_a_check_before_opening_loses_the_race(tmp_path: Path) -> None:
    root = world(tmp_path)
    with swapping(root / "dir", root / "link"):
        assert attempts(naive(root), lambda seen: seen[CANARY] >= 20)[CANARY] >= 20


@both_ways
@pytest.mark.sampled(1)
def test_nothing_escapes_while_names_are_swapped(tmp_path: Path, openat2: bool) -> None:
    root = world(tmp_path)
    fs = scoped(root, openat2)
    paths = cycle(["dir/secret", "via/secret"])  # the second through a link that is as it should be

    async def race() -> Counter[str]:
        def read() -> str:
            act = fs.read(next(paths))
            try:
                act.send(None)  # a small read never waits, so it needs no turn of the loop
            except StopIteration as done:
                return str(done.value)
            raise AssertionError("a small read waited")

        return attempts(read, lambda seen: both_sides(seen, "inside", ATTEMPTS))

    with swapping(root / "dir", root / "link"):
        seen = asyncio.run(race())
    assert CANARY not in seen
    # Both sides of the race were really met.
    assert seen["inside"] > 100
    assert seen["Refused"] > 100


@both_ways
@pytest.mark.sampled(1)
def test_nothing_is_written_outside_while_names_are_swapped(tmp_path: Path, openat2: bool) -> None:
    root = world(tmp_path)
    fs = scoped(root, openat2)

    async def race() -> Counter[str]:
        seen, end = Counter[str](), time.monotonic() + PATIENCE
        while not both_sides(seen, "done", ATTEMPTS // 5) and time.monotonic() < end:
            acts = (fs.write("dir/new", "x"), fs.open("via/new", "w"), fs.mkdir("dir/made"), fs.delete("via/secret"))
            for act in acts:
                try:
                    file = await act
                    if file is not None:
                        file.close()
                    found = "done"
                except (OSError, Refused) as error:
                    found = type(error).__name__
                seen[found] += 1
        return seen

    with swapping(root / "dir", root / "link"):
        seen = asyncio.run(race())
    outside = root.parent / "out"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == CANARY
    assert seen["done"] > 100
    assert seen["Refused"] > 100
