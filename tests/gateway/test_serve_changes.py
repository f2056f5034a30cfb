"""`licet serve` while its policy, its tools and what these can use change."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pins import trust
from sandbox.levels import needs_walls

from .clients import Client, process_client
from .test_stdio import LICET

CODE = '''from pathlib import Path

from licet import tool


def is_open(here):
    return here.env("DOOR") == "open" or Path(__file__).with_name("door").exists()


@tool(needs=["env:read:DOOR"], effect="read_only", sandbox="native", available=is_open)
def walk() -> str:
    """Walk through the door."""
    return "through"


@tool(needs=["env:read:DOOR"], effect="read_only", sandbox="native", available=is_open)
def wade() -> str:
    """Wade through the door."""
    return "through"


@tool(needs=[], effect="read_only", sandbox="native")
def look() -> str:
    """Look at the door."""
    return "seen"


@tool(needs=[], effect="read_only", sandbox="native")
def knock() -> str:
    """Knock at the door."""
    return "heard"
'''
MORE = '''from licet import tool


@tool(needs=[], effect="read_only", sandbox="native")
def ring() -> str:
    """Ring the bell."""
    return "rung"
'''
Steps = Callable[[Client], Awaitable[Any]]


class House:
    """A workspace with tools of its own."""

    def __init__(self, place: Path, state: Path) -> None:
        self.place, self.state, self.policy = place, state, place / "agent.yaml"
        place.mkdir()
        (place / "house.py").write_text(CODE)
        (place / "bell.py").write_text(MORE)
        self.admit("look", "walk", "knock")
        trust(self.policy)

    def admit(self, *tools: str) -> None:
        sources = {"ring": "bell", "look": "house", "walk": "house", "wade": "house", "knock": "house"}
        lines = [f'  {name}: {{from: "{module}:{name}"}}' for name, module in sources.items()]
        named = ", ".join(tools)
        head = ["agent: a", "tools:", *lines, "capabilities:", "  env: [DOOR]"]
        self.policy.write_text("\n".join([*head, f"  tools: [{named}]", f"  native: [{named}]", ""]))


@pytest.fixture
def house(tmp_path: Path, store_path: Path) -> House:
    needs_walls()
    return House(tmp_path / "house", store_path / "state")


def played(house: House, steps: Steps, *more: str) -> tuple[Any, str]:
    words = [*LICET, "serve", str(house.policy), "--state", str(house.state), "--workdir", str(house.place), *more]

    async def scene() -> tuple[Any, str]:
        async with process_client(words) as (client, process):
            found = await steps(client)
        assert process.returncode == 0
        return found, "".join(client.errors)

    return asyncio.run(scene())


@pytest.mark.who
def test_a_tool_that_was_taken_out_is_refused_until_that_is_accepted_and_gone_then(house: House) -> None:
    async def steps(client: Client) -> list[Any]:
        found: list[Any] = [await client.say("knock")]
        house.admit("look")
        found += [(await client.say("knock")).partition(":")[0], (await client.say("look")).partition(":")[0]]
        trust(house.policy)
        await client.until_told("notifications/tools/list_changed")
        return [*found, sorted(await client.tools()), (await client.say("knock")).partition(":")[0]]

    found, errors = played(house, steps, "--accepted")
    assert found == ["heard", "MANIFEST_CHANGED", "MANIFEST_CHANGED", ["look"], "UNKNOWN_TOOL"]
    assert "has changed since it was accepted: review and accept the change with `licet trust" in errors


def test_a_policy_that_needs_no_acceptance_is_in_force_when_it_is_saved(house: House) -> None:
    """As a start would take it: nobody locked it, and it was named by hand."""

    async def steps(client: Client) -> list[str]:
        house.admit("look", "ring")
        return [(await client.say("knock")).partition(":")[0], await client.say("ring"), await client.say("look")]

    found, errors = played(house, steps)
    assert found == ["UNKNOWN_TOOL", "rung", "seen"]
    assert "the policy was loaded again: sha256:" in errors


def test_code_that_changed_with_the_policy_is_not_run_by_a_process_that_has_loaded_the_old_one(house: House) -> None:
    async def steps(client: Client) -> list[str]:
        (house.place / "house.py").write_text(CODE.replace("heard", "nobody"))
        before = await client.say("knock")
        house.admit("knock")
        return [before, await client.say("knock")]

    (before, after), errors = played(house, steps)
    assert before == "heard"  # the policy is as it was, and so is what this process runs
    assert after.startswith("MANIFEST_CHANGED")
    assert "which has changed since it was imported" in errors
    assert "start the command again" in errors


def test_a_tool_that_cannot_run_here_is_not_listed_until_it_can(house: House) -> None:
    async def steps(client: Client) -> list[Any]:
        found: list[Any] = [sorted(await client.tools()), (await client.say("walk")).partition(":")[0]]
        (house.place / "door").touch()
        await client.until_told("notifications/tools/list_changed")
        return [*found, sorted(await client.tools()), await client.say("walk")]

    found, errors = played(house, steps)
    assert found == [["knock", "look"], "TOOL_NOT_AVAILABLE", ["knock", "look", "walk"], "through"]
    assert "licet: walk is not shown: its availability check says that it cannot run here\n" in errors
    assert "licet: walk is shown again: it can run here now\n" in errors


def test_a_tool_that_left_the_policy_is_not_said_to_be_shown_again(house: House) -> None:
    async def steps(client: Client) -> list[Any]:
        house.admit("look", "walk", "wade", "knock")
        found: list[Any] = [sorted(await client.tools())]
        house.admit("look", "knock", "wade")
        await client.say("look")
        return [*found, sorted(await client.tools())]

    found, errors = played(house, steps)
    assert found == [["knock", "look"], ["knock", "look"]]
    assert "walk is not shown: its availability check says that it cannot run here\n" in errors
    assert "walk is shown again" not in errors


def test_a_first_list_is_no_change_of_lists(house: House) -> None:
    async def steps(client: Client) -> list[str]:
        await client.tools()
        await client.say("look")  # what was sent before the answer has arrived with it
        return [event["method"] for event in client.told]

    found, _ = played(house, steps)
    assert "notifications/tools/list_changed" not in found


def test_a_client_is_not_told_of_what_its_own_list_has(house: House) -> None:
    """It would list the tools again, and so on without end, if a check says something else each time."""
    answer = 'here.env("DOOR") == "open" or Path(__file__).with_name("door").exists()'
    assert answer in CODE
    (house.place / "house.py").write_text(
        CODE.replace(answer, "bool(TIMES.append(1)) or len(TIMES) % 2 == 0\n\n\nTIMES = []")
    )
    trust(house.policy)

    async def steps(client: Client) -> list[Any]:
        lists = [sorted(await client.tools()) for _ in range(20)]
        told = [one for one in client.told if one["method"] == "notifications/tools/list_changed"]
        return [{*map(len, lists)}, len(told)]

    (lengths, told), _ = played(house, steps, "--accepted")
    assert lengths == {2, 3}
    assert told <= 3  # of what is noticed every five seconds
