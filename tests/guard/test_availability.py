"""Availability checks that hang: a call times out, and `available` leaves the tool out."""

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


def test_a_call_times_out_if_its_availability_check_hangs(tmp_path: Path) -> None:
    result = call(gate(tmp_path, waiting, limits={"wall_seconds": 1}), "waiting")
    assert (result.code, result.reason) == ("timed_out", "LIMIT_TIME")
    assert result.error == "LIMIT_TIME: the availability check of waiting took longer than 1 seconds"
    assert result.layers == ()  # it has not run


def test_a_tool_whose_availability_check_hangs_is_not_listed(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, ready, limits={"wall_seconds": 1})

    async def offered() -> list[str]:
        async with at.session("s") as session:
            return await asyncio.wait_for(session.available(), 60)

    assert asyncio.run(offered()) == ["ready"]


def test_listing_the_tools_can_be_cancelled(tmp_path: Path) -> None:
    at = gate(tmp_path, waiting, limits={"wall_seconds": 600})

    async def stopped() -> bool:
        async with at.session("s") as session:
            asking = asyncio.create_task(session.available())
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            return asking.cancelled()

    assert asyncio.run(stopped())
