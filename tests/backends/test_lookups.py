"""Lookups of names: they hang in their own threads, a limited number at once, and block no other call."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from licet.backends.http import HttpClient, Lookups


class Silent:
    """A resolver that answers only when the test releases it, and counts the lookups."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self.daemons: list[bool] = []

    def __call__(self, host: str, port: int, *_: Any, **kind: Any) -> Any:
        self.asked.append(host)
        self.daemons.append(threading.current_thread().daemon)
        self.answers.wait(120)
        return [(0, 0, 0, "", (f"{host} found", port))]


@pytest.fixture
def silent() -> Iterator[Silent]:
    resolver = Silent()
    yield resolver
    resolver.answers.set()


async def until(done: Any) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


def test_hanging_lookups_leave_the_threads_of_others_alone(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", silent)

    async def main() -> str:
        client = HttpClient()
        lookups = [asyncio.create_task(client.resolve(f"h{number}.test", 80)) for number in range(40)]
        await until(lambda: len(silent.asked) >= 6)
        async with asyncio.timeout(60):
            said = await asyncio.to_thread(lambda: "read")
        silent.answers.set()
        assert [await one for one in lookups] == [(f"h{number}.test found",) for number in range(40)]
        return said

    assert asyncio.run(main()) == "read"
    assert all(silent.daemons)  # so that a process can end while a lookup hangs


def test_only_so_many_hang_at_once_and_the_others_wait(silent: Silent) -> None:
    lookups = Lookups(most=3, ask=silent)

    async def main() -> None:
        tasks = [asyncio.create_task(lookups.find(name, 80)) for name in "abcde"]
        await until(lambda: len(silent.asked) == 3)
        tasks[4].cancel()
        await asyncio.wait([tasks[4]])
        silent.answers.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(silent.asked) == ["a", "b", "c", "d"]  # no call waited for the last one
        assert (await lookups.find("f", 80))[0][4] == ("f found", 80)
        await until(lambda: not any(thread.name == "licet-lookup" for thread in threading.enumerate()))

    asyncio.run(main())


def test_a_failed_lookup_is_raised_and_its_thread_continues() -> None:
    def ask(host: str, port: int, **kind: Any) -> Any:
        if host == "bad":
            raise UnicodeError
        return host

    lookups = Lookups(most=1, ask=ask)

    async def main() -> list[Any]:
        return await asyncio.gather(*(lookups.find(name, 1) for name in ("bad", "good")), return_exceptions=True)

    bad, good = asyncio.run(main())
    assert (type(bad), good) == (UnicodeError, "good")


def test_abandoned_lookups_leave_threads_for_other_sessions(silent: Silent) -> None:
    """A cancelled call does not end its lookups: they occupy threads of their own session only."""

    def ask(host: str, port: int, **kind: Any) -> Any:
        return silent(host, port) if host.startswith("hangs") else [(0, 0, 0, "", (f"{host} found", port))]

    lookups = Lookups(most=6, ask=ask, most_of_one=4)

    async def main() -> None:
        for call in range(3):
            tasks = [asyncio.create_task(lookups.find(f"hangs-{call}-{n}", 80, "hostile")) for n in range(10)]
            await until(lambda: len(silent.asked) == 4)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        async with asyncio.timeout(60):
            for name in "abc":
                assert (await lookups.find(name, 80, "honest"))[0][4] == (f"{name} found", 80)
        late = asyncio.create_task(lookups.find("d", 80, "hostile"))
        await asyncio.sleep(0.05)
        assert not late.done()
        silent.answers.set()
        assert (await late)[0][4] == ("d found", 80)
        assert len(silent.asked) == 4  # lookups that waited behind them were dropped with their call

    asyncio.run(main())
