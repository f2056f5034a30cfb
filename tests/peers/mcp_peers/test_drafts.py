"""`licet lock --init` drafts an entry for a public server from the command in its README, and `licet lock` takes it."""

import os
from pathlib import Path

import pytest
import yaml

from licet.sandbox import probe

from .peers import SERVERS, Workspace, needed

pytestmark = pytest.mark.skipif("LICET_PEERS_STORE" not in os.environ, reason="asks registries: make test-peers")


@pytest.mark.parametrize("name", ["thinking", "git"])
def test_a_draft_has_every_tool_and_can_be_locked(name: str, tmp_path: Path) -> None:
    if SERVERS[name]["command"][0] == "npx":
        needed("LICET_NPM")
    if not probe.support().namespaces:
        pytest.skip("servers are refused without namespaces")
    workspace = Workspace(name, tmp_path)
    policy = workspace.policy / "agent.yaml"
    policy.write_text("agent: peer\nservers: {}\ncapabilities: {}\n", encoding="utf-8")
    drafted = workspace.licet("lock", "--init", name, str(policy), "--", *SERVERS[name]["command"])
    assert drafted.returncode == 0, drafted.stderr
    listed = [tool for tools in SERVERS[name]["tools"].values() for tool in tools]
    entry = yaml.safe_load(policy.read_text(encoding="utf-8"))["servers"][name]
    assert sorted(entry["tools"]) == sorted(listed)
    assert all(f"{name}.{tool}" in drafted.stdout for tool in listed)
    locked = workspace.licet("lock", str(policy))
    assert locked.returncode == 0, locked.stderr
    assert workspace.licet("check", "--locked", str(policy)).returncode == 0
