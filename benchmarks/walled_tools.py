"""Tools that do almost nothing behind walls, so that the walls are measured."""

import time

from licet import SyncContext, tool


@tool(needs=[], effect="read_only", sandbox="restricted")
def fresh(a: int, b: int) -> int:
    """Add two numbers in a process for this call only."""
    return a + b


@tool(needs=[], effect="read_only", sandbox="restricted", reuse=True)
def warm(a: int, b: int) -> int:
    """Add two numbers in a process that serves many calls."""
    return a + b


@tool(needs=["env:read:BENCH"], effect="read_only", sandbox="restricted", reuse=True)
def ask(ctx: SyncContext, many: int) -> float:
    """Ask the host many times; the best time of one question, in nanoseconds."""
    times = []
    for _ in range(many):
        began = time.perf_counter_ns()
        if ctx.env.get("BENCH") != "yes":
            raise ValueError("the wrong answer")
        times.append(time.perf_counter_ns() - began)
    return float(min(times))
