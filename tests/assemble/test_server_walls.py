"""The walls of a server's process: what it may remove and rename, and what `licet check` says about that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from licet import load_manifest
from licet.cli.app import licet
from licet.core.decision.foreseen import process_reach, server_delete_problems
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Request
from licet.core.policy.lock import Lock, LockedServer, Resolved, write_lock
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import servers_of
from licet.core.policy.terms import StandingApproval
from licet.guard.grant import Grant
from licet.sandbox.grant_paths import kernel_paths
from licet.sandbox.kernel import landlock

TOOL = {"name": "commit", "inputSchema": {"type": "object"}}
GRANTS = ["fs:read:${workdir}", "fs:write:${workdir}", "fs:delete:${workdir}", "network:*:a.example"]


def written(
    place: Path, *, delete: str, approved: bool = True, effect: str = "full", admitted: bool = True, bundle: str = ""
) -> Manifest:
    """A workspace with a server `git`, as `licet lock` has pinned it and its one tool.

    `bundle` is the `approvals.delete` of a bundle that the tool is in; `approved` that a standing approval covers it.
    """
    capabilities = {
        **({"bundles": ["careful"]} if bundle else {"tools": ["git.commit"] if admitted else []}),
        "max_side_effect_class": "destructive",
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}/repo"]},
        "grants": ["fs:write:${workdir}", "fs:delete:${workdir}"],
        "destinations": {"allow": ["a.example"]},
        "approvals": {"write": "session", "delete": delete},
        "budget": {"max_calls_per_session": 5},
    }
    server = {"command": ["git-server"], "grants": GRANTS, "tools": {"commit": {"effect": effect}}}
    content: dict[str, Any] = {"agent": "a", "capabilities": capabilities, "servers": {"git": server}}
    if bundle:
        content["bundles"] = {"careful": {"tools": ["git.commit"], "approvals": {"delete": bundle}}}
    policy = place / "licet.yaml"
    policy.write_text(json.dumps(content))
    (place / "licet.lock").unlink(missing_ok=True)
    resolved = Resolved("file", digest=f"sha256:{'0' * 64}")
    locked = LockedServer(command=("git-server",), resolved=resolved, tools=(TOOL,))
    lock = Lock(format=1, manifests={"licet.yaml": load_manifest(policy).digest}, servers={"git": locked})
    (place / "licet.lock").write_bytes(write_lock(lock))
    (place / "repo").mkdir(exist_ok=True)
    manifest = load_manifest(policy)
    assert manifest.pinned == "licet.lock"
    given = StandingApproval("a-1", manifest.digest, ("terminal",), (f"fs:delete:{place}",), 0)
    return replace(manifest, standing=given if approved else None).expand(str(place), "/home/somebody")


def process(manifest: Manifest, place: Path) -> Reach:
    tools = [reach for name in manifest.admissions if (reach := reach_of(manifest, name))]
    return process_reach(manifest, servers_of(manifest.servers)["git"], tools, (str(place), "/home/somebody"))


def deletable(reach: Reach) -> set[str]:
    """The directories in which the kernel lets the process remove and rename."""

    async def nobody(*_: object) -> None:
        raise AssertionError

    grant = Grant(Request("server git"), reach, "", (), nobody)
    return {rule.path for rule in kernel_paths(grant, private_root=True).rules if rule.access & landlock.DELETE}


CASES = {
    "a standing approval covers deletes": ({"delete": "manifest"}, True),
    "never of a destructive tool": ({"delete": "manifest", "effect": "destructive"}, False),
    "a lock alone": ({"delete": "manifest", "approved": False}, False),
    "once a session": ({"delete": "session"}, False),
    "each": ({"delete": "call"}, False),
    "a bundle is stricter": ({"delete": "manifest", "bundle": "session"}, False),
    "a bundle is not stricter": ({"delete": "manifest", "bundle": "manifest"}, True),
    "no tool deletes": ({"delete": "manifest", "effect": "write_limited"}, False),
    "no tool may be called": ({"delete": "manifest", "admitted": False}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_server_removes_and_renames_only_under_a_standing_approval(tmp_path: Path, case: str) -> None:
    given, deletes = CASES[case]
    reach = process(written(tmp_path, **given), tmp_path)  # type: ignore[arg-type]
    assert deletable(reach) == ({str(tmp_path)} if deletes else set())


def test_deletes_widen_nothing_else_of_the_walls(tmp_path: Path) -> None:
    asking = process(written(tmp_path, delete="call"), tmp_path)
    deleting = process(written(tmp_path, delete="manifest"), tmp_path)
    assert deleting.free_deletes
    assert (deleting.grant, deleting.effect, deleting.grounds) == (asking.grant, "write_limited", ())


@pytest.mark.parametrize("case", CASES)
def test_a_server_that_cannot_delete_is_a_warning(tmp_path: Path, case: str) -> None:
    given, deletes = CASES[case]
    found = list(server_delete_problems(written(tmp_path, **given)))  # type: ignore[arg-type]
    assert bool(found) is (not deletes and not case.startswith("no tool"))
    for one in found:
        assert (one.severity, one.expected) == ("warning", "`approvals.delete: manifest` with a standing approval")
        assert re.match(r"`git.commit`, which is (full|destructive), and `approvals.delete: ", one.found)


def test_check_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    written(tmp_path, delete="session")
    said = CliRunner().invoke(licet, ["check", "licet.yaml"])
    assert said.exit_code == 0
    assert "the process of `git` removes and renames no files" in said.output
