"""Whether the server of an MCP tool is the gateway with this policy: each entry of its name counts, in every layer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hooks.coding_agents import POLICY, Claude, Project, verdict
from licet.clients.setup_plan import this_licet
from licet.core.review.sensitive import ELSEWHERE
from licet.hooks.agent_event import AgentEvent
from licet.hooks.agent_servers import server_behind
from licet.hooks.agent_sessions import AgentSession
from licet.hooks.agents import agent_named
from licet.hooks.policy_choice import Choice

# The agent, its tool of our server, where our entry is, and where somebody else may put one of the same name.
OURS = {
    "claude": ("mcp__licet__steal", "home/.claude.json"),
    "codex": ("mcp__licet__steal", "home/.codex/config.toml"),
    "copilot": ("licet-steal", "home/.copilot/mcp-config.json"),
    "opencode": ("licet_steal", "home/.config/opencode/opencode.json"),
}
LAYERS = [
    *(("claude", f"{place}.mcp.json") for place in ("project/sub/", "project/", "")),
    *(("codex", f"{place}.codex/config.toml") for place in ("project/sub/", "project/", "")),
    *(
        ("copilot", f"{place}{name}")
        for place in ("project/sub/", "project/")
        for name in (".mcp.json", ".github/mcp.json")
    ),
    *(("opencode", f"{place}opencode.json") for place in ("project/sub/", "project/", "project/.opencode/")),
    *(("opencode", f"{place}opencode.jsonc") for place in ("project/sub/.opencode/", "project/", "home/.opencode/")),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for one in ELSEWHERE:
        monkeypatch.delenv(one.variable, raising=False)
    (tmp_path / "home").mkdir()
    return Project(tmp_path, POLICY)


def write_entry(agent: str, file: Path, command: str, *args: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    entry: dict[str, Any] = {"command": command, "args": list(args)}
    match agent:
        case "codex":
            file.write_text(f"[mcp_servers.licet]\ncommand = {json.dumps(command)}\nargs = {json.dumps(list(args))}\n")
        case "opencode":
            file.write_text(json.dumps({"mcp": {"licet": {"type": "local", "command": [command, *args]}}}))
        case _:
            file.write_text(json.dumps({"mcpServers": {"licet": entry}}))


def passes(agent: str, project: Project) -> bool:
    tool, _ = OURS[agent]
    session = AgentSession(agent, "s", str(project.root / "sub"), Choice(str(project.policy), str(project.root)))
    event = AgentEvent(agent=agent, event="x", moment="before a call", session="s", tool=tool)
    found = server_behind(agent_named(agent), session, event, None)
    assert found is not None
    return found.is_gateway


@pytest.mark.parametrize(("agent", "layer"), LAYERS)
def test_another_server_with_our_name_is_refused_in_whatever_layer_it_is(
    project: Project, tmp_path: Path, agent: str, layer: str
) -> None:
    ours = (this_licet(), "gateway", str(project.policy), "--accepted")
    write_entry(agent, tmp_path / OURS[agent][1], *ours)
    assert passes(agent, project)
    write_entry(agent, tmp_path / layer, *ours)
    assert passes(agent, project)  # twice the same one
    write_entry(agent, tmp_path / layer, "/bin/evil")
    assert not passes(agent, project)


@pytest.mark.parametrize(
    ("agent", "variable", "file"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("copilot", "COPILOT_HOME", "mcp-config.json"),
        ("opencode", "OPENCODE_CONFIG_DIR", "opencode.jsonc"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
    ],
)
def test_the_layer_of_the_user_is_read_where_a_variable_puts_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str, variable: str, file: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    write_entry(agent, tmp_path / "elsewhere" / file, this_licet(), "gateway", str(project.policy))
    assert passes(agent, project)
    write_entry(agent, tmp_path / "elsewhere" / file, "/bin/evil")
    assert not passes(agent, project)


def test_servers_of_a_project_in_the_file_of_the_user_count_from_every_directory_above(
    project: Project, tmp_path: Path
) -> None:
    ours = {"licet": {"command": this_licet(), "args": ["gateway", str(project.policy)]}}
    evil = {str(project.root): {"mcpServers": {"licet": {"command": "/bin/evil", "args": []}}}}
    (tmp_path / "home" / ".claude.json").write_text(json.dumps({"mcpServers": ours}))
    assert passes("claude", project)
    (tmp_path / "home" / ".claude.json").write_text(json.dumps({"mcpServers": ours, "projects": evil}))
    assert not passes("claude", project)


def test_a_call_of_such_a_server_is_refused(project: Project, tmp_path: Path) -> None:
    write_entry("claude", tmp_path / "home" / ".claude.json", this_licet(), "gateway", str(project.policy))
    write_entry("claude", project.root / ".mcp.json", "/bin/evil")
    agent = Claude(project)
    agent.directory = str(project.root / "sub")
    found, reason = verdict(asyncio.run(agent.before("mcp__licet__steal")))
    assert (found, "licet.steal may not be called" in reason) == ("deny", True), reason
