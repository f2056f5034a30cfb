"""A host whose own loop is trio's: calls run in threads beside it, and a session says why it cannot be used there."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
import trio

from licet import Result, run
from sandbox import wild_tools as wild
from sandbox.growth_tools import again
from sandbox.levels import call, gate, needs_walls


@pytest.mark.parametrize("level", ["native", "restricted", "isolated"])
def test_tools_run_beside_a_trio_loop(tmp_path: Path, level: str) -> None:
    if level != "native":
        needs_walls()
    at = gate(tmp_path, level, again, wild.count)
    results: list[Result] = []

    async def one(number: int) -> None:
        asked = partial(run, at, "again", {"text": str(number)}, session=f"s-{number}")
        results.append(await trio.to_thread.run_sync(asked))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(one, number)
        results.append(run(at, "count"))  # it holds up the loop, and works

    trio.run(main)
    *several, last = results
    assert sorted(result.unwrap() for result in several) == [f"{number}None" for number in range(4)]
    assert last.ok
    assert call(at, "count").ok  # and asyncio goes on as before


def test_a_session_under_trio_says_what_to_do_instead(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", wild.count)

    async def entered() -> None:
        async with at.session("s"):
            pass

    async def called() -> None:
        await at.session("s").call("count")

    for attempt in (entered, called):
        with pytest.raises(RuntimeError, match=r"sessions need asyncio.*`licet.run` in a thread"):
            trio.run(attempt)
    assert asyncio.run(at.session("s").call("count")).ok
