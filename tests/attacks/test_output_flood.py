"""A program writes without end: the host's memory grows, or the program blocks and everybody waits."""

import asyncio
import subprocess
import tracemalloc

import pytest

from attacks.programs import programs, spawned

LIMIT = 100_000
FLOOD = "head -c 20000000 /dev/zero"


@pytest.mark.parametrize("stream", ["", " >&2", " | tee /dev/stderr"])
@pytest.mark.sampled(2)
def test_a_flood_is_cut_and_the_program_goes_on(stream: str) -> None:
    attack = subprocess.run(["/bin/sh", "-c", FLOOD + stream], capture_output=True, check=True)
    assert len(attack.stdout) + len(attack.stderr) >= 20_000_000

    handle = programs("process:exec:sh", output_bytes=LIMIT)
    tracemalloc.start()
    try:
        finished = spawned(handle, "sh", ["-c", f"PATH=/usr/bin:/bin; {FLOOD}{stream}; exit 7"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finished.exit_code == 7  # it was read to its end
    assert finished.truncated
    assert max(len(finished.stdout_bytes), len(finished.stderr_bytes)) == LIMIT
    assert peak < 30 * LIMIT  # of 20 MB; asyncio, in debug mode, writes out the result once more


def test_a_flood_without_end_ends_and_others_run_meanwhile() -> None:
    handle = programs("process:exec:yes", output_bytes=LIMIT)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    async def scene() -> None:
        ticking = asyncio.ensure_future(tick())
        finished = await handle.spawn("yes", timeout=1)
        ticking.cancel()
        assert finished.timed_out
        assert finished.truncated
        assert len(finished.stdout_bytes) == LIMIT

    asyncio.run(scene())
    assert ticks > 10
