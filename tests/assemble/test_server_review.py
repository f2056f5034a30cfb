"""What `licet check` says about servers and their manifest, and which secrets of a server are redacted."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet import Backends, Gate, RegistrationRefused, load_manifest, tool
from licet.assemble.expected_lock import ceiling_of_grants
from licet.assemble.server_process import placed_secrets
from licet.cli.app import licet
from licet.core.decision.foreseen import process_reach
from licet.core.policy.lock import Lock, LockedServer, Resolved, write_lock
from licet.core.policy.servers import server_of
from licet.core.values import Origin
from licet.guard.ports import Ports

REMOTE = {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "KEY"}, "tools": {"*": {}}}
LOCAL = {"command": ["serve"], "secrets": {"TOKEN": "KEY"}, "tools": {"*": {}}}
NATIVE = {**LOCAL, "sandbox": "native"}
UNCOVERED = (
    "that the server `s` gets less than its grants: `server s` needs secret:read:KEY, which the manifest does not allow"
)
SESSION = "only budgets of a session, and tools of MCP servers"


def checked(place: Path, server: dict[str, Any], capabilities: dict[str, Any], **shared: Any) -> list[dict[str, Any]]:
    content = {"agent": "a", "capabilities": {"tools": ["s.t"], **capabilities}, "servers": {"s": server}, **shared}
    (place / "licet.yaml").write_text(json.dumps(content))
    result = CliRunner().invoke(licet, ["check", str(place / "licet.yaml"), "--json"])
    found: list[dict[str, Any]] = json.loads(result.stdout)["problems"]
    return found


@pytest.mark.parametrize(("secrets", "is_covered"), [([], False), (["OTHER"], False), (["KEY"], True)])
@pytest.mark.parametrize("server", [REMOTE, LOCAL, NATIVE], ids=["remote", "local", "native"])
def test_the_ceiling_must_cover_every_secret_of_a_server(
    tmp_path: Path, server: dict[str, Any], secrets: list[str], is_covered: bool
) -> None:
    native = ["s"] if "sandbox" in server else []
    capabilities = {"secrets": secrets, "destinations": {"allow": ["mcp.example.com"]}, "native": native}
    found = [one for one in checked(tmp_path, server, capabilities) if one["found"] == UNCOVERED]
    assert bool(found) is not is_covered


NOTES = {"command": ["serve"], "grants": ["fs:read:${workdir}/notes", "fs:write:${workdir}/notes"]}
READS = {"effect": "read_only"}
WRITES = {"effect": "write_limited"}
SHARED: dict[
    str, tuple[dict[str, Any], list[str], bool]
] = {  # the tools of a server, those of the agent, and whether it is warned
    "reads": ({"read": READS, "write": WRITES}, ["s.read"], False),
    "writes": ({"read": READS, "write": WRITES}, ["s.read", "s.write"], True),
    "any": ({"*": READS}, ["s.t"], False),
    "needs less": ({"add": {**WRITES, "needs": ["fs:read:${workdir}/notes"]}}, ["s.add"], False),
    "needs it": ({"add": {**WRITES, "needs": ["fs:write:${workdir}/notes/new"]}}, ["s.add"], True),
    "optional": ({"add": {**WRITES, "needs": [], "optional": ["fs:write:${workdir}/notes"]}}, ["s.add"], True),
    "no class": ({"add": {}}, ["s.add"], True),
    "resources": ({}, ["s.resources"], False),
}


@pytest.mark.parametrize(("tools", "admitted", "is_warned"), SHARED.values(), ids=SHARED)
def test_a_grant_that_only_the_tools_of_other_agents_use_is_no_warning(
    tmp_path: Path, tools: dict[str, Any], admitted: list[str], is_warned: bool
) -> None:
    capabilities = {"tools": admitted, "fs_reach": {"read": ["${workdir}/notes"]}}
    server = {**NOTES, "tools": tools, **({} if tools else {"resources": "*"})}
    less = "that the server `s` gets less than its grants: "
    found = [one for one in checked(tmp_path, server, capabilities) if one["found"].startswith(less)]
    assert [one["severity"] for one in found] == (["warning"] if is_warned else [])
    assert all("needs fs:write:" in one["found"] for one in found)


BUDGETS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"budget": {"max_calls_per_session": 5}}, True),
    ({"budget": {"max_cost_usd": 5}}, True),
    ({"tools": {"s.t": {"max_calls": 1}}}, True),
    ({"budget": {"max_calls_per_day": 5}}, False),
    ({"budget": {"max_calls_per_session": 5, "max_calls_per_day": 50}}, False),
    ({"budget": {"max_calls_per_session": 5, "max_cost_usd_per_day": 50}}, False),
    ({"tools": [], "bundles": ["b"]}, True),
    ({"tools": [], "bundles": ["b"], "budget": {"max_calls_per_day": 5}}, False),
    ({"tools": ["own"], "budget": {"max_calls_per_session": 5}}, False),
]


@pytest.mark.parametrize(("capabilities", "is_warned"), BUDGETS)
def test_budgets_of_a_session_alone_are_a_warning_for_tools_of_servers(
    tmp_path: Path, capabilities: dict[str, Any], is_warned: bool
) -> None:
    bundles = {"b": {"tools": ["s.t"], "budget": {"max_calls_per_session": 3}}} if "bundles" in capabilities else {}
    found = [one for one in checked(tmp_path, LOCAL, capabilities, bundles=bundles) if one["found"] == SESSION]
    assert [one["severity"] for one in found] == (["warning"] if is_warned else [])


def test_a_secret_of_several_lines_is_redacted_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n  9w0BAQEFAASCBKcwggSj  \nab\n-----END KEY-----\n"
    server = server_of("s", {"command": ["serve"], "secrets": {"TOKEN": "KEY"}})
    reach = process_reach(
        ceiling_of_grants(server, Origin("f", 1, 1), "/srv", "/home/x"), server, (), ("/srv", "/home/x")
    )

    async def get(reference: str) -> str:
        return key

    redactor = asyncio.run(placed_secrets(server, reach, Ports(secrets=get))).redactor
    for line in key.splitlines():
        is_short = line == "ab"  # would be redacted from ordinary words
        assert (line.strip() in redactor.text(f"loaded {line}")) is is_short


# The first review, before there is a lock -----------------------------------------------------------------------------

MANY = [f"t{number}" for number in range(30)]
FILES: dict[str, Any] = {
    "command": ["serve"],
    "grants": ["fs:read:${workdir}/notes", "fs:write:${workdir}/out", "fs:read:/srv"],
    "tools": {name: {"effect": "read_only"} for name in MANY},
}
UNLOCKED = "30 tools (s.t0, s.t1, s.t10 …) cannot be called: the server `s` is not in licet.lock: run `licet lock`"
AGENT: dict[str, Any] = {"tools": [f"s.{name}" for name in MANY], "fs_reach": {"read": ["${workdir}"]}}


def policy(place: Path, name: str, servers: dict[str, Any], capabilities: dict[str, Any]) -> str:
    (place / name).mkdir()
    file = place / name / "licet.yaml"
    file.write_text(json.dumps({"agent": "a", "servers": servers, "capabilities": capabilities}))
    return str(file)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: str) -> str:
    return " ".join(CliRunner().invoke(licet, words, terminal_width=80).output.split())


@pytest.mark.parametrize("command", ["surface", "trust"])
def test_before_the_lock_one_line_of_a_server_says_that_nothing_of_it_can_be_called(here: Path, command: str) -> None:
    file = policy(here, "new", {"s": FILES}, AGENT)
    result = CliRunner().invoke(licet, [command, file, *(["--yes"] if command == "trust" else [])])
    text = " ".join(result.output.split())
    assert len(result.output.splitlines()) < 20
    assert f"blocked {UNLOCKED}" in text
    # What both the grants and the agent allow, and no more.
    assert "server s one process behind walls that holds at most fs:read:${workdir}/notes; inside" in text
    assert "risk none: nothing can be reached" in text
    assert "undeclared" not in text
    assert "tools s.t0" not in text


def test_before_the_lock_a_difference_has_no_reach_of_tools(here: Path) -> None:
    old = policy(here, "old", {}, {"fs_reach": {"read": ["${workdir}"]}})
    result = CliRunner().invoke(licet, ["diff", old, policy(here, "new", {"s": FILES}, AGENT)])
    lines = [line.partition("  (")[0] for line in result.stdout.splitlines()]
    names = ", ".join(f"`{name}`" for name in sorted(MANY))
    assert sorted(lines) == sorted(
        [
            "+ server `s`",
            f"+ server `s` has the tools {names}",
            "+ server `s` holds fs:read:${workdir}/notes",
            "+ server `s` holds fs:read:/srv",
            "+ server `s` holds fs:write:${workdir}/out",
            f"~ {UNLOCKED}",
        ]
    )


def test_tools_that_were_never_locked_can_be_taken_out_of_a_policy_in_one_line(here: Path) -> None:
    new = policy(here, "new", {"s": FILES}, {**AGENT, "tools": []})
    text = said("diff", policy(here, "old", {"s": FILES}, AGENT), new, "--fail-on", "none")
    assert text.startswith(f"~ no longer admitted: {UNLOCKED}")


def test_a_server_without_a_lock_uses_what_it_may_hold(here: Path) -> None:
    file = policy(here, "new", {"s": FILES}, {**AGENT, "fs_reach": {"read": ["${workdir}/notes", "/etc/x"]}})
    document = json.loads(CliRunner().invoke(licet, ["surface", file, "--json"]).stdout)
    assert document["unused"] == ["fs:read:/etc/x"]
    assert document["servers"]["s"]["holds"] == [f"fs:read:{here}/notes"]
    assert {tool["standing"] for tool in document["tools"]} == {"blocked"}


def test_no_function_takes_the_place_of_a_servers_tool_that_is_not_locked(here: Path) -> None:
    @tool(name="s.t0", needs=[])
    async def t0() -> str:
        return "taken"

    manifest = load_manifest(policy(here, "new", {"s": FILES}, {**AGENT, "native": ["s.t0"]}))
    with pytest.raises(RegistrationRefused, match=r"`s\.t0` is the name of a server's tool"):
        Gate(manifest, [t0], Backends.memory(), workdir=here)


def test_a_tool_that_reads_and_states_no_needs_is_not_told_to_write(here: Path) -> None:
    tools = {name: {"effect": "read_only"} for name in ("t0", "t1")}
    file = Path(policy(here, "new", {"s": {**FILES, "tools": tools}}, {**AGENT, "tools": ["s.t0", "s.t1"]}))
    offered = tuple({"name": name, "inputSchema": {"type": "object"}} for name in tools)
    locked = LockedServer(command=("serve",), tools=offered, resolved=Resolved("file", "serve"))
    lock = Lock(format=1, manifests={file.name: load_manifest(file).digest}, servers={"s": locked})
    file.with_name("licet.lock").write_bytes(write_lock(lock))
    text = said("check", str(file))
    assert "write_limited" not in text
    assert "error" not in text.replace("no error", "")
    shown = said("surface", str(file))
    assert "can do without" not in shown  # what its process holds is on the line of the server


def test_call_does_not_offer_the_tools_of_servers_and_says_where_they_are_called(here: Path) -> None:
    tools = {"t0": {"effect": "read_only"}}
    file = Path(policy(here, "new", {"s": {**FILES, "tools": tools}}, {**AGENT, "tools": ["s.t0", "own"]}))
    offered = ({"name": "t0", "inputSchema": {"type": "object"}},)
    locked = LockedServer(command=("serve",), tools=offered, resolved=Resolved("file", "serve"))
    lock = Lock(format=1, manifests={file.name: load_manifest(file).digest}, servers={"s": locked})
    file.with_name("licet.lock").write_bytes(write_lock(lock))
    listing = CliRunner().invoke(licet, ["call", str(file)])
    assert listing.stdout == "own\n"
    assert "`licet gateway` calls the tools of servers: s.t0" in listing.stderr
    document = json.loads(CliRunner().invoke(licet, ["call", str(file), "--json"]).stdout)
    assert document == {"tools": {"own": None}, "server_tools": {"s.t0": ""}}
    text = said("call", str(file), "s.t0")
    assert "s.t0 is a tool of the server `s`" in text
    assert "tools of servers are called through `licet gateway`" in text
    assert "module:function" not in text
