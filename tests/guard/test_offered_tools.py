"""Which tools models are shown: not those whose own check says, when a list is made, that they cannot run here."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import enter_project, run
from guard.gates import call, gate
from licet import Gate, tool
from licet.adapters import anthropic_tools, openai_tools
from licet.adapters.framework_calls import GateTools

IS_HERE = {"switched": True}
BLOCKED = threading.Event()
STARTED: list[int] = []


def switched(here: Any) -> bool:
    return IS_HERE["switched"]


def raises(here: Any) -> bool:
    raise KeyError("no such thing")


def leaves(here: Any) -> bool:
    raise SystemExit(3)


def blocks(here: Any) -> bool:
    STARTED.append(1)
    BLOCKED.wait()
    return True


async def hangs(here: Any) -> bool:
    await asyncio.Event().wait()
    return True


def no_answer(here: Any) -> Any:
    return "yes"


async def is_cancelled(here: Any) -> bool:
    raise asyncio.CancelledError


async def awaits_what_was_cancelled(here: Any) -> bool:
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled
    return True


async def cancels_itself(here: Any) -> bool:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return True


async def cancels_itself_and_waits(here: Any) -> bool:
    await cancels_itself(here)
    await asyncio.Event().wait()
    return True


class Unusual(BaseException):
    """No `Exception`."""


def raises_what_is_no_exception(here: Any) -> bool:
    raise Unusual


async def raises_a_group(here: Any) -> bool:
    raise BaseExceptionGroup("several", [Unusual()])


async def raises_the_end_of_a_generator(here: Any) -> bool:
    raise GeneratorExit


def raises_the_end_of_an_iterator(here: Any) -> bool:
    raise StopIteration


async def swallows_cancels(here: Any) -> bool:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def made(check: Callable[[Any], Any] | None, name: str) -> Any:
    @tool(needs=[], effect="read_only", sandbox="native", available=check, name=name)
    async def run() -> str:
        """Say that it ran."""
        return "ran"

    return run


CHECKS = {
    "switched": (switched, "its availability check says that it cannot run here"),
    "raises": (raises, "its availability check raised KeyError"),
    "leaves": (leaves, "its availability check raised SystemExit"),
    "blocks": (blocks, "its availability check took longer than 1 seconds"),
    "hangs": (hangs, "its availability check took longer than 1 seconds"),
    **{
        check.__name__: (check, f"its availability check raised {error}")
        for check, error in (
            (is_cancelled, "CancelledError"),
            (awaits_what_was_cancelled, "CancelledError"),
            (cancels_itself, "CancelledError"),
            (cancels_itself_and_waits, "CancelledError"),
            (raises_what_is_no_exception, "Unusual"),
            (raises_a_group, "BaseExceptionGroup"),
            (raises_the_end_of_a_generator, "GeneratorExit"),
            (raises_the_end_of_an_iterator, "RuntimeError"),
        )
    },
    "swallows_cancels": (swallows_cancels, "its availability check took longer than 1 seconds"),
    "no_answer": (
        no_answer,
        "its availability check says that it cannot run here: it returned `str`, and not True",
    ),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    IS_HERE["switched"] = False
    BLOCKED.clear()
    STARTED.clear()
    yield
    BLOCKED.set()


@pytest.fixture
def at(tmp_path: Path) -> Gate:
    tools = [made(check, name) for name, (check, _) in CHECKS.items()]
    return gate(tmp_path, *tools, made(None, "plain"), limits={"wall_seconds": 1})


def test_only_tools_that_can_run_here_are_shown(at: Gate, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "licet.adapters"):
        shown = [one["function"]["name"] for one in openai_tools(at, session="s")]
    assert shown == ["plain"]
    assert time.monotonic() - began < 30  # all checks at once, each for a second
    assert set(caplog.messages) == {f"{name} is not shown to the model: {why}" for name, (_, why) in CHECKS.items()}


def test_a_tool_that_can_run_later_is_in_later_lists(at: Gate) -> None:
    IS_HERE["switched"] = True
    assert [one["name"] for one in anthropic_tools(at, session="s")] == ["plain", "switched"]


def test_a_check_that_blocks_is_started_once_and_keeps_no_call_waiting(at: Gate) -> None:
    async def scene() -> tuple[list[str], str]:
        async with at.session("s") as session:
            whys = [(await session.unavailable())["blocks"] for _ in range(3)]
            result = await session.call("blocks")
        return whys, result.error

    whys, refused = asyncio.run(scene())
    assert whys == [CHECKS["blocks"][1], *["its availability check blocks, and has not returned yet"] * 2]
    assert refused == "TOOL_NOT_AVAILABLE: the availability check of blocks blocks: the tool cannot run here"
    assert len(STARTED) == 1


def test_a_check_that_blocked_is_asked_again_when_it_has_returned(at: Gate) -> None:
    async def scene() -> list[str]:
        async with at.session("s") as session:
            await session.unavailable()
            BLOCKED.set()
            while at.checks.is_blocked(blocks):
                await asyncio.sleep(0.01)
            return await session.available()

    assert asyncio.run(scene()) == ["blocks", "plain"]


@pytest.mark.parametrize("name", [one for one in CHECKS if one not in ("blocks", "hangs", "swallows_cancels")])
def test_a_call_is_refused_whatever_the_check_does_to_its_task(at: Gate, name: str) -> None:
    result = call(at, name)
    assert result.error == f"TOOL_NOT_AVAILABLE: {name} cannot run here: {CHECKS[name][1]}"


def test_a_check_that_swallows_each_cancel_ends_with_the_time_of_the_call(at: Gate) -> None:
    result = call(at, "swallows_cancels")
    assert result.error == "LIMIT_TIME: the availability check of swallows_cancels took longer than 1 seconds"


@pytest.mark.parametrize("name", ["hangs", "swallows_cancels"])
def test_a_cancel_from_outside_stays_a_cancel(at: Gate, name: str) -> None:
    async def scene() -> tuple[bool, bool]:
        async with at.session("s") as session:
            asking = [asyncio.create_task(session.unavailable()), asyncio.create_task(session.call(name))]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            return asking[0].cancelled(), asking[1].cancelled()

    assert asyncio.run(scene()) == (True, True)


async def limits_itself(here: Any) -> bool:
    for _ in range(3):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
    return True


def test_a_check_may_use_limits_of_its_own(tmp_path: Path) -> None:
    at = gate(tmp_path, made(limits_itself, "patient"))

    async def scene() -> tuple[list[str], bool]:
        async with at.session("s") as session:
            return await session.available(), (await session.call("patient")).ok

    assert asyncio.run(scene()) == (["patient"], True)


def test_a_framework_that_asks_before_each_request_is_told_what_can_run_now(at: Gate) -> None:
    async def scene() -> list[bool]:
        tools = GateTools(at, "s")
        found = [await tools.is_offered("switched")]
        IS_HERE["switched"] = True
        return [*found, await tools.is_offered("switched"), await tools.is_offered("plain")]

    assert asyncio.run(scene()) == [False, True, True]
    assert [one.name for one in GateTools(at, "t").offered(checked=False)] == sorted([*CHECKS, "plain"])


DOOR = '''from licet import tool


@tool(needs=[], effect="read_only", sandbox="native", available=lambda here: False)
def walk() -> str:
    """Walk through the door."""


@tool(needs=[], effect="read_only", sandbox="native", available=None)
def look() -> str:
    """Look at the door."""


@tool(needs=[], effect="read_only", sandbox="native", available=True)
def knock() -> str:
    """Knock at the door."""


@tool(needs=[], effect="read_only", sandbox="native", available=False)
def ring() -> str:
    """Ring the bell."""
'''


def test_reviewers_are_shown_a_tool_that_cannot_run_here_and_that_this_depends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_project(tmp_path, monkeypatch)
    Path("door.py").write_text(DOOR)
    tools = ", ".join(f'{name}: {{from: "door:{name}"}}' for name in ("walk", "look", "knock", "ring"))
    Path("a.yaml").write_text(
        f"agent: a\ntools: {{{tools}}}\n"
        "capabilities: {tools: [walk, look, knock, ring], native: [walk, look, knock, ring]}\n"
    )
    listed = {one["name"]: one for one in json.loads(run("surface", "a.yaml", "--json").stdout)["tools"]}
    assert [name for name in listed if "conditional" in listed[name]] == ["ring", "walk"]
    assert run("surface", "a.yaml").stdout.count("shown if `available`") == 2
    assert "it is declared with `available=False`" in run("call", "a.yaml", "ring", code=None).output
    Path("door.py").write_text(DOOR.replace("available=None", "available='yes'"))
    assert (
        "found `available=` of `look`, expected a function, True or False" in run("check", "a.yaml", code=None).output
    )
