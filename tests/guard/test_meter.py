"""The meter of a call: memory and files are counted until they are given back, and work waits for free files."""

import asyncio
import gc
import tempfile
import weakref
from contextlib import suppress
from typing import Any

import pytest

from guard.grants import grant
from licet.core.algebra.rules import Use
from licet.errors import Refused
from licet.guard.meter import Exceeded, Meter
from licet.sandbox.kernel.entry_count import EntryCount

MB = 1 << 20


def test_memory_counts_until_it_is_given_back() -> None:
    meter = Meter({"host_memory_mb": 1})
    with meter.share() as share:
        share.take(MB)
        with pytest.raises(Exceeded) as over:
            meter.take_memory(1)
        assert str(over.value).endswith("more than 1 MB for it at once (`limits.host_memory_mb`)")
        assert over.value.reason == "LIMIT_HOST_MEMORY"
        assert "`limits.host_memory_mb`" in over.value.fix
        with pytest.raises(Exceeded):
            share.take(1)
    assert meter.memory == 0
    meter.take_memory(MB)


def test_different_paths_count_once_each() -> None:
    meter = Meter({"written_paths": 4})
    for _ in range(3):
        meter.take_path("/srv/a")
        meter.take_path("/srv/b")
    meter.take_directories("/srv/new")  # and /srv
    meter.take_directories("/srv/new")
    with pytest.raises(Exceeded) as over:
        meter.take_path("/srv/c")
    assert over.value.reason == "LIMIT_PATHS"
    assert str(over.value) == "this call would write more than 4 different paths (`limits.written_paths`)"
    assert (
        over.value.fix == "set a higher `limits.written_paths` under `capabilities`, or write fewer files in one call"
    )
    meter.take_path("/srv/a")


def test_files_of_a_tool_count_while_they_are_open() -> None:
    meter = Meter({"host_files": 16})
    kept: list[Any] = []
    for _ in range(100):
        meter.check_files(1)
        with tempfile.TemporaryFile() as file:
            meter.opened(file)
    for _ in range(16):
        meter.check_files(1)
        kept.append(tempfile.TemporaryFile())  # noqa: SIM115
        meter.opened(kept[-1])
    with pytest.raises(Exceeded, match="more than 16 open files"):
        meter.check_files(1)
    kept.pop().close()
    meter.check_files(1)
    for file in kept:
        file.close()


def test_work_that_ends_by_itself_waits_for_free_files() -> None:
    meter, most, now = Meter({"host_files": 16}), 0, 0

    async def work() -> None:
        nonlocal most, now
        async with meter.files(4):
            now += 4
            most = max(most, now)
            try:
                await asyncio.sleep(0)
            finally:
                now -= 4

    async def main() -> None:
        cancelled = asyncio.ensure_future(work())
        tasks = [asyncio.ensure_future(work()) for _ in range(50)]
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(*tasks, cancelled, return_exceptions=True)
        assert all(task.exception() is None for task in tasks)

    asyncio.run(main())
    assert most == 16
    meter.take_files(16)  # all of it was given back


def test_work_does_not_wait_for_files_that_the_tool_itself_holds() -> None:
    meter = Meter({"host_files": 16})
    kept: list[Any] = [tempfile.TemporaryFile() for _ in range(14)]  # noqa: SIM115
    for file in kept:
        meter.opened(file)

    async def main() -> None:
        async with meter.files(2):
            pass
        with pytest.raises(Exceeded):
            async with meter.files(4):
                pass

    asyncio.run(main())
    for file in kept:
        file.close()


def test_headers_are_counted() -> None:
    Meter().check_headers(256)
    with pytest.raises(Exceeded, match="more than 256 header lines"):
        Meter().check_headers(257)


class Held:
    """Something that a handle holds while its use is refused."""


@pytest.mark.parametrize("refusal", ["check", "refuse"])
def test_a_refusal_keeps_nothing_that_its_handle_held(refusal: str) -> None:
    used = Use("fs:read:/srv/x")

    def handle() -> weakref.ref[Held]:
        held = Held()
        with suppress(Refused):
            if refusal == "check":
                grant().check(used)
            else:
                grant().refuse("LIMIT_SIZE", "too large", used)
        return weakref.ref(held)

    gc.disable()
    try:
        assert handle()() is None
    finally:
        gc.enable()


def test_paths_count_together_with_processes_and_are_remembered_when_these_have_ended() -> None:
    meter = Meter({"written_paths": 4})
    meter.take_path("/srv/a")
    first = meter.share_count(lambda: EntryCount(4))
    assert meter.share_count(lambda: pytest.fail("there is one")) is first
    assert first.take()
    meter.take_path("/srv/b")
    meter.unshare_count()
    assert first.take()
    meter.unshare_count()
    assert first.file == -1  # closed
    with pytest.raises(Exceeded):
        meter.take_path("/srv/c")
    last = meter.share_count(lambda: EntryCount(4))
    assert not last.take()
    meter.unshare_count()
