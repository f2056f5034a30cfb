"""`gate.warm()`: workers are there before the first call."""

import asyncio
from pathlib import Path

from licet.sandbox.workers import pool
from sandbox import ending_tools as ending
from sandbox import printing_tools as printing
from sandbox.levels import call, gate, needs_walls


def test_workers_of_all_walled_tools_are_started(tmp_path: Path) -> None:
    needs_walls()
    pool.close_workers()
    at = gate(tmp_path, "restricted", ending.leave, printing.again)
    asyncio.run(at.warm())
    parked = {prepared.tool.name for prepared, waiting in pool.pool._parked.items() if waiting}
    assert parked == {"leave", "again"}
    assert call(at, "again", {"text": "x"}).ok


def test_a_gate_without_walled_tools_starts_nothing(tmp_path: Path) -> None:
    pool.close_workers()
    asyncio.run(gate(tmp_path, "native", printing.again).warm())
    assert not pool.pool._parked
