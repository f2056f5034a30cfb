"""The version of a connector that is a server: the one that the lock resolved, or what the server claims of itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet import Backends, Gate, load_manifest
from licet.cli.app import licet
from licet.core.decision.validate import validate_tools
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.gateway.running_server import server_tools

NPM = {"kind": "npm", "name": "gh", "version": "1.9.0", "integrity": {"any": {"gh@1.9.0": "sha512-"}}}
PYPI = {"kind": "pypi", "name": "gh", "version": "1.9", "integrity": {"linux": {"gh==1.9": "sha256:"}}}
DISTRIBUTION = {"kind": "distribution", "name": "gh", "version": "1.9", "program": "gh"}
FILE = {"kind": "file", "program": "gh.py", "digest": "sha256:0"}
COMMANDS = {"npm": ["npx", "gh"], "pypi": ["uvx", "gh"], "distribution": ["python", "-m", "gh"], "file": ["./gh.py"]}


def written(
    place: Path, resolved: dict[str, Any] | None, claimed: str, connector: str, allowed: str, **more: Any
) -> Path:
    """A policy with a server that is a connector, and its lock."""
    entry: dict[str, Any] = {"command": COMMANDS[resolved["kind"]]} if resolved else {"url": "https://gh.example/mcp"}
    entry |= {"connector": connector, "tools": {"read": {"needs": [], "effect": "read_only"}}}
    line = {"connector": "github", **({"version": allowed} if allowed else {})}
    content = {
        "agent": "a",
        "servers": {"gh": entry},
        "connectors": {"tenant_allowlist": [line], **more},
        "capabilities": {
            "tools": ["gh.read"],
            "connectors": ["github"],
            "destinations": {"allow": ["gh.example"]},
        },
    }
    policy = place / "a.yaml"
    policy.write_text(json.dumps(content))
    (place / "licet.lock").unlink(missing_ok=True)
    tools = [{"name": "read", "inputSchema": {"type": "object"}}]
    server = {"command": entry.get("command", []), "url": entry.get("url", ""), "tools": tools}
    server |= {"claimed_version": claimed} | ({"resolved": resolved} if resolved else {})
    lock = {"format": 1, "manifests": {"a.yaml": load_manifest(policy).digest}, "servers": {"gh": server}}
    (place / "licet.lock").write_text(json.dumps(lock))
    return policy


CASES: dict[str, tuple[dict[str, Any] | None, str, str, str, str]] = {
    "a package in the range": (NPM, "", "github", ">=1.9", ""),
    "a package that the policy states": (PYPI, "", "github@1.9", "", ""),
    "a package out of the range": (
        NPM, "", "github", ">=2.0",
        "connector github@1.9.0 (npm gh 1.9.0) is allowed only in versions >=2.0",
    ),
    "a policy that states another package": (
        NPM, "2.1", "github@2.1", "",
        "connector github@1.9.0 (npm gh 1.9.0) is what is locked, but the policy states 2.1",
    ),
    "a wheel of another version": (
        PYPI, "", "github@2.1", ">=2.0",
        "connector github@1.9 (pypi gh 1.9) is what is locked, but the policy states 2.1",
    ),
    "an installed program of another version": (
        DISTRIBUTION, "", "github", ">=2.0",
        "connector github@1.9 (distribution gh 1.9) is allowed only in versions >=2.0",
    ),
    "a file that claims it": (FILE, "2.1.4", "github@2.1", ">=2.0", ""),
    "an address that claims it": (None, "2.1", "github@2.1", ">=2.0", ""),
    "a file that claims another": (
        FILE, "1.9", "github@2.1", "",
        "connector github@1.9 (the server's own claim) is what its server claims, but the policy states 2.1",
    ),
    "an address that claims another": (
        None, "1.9", "github", ">=2.0",
        "connector github@1.9 (the server's own claim) is allowed only in versions >=2.0",
    ),
    "a claim that is no version": (
        None, "build-7", "github", ">=2.0",
        "connector github@build-7 (the server's own claim) is allowed only in versions >=2.0",
    ),
    "no claim, and every version is allowed": (FILE, "", "github", "", ""),
    "no claim, and the policy states one": (
        FILE, "", "github@2.1", "",
        "connector github@2.1 has no version: its server claims none, but the policy states 2.1",
    ),
    "no claim, and a range": (
        None, "", "github", ">=2.0", "connector github has no version: its server claims none, and >=2.0 is required",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resolved", "claimed", "connector", "allowed", "reason"), CASES.values(), ids=CASES)
def test_the_version_that_runs_is_the_one_that_counts(
    resolved: dict[str, Any] | None, claimed: str, connector: str, allowed: str, reason: str, tmp_path: Path
) -> None:
    manifest = load_manifest(written(tmp_path, resolved, claimed, connector, allowed))
    found = [str(one) for one in validate_tools(manifest.tools.values(), manifest)]
    assert len(found) == bool(reason), found
    assert not reason or reason in found[0]
    gate = Gate(manifest, server_tools(manifest, {}), Backends.memory(), on_misfit="deny")
    assert bool(gate.policy.misfits) is bool(reason)  # whatever distribution licet itself belongs to
    checked = CliRunner().invoke(licet, ["check", str(tmp_path / "a.yaml")])
    assert (checked.exit_code, reason in checked.stdout) == (1 if reason else 0, True), checked.output


def test_what_is_installed_here_says_nothing_about_a_server(tmp_path: Path) -> None:
    definitions = {"github": {"version": ">=2.0", "distribution": "pytest"}}
    manifest = load_manifest(written(tmp_path, NPM, "", "github", "", definitions=definitions))
    (found,) = validate_tools(manifest.tools.values(), manifest)
    assert "connector github@1.9.0 (npm gh 1.9.0) is defined as >=2.0" in str(found)


def test_reviews_show_the_version_and_whose_word_it_is(tmp_path: Path) -> None:
    before = load_manifest(written(tmp_path, FILE, "2.0", "github", ""))
    after = load_manifest(written(tmp_path, FILE, "2.1", "github", ""))
    (tool,) = surface(after).tools
    assert tool.connector == "github@2.1 (the server's own claim)"
    assert before.digest == after.digest  # the digest of a policy does not depend on its lock
    changes = json.dumps(diff(before, after).document())
    assert "github@2.0 (the server's own claim)" in changes
    assert "github@2.1 (the server's own claim)" in changes
