"""Checks of availability that never answer: a call ends in time, and a list of tools is made without them."""

import asyncio
from pathlib import Path
from typing import Any

from guard.gates import call, gate
from licet import tool


async def forever(here: Any) -> bool:
    await asyncio.Event().wait()
    return True


@tool(needs=[], effect="read_only", sandbox="native", available=forever)
async def waiting() -> str:
    """Say that it ran."""
    return "ran"


@tool(needs=[], effect="read_only", sandbox="native")
async def ready() -> str:
    """Say that it ran."""
    return "ran"


def test_a_call_whose_check_hangs_has_timed_out(tmp_path: Path) -> None:
    result = call(gate(tmp_path, waiting, limits={"wall_seconds": 1}), "waiting")
    assert (result.code, result.reason) == ("timed_out", "LIMIT_TIME")
    assert result.error == "LIMIT_TIME: waiting looked around for longer than 1 seconds"
    assert result.layers == ()  # it has not run


def test_a_check_that_hangs_counts_as_no(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, ready, limits={"wall_seconds": 1})

    async def offered() -> list[str]:
        async with at.session("s") as session:
            return await asyncio.wait_for(session.available(), 60)

    assert asyncio.run(offered()) == ["ready"]


def test_who_asks_for_the_list_can_still_be_cancelled(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, limits={"wall_seconds": 600})

    async def stopped() -> bool:
        async with at.session("s") as session:
            asking = asyncio.create_task(session.available())
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            return asking.cancelled()

    assert asyncio.run(stopped())
