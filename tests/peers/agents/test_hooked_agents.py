"""The real coding agents with the hooks that `licet hooks install` writes: sessions as bare, and what is refused."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from attacks.walled_programs import needs_namespaces
from ordinary_user import NOBODY
from peers.agents.conftest import Place
from peers.agents.hooked_agents import AGENT_USER, Hooked, end_residents, installed, pause_residents, with_client
from peers.agents.played_model import Call, Script
from peers.agents.real_agents import AGENTS, CODEX, VARIANTS, Agent
from peers.agents.shell_lines import LINES, check_lines
from peers.agents.test_bare_agents import NOWHERE, SUBAGENT, SUBAGENTS

pytestmark = needs_namespaces

SECRET = "not for agents"
REFUSED = "licet refuses"
OWN_LIMITS = ("gemini",)  # refuses what lies outside of its project before its hook is asked
NO_FETCH = ("codex", "copilot")  # one has no tool for it, the other is not given it offline

every_agent = pytest.mark.parametrize("agent", VARIANTS.values(), ids=VARIANTS)
each_program = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)


@pytest.fixture
def hooked(agent: Agent, place: Place, licet: str) -> Iterator[Hooked]:
    made = installed(licet, agent, place)
    made.write(place.home / "secret.txt", f"{SECRET}\n")
    yield made
    end_residents(AGENT_USER, place.home)


def calls_of(hooked: Hooked) -> list[dict[str, Any]]:
    """The receipts of calls, without that of the test call of `licet hooks install`."""
    return [one for one in hooked.receipts() if "canary" not in one["tool"]]


@every_agent
def test_ordinary_shell_lines_behind_hooks(hooked: Hooked) -> None:
    session = hooked.run([hooked.agent.shell(one.line) for one in LINES])
    check_lines(hooked.agent, session)
    found = [one for one in calls_of(hooked) if one["coding_agent"]["rewritten"]]
    assert len(found) == len(LINES)
    assert {one["coding_agent"]["end"] for one in found} == {"seen"}
    assert len({one["session"] for one in found}) == 1


@every_agent
def test_calls_are_decided_by_the_policy(hooked: Hooked) -> None:
    agent, project, home = hooked.agent, hooked.place.project, hooked.place.home
    (project / "link").symlink_to("a.txt")
    (project / "out").symlink_to(home / "secret.txt")
    calls = {
        "a file elsewhere": agent.read(str(home / "secret.txt")),
        "a line that reads it": agent.shell(f"cat {home}/secret.txt; echo done"),
        "a link to it": agent.read(str(project / "out")),
        "a link inside": agent.read(str(project / "link")),
        "an edit": agent.edit(str(project / "a.txt"), "two", "three"),
        "a new file": agent.write(str(project / "new.txt"), "first\n"),
        "a file elsewhere is written": agent.write(str(home / "new.txt"), "first\n"),
        "the policy is written": agent.write(str(hooked.policy.with_name("more.yaml")), "agent: x\n"),
        "a page": agent.fetch(NOWHERE),
    }
    session = hooked.run(list(calls.values()))
    assert session.exit_code == 0, session.stderr
    said = dict(zip(calls, session.texts, strict=True))
    assert SECRET not in "".join(said.values())
    assert "one" in said["a link inside"]
    assert "done" in said["a line that reads it"]
    assert ((project / "a.txt").read_text(), (project / "new.txt").read_text()) == ("one\nthree\n", "first\n")
    assert not (home / "new.txt").exists()
    assert not hooked.policy.with_name("more.yaml").exists()
    refused = ["the policy is written"]
    refused += [] if agent.name in OWN_LIMITS else ["a file elsewhere is written"]
    refused += [] if agent.name in ("codex", *OWN_LIMITS) else ["a file elsewhere", "a link to it"]
    refused += [] if agent.name in NO_FETCH else ["a page"]
    assert [name for name in refused if REFUSED not in said[name]] == []
    found = calls_of(hooked)
    assert {one["coding_agent"]["name"] for one in found} == {agent.name}
    if AGENTS[agent.name] is not CODEX:
        assert any(one["coding_agent"]["rewritten"] and one["verdict"] == "allow" for one in found)


@pytest.mark.parametrize("agent", [AGENTS[name] for name in SUBAGENTS], ids=SUBAGENTS)
def test_a_subagent_is_governed_like_its_parent(hooked: Hooked) -> None:
    agent, home = hooked.agent, hooked.place.home
    steps = [agent.shell(f"cat {home}/secret.txt; echo from below > below.txt"), agent.read(f"{home}/secret.txt")]
    session = hooked.run([SUBAGENTS[agent.name], agent.shell("cat below.txt")], scripts=[Script(SUBAGENT, steps)])
    below = [one.text for one in session.model.results(1)]
    assert agent.shown(session.texts[1]).output == "from below"
    assert len(below) == 2
    assert REFUSED in below[1] or agent.name in OWN_LIMITS
    assert SECRET not in "".join(below)


SERVER = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    name, answer = asked.get("method"), {}
    if name == "initialize":
        answer = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "helper", "version": "1"}}
    elif name == "tools/list":
        schema = {"type": "object", "properties": {}}
        answer = {"tools": [{"name": "read", "description": "reads", "inputSchema": schema}]}
    elif name == "tools/call":
        answer = {"content": [{"type": "text", "text": open(sys.argv[1]).read()}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""
# How an agent is told of an MCP server, and what it calls the tool.
SERVERS: Mapping[str, tuple[str, Call]] = {
    "claude": (".claude.json", Call("mcp__helper__read")),
    "codex": (".codex/config.toml", Call("read", namespace="mcp__helper")),
    "gemini": (".gemini/settings.json", Call("mcp_helper_read")),
    "copilot": (".copilot/mcp-config.json", Call("helper-read")),
    "opencode": (".config/opencode/opencode.json", Call("helper_read")),
}


@each_program
def test_a_server_that_is_not_behind_the_gateway_is_refused(hooked: Hooked) -> None:
    home, (file, call) = hooked.place.home, SERVERS[hooked.agent.name]
    script = hooked.write(home / "server.py", SERVER)
    hooked.add_server(home / file, "helper", ["/usr/bin/env", "python3", str(script), str(home / "secret.txt")])
    session = hooked.run([call])
    assert REFUSED in session.texts[0]
    assert "gateway" in session.texts[0]
    assert SECRET not in session.texts[0]


def test_a_patch_of_several_files_is_decided_as_a_whole(place: Place, licet: str) -> None:
    hooked = installed(licet, CODEX, place)
    outside = place.home / "outside.txt"
    patch = "*** Begin Patch\n*** Add File: {0}\n+x\n*** Update File: {1}\n@@\n-{2}\n+{3}\n*** End Patch"
    inside, file = place.project / "inside.txt", place.project / "a.txt"
    session = hooked.run(
        [
            Call("apply_patch", text=patch.format(outside, file, "two", "three")),
            Call("apply_patch", text=patch.format(inside, file, "one", "four")),
        ]
    )
    end_residents(AGENT_USER, place.home)
    assert REFUSED in session.texts[0]
    assert not outside.exists()
    assert (inside.read_text(), file.read_text()) == ("x\n", "four\ntwo\n")


# Switched off from inside ---------------------------------------------------------------------------------------------

SWITCHES = {
    ".claude/settings.local.json": '{"disableAllHooks": true}',
    ".claude/settings.json": '{"disableAllHooks": true}',
    ".codex/config.toml": "[features]\nhooks = false\n",
    ".gemini/settings.json": '{"hooksConfig": {"enabled": false}}',
    ".github/copilot/settings.json": '{"disableAllHooks": true}',
    ".opencode/plugins/x.js": "throw new Error()",
}


@every_agent
def test_hooks_cannot_be_switched_off_from_inside(hooked: Hooked) -> None:
    agent, project, home = hooked.agent, hooked.place.project, hooked.place.home
    bases = (project, home)
    files = [base / name for base in bases for name in SWITCHES if not (base / name).exists()]
    before = {base / name: (base / name).read_bytes() for base in bases for name in SWITCHES if (base / name).exists()}
    lines = [
        f"mkdir -p {file.parent}; printf '%s' '{SWITCHES[str(file.relative_to(base))]}' > {file}; true"
        for base in bases
        for file in files
        if file.is_relative_to(base) and (base is project or not file.is_relative_to(project))
    ]
    calls = [agent.shell(one) for one in lines]
    calls += [agent.write(str(file), SWITCHES[str(file.relative_to(project))]) for file in files[: len(SWITCHES)]]
    calls += [agent.shell("sleep 4"), agent.shell(f"cat {home}/secret.txt; echo done")]
    for _ in range(2):  # some look at their settings at the next start alone
        session = hooked.run(calls)
        assert SECRET not in "".join(session.texts)
        assert "done" in session.texts[-1]
        assert [file for file in files if file.is_file()] == []
        assert {file: file.read_bytes() for file in before} == before


# Hooks that fail ------------------------------------------------------------------------------------------------------


@each_program
def test_a_session_goes_on_when_the_resident_is_killed(hooked: Hooked) -> None:
    user = AGENT_USER
    assert end_residents(user, hooked.place.home)
    session = hooked.run([hooked.agent.shell("echo one"), hooked.agent.read(str(hooked.place.home / "secret.txt"))])
    assert hooked.agent.shown(session.texts[0]).output == "one"
    assert SECRET not in session.texts[1]


@each_program
def test_a_hook_that_gets_no_answer_refuses(hooked: Hooked) -> None:
    file = hooked.place.project / "new.txt"
    with pause_residents(AGENT_USER, hooked.place.home) as paused:
        assert paused
        hooked.run([hooked.agent.write(str(file), "x\n")])
    assert not file.exists()


@each_program
def test_a_broken_ledger_refuses(hooked: Hooked) -> None:
    end_residents(AGENT_USER, hooked.place.home)  # they have it open as it was
    for ledger in (hooked.place.home / ".local/state/licet").glob("*/ledger.sqlite*"):
        ledger.write_bytes(b"no database" * 1000)
    file = hooked.place.project / "new.txt"
    session = hooked.run([hooked.agent.write(str(file), "x\n")])
    assert not file.exists()
    assert "licet" in session.texts[0]


# What stands for our client, and the words of an agent's table about it. None: it refuses with every agent.
CLIENTS: Mapping[str, tuple[str, str]] = {
    "ends with 1": ("raise SystemExit(1)", "exit code 1"),
    "says something else": ("print('{')", "broken JSON or text with exit code 0"),
    "is slow": ("import time\ntime.sleep(1000)", "a time-out"),
    "is missing": ("", ""),
}


@each_program
@pytest.mark.parametrize("failure", CLIENTS)
def test_a_client_that_fails_does_what_the_page_of_the_agent_says(hooked: Hooked, failure: str) -> None:
    from licet.hooks.agents import AGENTS as DIALECTS

    if AGENT_USER != NOBODY:
        pytest.skip("needs a licet whose files may be changed: root makes a copy of it")
    text, words = CLIENTS[failure]
    file = hooked.place.project / "new.txt"
    with with_client(hooked, text):
        hooked.run([hooked.agent.write(str(file), "x\n")])
    assert file.exists() == (words in DIALECTS[hooked.agent.name].failing_hook_runs)
