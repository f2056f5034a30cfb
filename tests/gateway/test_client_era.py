"""Servers are opened in the era of the client, if they were locked in it: so they can ask it, and offer what it gets.

One gateway serves one client, so each server has one connection. `licet lock` starts a server once more to see whether
it knows the other era too, and three times there only if it offers something else.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.assemble.expected_lock import lock_backends, machine_places
from licet.core.policy.lock import BadLock, Lock, LockedServer, OtherVersion, other_version, read_lock, write_lock
from licet.core.policy.lock_changes import lock_changes
from licet.core.policy.servers import servers_of
from licet.core.values import Origin
from licet.mcp.protocol import MODERN_VERSIONS
from licet.mcp.server_definitions import Setup, take
from licet.mcp.upstream import locked_in_era
from sandbox.levels import needs_walls

from .clients import Client, text_of
from .test_observe import observing
from .workspaces import Workspace

OLD, NEW = "2025-11-25", MODERN_VERSIONS[-1]
OBJECT = {"type": "object"}
FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
ANSWER = {"action": "accept", "content": {"a": "this one"}}
ASKING = {"ask": [["ask", "elicitation/create", FORM]]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **more}


def taken(script: dict[str, Any], folder: Path, starts: list[str] | None = None, **options: Any) -> LockedServer:
    """What `licet lock` writes of a server, and the lines that a person sees."""
    workspace = Workspace(folder / "policy", folder / "state", {"s": {"script": script}}, {"tools": []})
    server = servers_of(workspace.manifest.servers)["s"]
    place, home = str(workspace.place), str(Path.home())
    said = starts if starts is not None else []
    setup = Setup(lock_backends(None), place, home, machine_places(place, home), said.append)
    return asyncio.run(take(server, Origin("a.yaml", 1, 1), setup, **options))


LEGACY_TOOLS = {"tools": ["echo", tool("old"), tool("both", description="There.")]}
MODERN_TOOLS = {"tools": ["echo", tool("new"), tool("both", description="Here.")]}
TAKEN: dict[str, tuple[dict[str, Any], int, Any]] = {
    "2025 alone": ({"era": "2025"}, 3, {}),
    "2026 alone": ({"era": "2026"}, 4, {}),
    "both": ({}, 4, {OLD: OtherVersion()}),
    "both, and other tools": ({**MODERN_TOOLS, "in_2025": LEGACY_TOOLS}, 6, None),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_server_is_started_once_more_and_three_times_only_if_it_differs(tmp_path: Path, case: str) -> None:
    needs_walls()
    script, starts, others = TAKEN[case]
    counted = {"start": [["stderr", "started"]]}
    lines: list[str] = []
    found = taken({**script, **counted}, tmp_path, lines)
    assert len([line for line in lines if line.startswith("s: ")]) == starts
    assert found.version == (OLD if script.get("era") == "2025" else NEW)
    if others is not None:
        assert found.other_versions == others
        return
    [(version, other)] = found.other_versions.items()
    assert (version, other.resources, other.instructions) == (
        OLD,
        OtherVersion().resources,
        OtherVersion().instructions,
    )
    there = found.in_version(OLD)
    assert list(there.listed("tools")) == ["echo", "old", "both"]
    assert there.listed("tools")["both"]["description"] == "There."
    assert list(found.listed("tools")) == ["echo", "new", "both"]
    assert list(found.in_all_versions("tools")) == ["echo", "new", "both", "old"]


def test_hidden_characters_in_the_other_era_are_not_locked_unless_they_are_accepted(tmp_path: Path) -> None:
    needs_walls()
    script = {"in_2025": {"tools": ["echo", tool("old", description="Reads.\U000e0041")]}}
    lines: list[str] = []
    found = taken(script, tmp_path, lines)
    assert found.other_versions == {}
    assert "clients of it are served in 2026-07-28" in lines[-1]
    assert "--accept-hidden s.old" in lines[-1]
    found = taken(script, tmp_path, accepted=frozenset({"s.old"}))
    assert (list(found.other_versions), found.hidden) == ([OLD], ("tools/old",))
    assert taken(script, tmp_path, before=found) == found


@pytest.mark.parametrize("era", [OLD, NEW])
def test_a_tool_that_is_malformed_in_one_era_is_offered_in_the_other(tmp_path: Path, era: str) -> None:
    needs_walls()
    good, bad = ["echo", tool("pick")], ["echo", {"name": "pick", "inputSchema": "none"}]
    modern, legacy = (good, bad) if era == OLD else (bad, good)
    lines: list[str] = []
    found = taken({"tools": modern, "in_2025": {"tools": legacy}}, tmp_path, lines)
    [line] = [line for line in lines if "left out" in line]
    assert line.startswith(f"s: in protocol {era}, tools/pick is left out: it does not fit the MCP schema")
    assert found.refused == {}
    offered = {version: list(found.in_version(version).listed("tools")) for version in (OLD, NEW)}
    assert offered == {version: ["echo"] if version == era else ["echo", "pick"] for version in (OLD, NEW)}


def test_a_tool_that_is_hidden_from_models_in_one_era_is_refused_in_both(tmp_path: Path) -> None:
    needs_walls()
    hidden = tool("pick", _meta={"ui": {"visibility": ["app"]}})
    found = taken({"tools": ["echo", tool("pick")], "in_2025": {"tools": ["echo", hidden]}}, tmp_path)
    assert list(found.refused) == list(found.in_version(OLD).refused) == ["tools/pick"]


def test_a_text_that_changes_by_itself_makes_no_other_version() -> None:
    there = replace(BASE, version=OLD, tools=(tool("a", description="19:00"), tool("b", title="B")))
    now = replace(BASE, tools=(tool("a", description="18:00"), tool("b", title="B")))
    assert other_version(now, there) == OtherVersion(tools=there.tools)
    assert other_version(replace(now, volatile={"tools/a": ("description",)}), there) == OtherVersion()


# The gateway ----------------------------------------------------------------------------------------------------------


def workspace_of(folder: Path, state: Path, script: dict[str, Any], locked: dict[str, Any], *tools: str) -> Workspace:
    about = {
        "script": {"start": [["stderr", "started"]], **script},
        "locked": locked,
        "tools": {"*": {"effect": "read_only"}},
        "client": {"elicitation": "allow"},
    }
    return Workspace(folder / "p", state / "state", {"s": about}, {"tools": [f"s.{name}" for name in tools]})


async def asked_through(client: Client) -> tuple[str, int]:
    answer = json.loads(text_of(await client.call("ask")))
    assert answer == ANSWER
    return str(answer["content"]["a"]), len(client.asked)


@pytest.mark.parametrize("others", [{OLD: {}}, {}], ids=["locked in both", "by an older version"])
def test_a_client_of_2025_is_asked_by_a_server_that_knows_both_eras(
    tmp_path: Path, store_path: Path, others: dict[str, Any]
) -> None:
    """With a lock of one era the server is opened in that one, where it has no way to ask this client."""
    needs_walls()
    no_way = [["error", -32600, "this transport context has no back-channel"]]
    script = {"tools": ["ask"], "calls": {"ask": no_way}, "in_2025": {"calls": ASKING}}
    workspace = workspace_of(tmp_path, store_path, script, {"other_versions": others}, "ask")

    async def steps() -> str:
        async with workspace.gateway("2025", answers={"elicitation/create": lambda _: ANSWER}) as client:
            return text_of(await client.call("ask"))

    said = asyncio.run(steps())
    if others:
        assert json.loads(said) == ANSWER
        assert not [line for line in workspace.reports if "locked in protocol" in line]
    else:
        assert "no back-channel" in said
        assert any("`licet lock --update` also asks it in an older one" in line for line in workspace.reports)
    assert [line for line in workspace.reports if line == "s wrote: started"] == ["s wrote: started"]  # one connection


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_the_connection_of_the_client_is_the_only_one(tmp_path: Path, store_path: Path, era: str) -> None:
    needs_walls()
    script = {"tools": ["see"], "calls": {"see": [["seen"]]}}
    workspace = workspace_of(tmp_path, store_path, script, {"other_versions": {OLD: {}}}, "see")

    async def steps() -> list[str]:
        async with workspace.gateway(era) as client:
            return [message["method"] for message in json.loads(text_of(await client.call("see")))]

    first = {"2025": "initialize", "2026": "server/discover"}[era]
    assert asyncio.run(steps())[0] == first
    assert workspace.reports.count("s wrote: started") == 1


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_each_client_gets_what_the_server_offers_in_its_era(tmp_path: Path, store_path: Path, era: str) -> None:
    needs_walls()
    script = {**MODERN_TOOLS, "in_2025": LEGACY_TOOLS}
    legacy = [tool("echo"), *LEGACY_TOOLS["tools"][1:]]
    locked = {"other_versions": {OLD: {"tools": legacy, "instructions": "be old"}}, "instructions": "be new"}
    workspace = workspace_of(tmp_path, store_path, script, locked, "echo", "old", "new", "both")

    async def steps() -> tuple[dict[str, Any], list[str], str]:
        async with workspace.gateway(era) as client:
            said = [await client.say(name) for name in ("echo", "both", "old", "new")]
            return await client.tools(), said, client.opened["instructions"]

    tools, (echo, both, old, new), instructions = asyncio.run(steps())
    mine, others, refused, words = ("old", old, new, "There.") if era == "2025" else ("new", new, old, "Here.")
    assert set(tools) == {"echo", "both", mine}
    assert tools["both"]["description"] == words
    assert (echo, both, others) == ("{}", "{}", "{}")
    assert refused.startswith("UNKNOWN_TOOL")
    assert instructions.endswith("be old" if era == "2025" else "be new")
    assert not [line for line in workspace.reports if "unlike in licet.lock" in line]


@pytest.mark.parametrize("key", ["inputSchema", "annotations"])
@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_tool_with_other_arguments_or_hints_is_for_the_main_version_alone(
    tmp_path: Path, store_path: Path, era: str, key: str
) -> None:
    """The policy of a tool is about its arguments and hints: one that has others must not be called by it."""
    needs_walls()
    other = {"inputSchema": {"type": "object", "properties": {"path": {}}}, "annotations": {"destructiveHint": True}}[
        key
    ]
    there = ["echo", tool("both", **{key: other})]
    script = {"tools": ["echo", tool("both")], "in_2025": {"tools": there}}
    locked = {"other_versions": {OLD: {"tools": [tool("echo"), there[1]]}}}
    workspace = workspace_of(tmp_path, store_path, script, locked, "echo", "both")

    async def steps() -> tuple[set[str], str]:
        async with workspace.gateway(era) as client:
            return set(await client.tools()), await client.say("both")

    tools, said = asyncio.run(steps())
    assert tools == ({"echo"} if era == "2025" else {"echo", "both"})
    assert said == "{}" if era == "2026" else said.startswith("UNKNOWN_TOOL")


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked in one era", "not locked"])
def test_a_client_of_2025_is_asked_while_the_gateway_observes(
    tmp_path: Path, store_path: Path, is_locked: bool
) -> None:
    needs_walls()
    legacy = ["ask", "old"]
    script = {
        "tools": ["ask"],
        "calls": {"ask": [["error", -32600, "no"]]},
        "in_2025": {"tools": legacy, "calls": ASKING},
    }
    workspace = workspace_of(tmp_path, store_path, script, {}, "ask")
    if not is_locked:
        (workspace.place / "licet.lock").unlink()

    async def steps() -> tuple[Any, str, set[str]]:
        async with observing(workspace, answers={"elicitation/create": lambda _: ANSWER}) as (client, _):
            return json.loads(await client.say("ask")), await client.say("old"), set(await client.tools())

    said, old, tools = asyncio.run(steps())
    assert (said, old, tools) == (ANSWER, "{}", {"ask", "old"})


def test_a_change_in_the_era_of_the_client_is_refused(tmp_path: Path, store_path: Path) -> None:
    needs_walls()
    script = {"tools": ["echo"], "in_2025": {"tools": [tool("echo", description="Evil.")]}}
    workspace = workspace_of(tmp_path, store_path, script, {"other_versions": {OLD: {}}}, "echo")

    async def steps(era: str) -> str:
        async with workspace.gateway(era) as client:
            return await client.say("echo")

    assert asyncio.run(steps("2025")).startswith("MANIFEST_CHANGED")
    assert asyncio.run(steps("2026")) == "{}"


# The lock -------------------------------------------------------------------------------------------------------------

BASE = LockedServer(version=NEW, tools=(tool("a"), tool("b", title="B")), instructions="be kind")


def with_other(**fields: Any) -> LockedServer:
    return replace(BASE, other_versions={OLD: OtherVersion(**fields)})


def lock(server: LockedServer) -> Lock:
    return Lock(format=1, servers={"s": server})


def test_a_lock_with_another_version_is_written_and_read() -> None:
    for server in (BASE, with_other(), with_other(tools=(), instructions=""), with_other(tools=(tool("c"),))):
        assert read_lock(write_lock(lock(server))) == lock(server)


@pytest.mark.parametrize("tools", [[{"name": "a"}] * 2, [{}], [{"name": ""}]], ids=str)
def test_a_lock_whose_other_version_cannot_be_compared_is_refused(tools: list[Any]) -> None:
    data = json.loads(write_lock(lock(BASE)))
    data["servers"]["s"]["other_versions"] = {OLD: {"tools": tools}}
    with pytest.raises(BadLock, match="a lock that does not fit: `tools` with an entry"):
        read_lock(json.dumps(data).encode())


def test_an_era_without_an_entry_is_served_in_the_main_version() -> None:
    for era in ("", "2025", "2026"):
        assert locked_in_era(BASE, era) is BASE
    both = with_other(tools=(tool("c"),))
    assert locked_in_era(both, "2026") is both
    there = locked_in_era(both, "2025")
    assert (there.version, list(there.listed("tools")), there.instructions) == (OLD, ["c"], "be kind")


def test_a_reviewer_sees_what_another_version_has() -> None:
    old, new = BASE, with_other(tools=(tool("a", description="There."), tool("c")), instructions="be old")
    assert list(lock_changes(lock(old), lock(with_other()))) == [f"~ server s: it is also locked in protocol {OLD}"]
    lines = list(lock_changes(lock(old), lock(new)))
    assert lines[:2] == [
        f"~ server s: it is also locked in protocol {OLD}",
        f"~ server s: its instructions for models in protocol {OLD}",
    ]
    assert f"~ tool s.a in protocol {OLD}" in lines
    assert f"- tool s.b in protocol {OLD}" in lines
    assert f"+ tool s.c in protocol {OLD}" in lines
    assert f"~ server s: it is no longer locked in protocol {OLD}" in list(lock_changes(lock(new), lock(old)))
    later = with_other(tools=(tool("a", description="Other."), tool("c")), instructions="be old")
    assert list(lock_changes(lock(new), lock(later))) == [
        f"~ tool s.a in protocol {OLD}",
        '    description: "There." -> "Other."',
    ]
    assert list(lock_changes(lock(new), lock(new))) == []
