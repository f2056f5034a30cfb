"""Which tools models are shown: not those whose own check says, when a list is made, that they cannot run here."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import enter_project, run
from guard.gates import gate
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
