"""The `servers:` section as it is read. What is refused is in `spec/problems.yaml`; here is what is accepted."""

from pathlib import Path

import pytest

from licet.policy_files.load import read_policy

FINE = {
    "a command": "command: [npx, -y, files]",
    "an address": "url: https://a.example/mcp\n    headers: {Authorization: api/key}",
    "needs within grants": 'command: [x]\n    grants: ["fs:read:/srv"]\n    tools: {a: {needs: ["fs:read:/srv/a"]}}',
    "a tool of any name": 'command: [x]\n    tools: {a.b: {effect: full}, "*": {effect: read_only}}',
    "resources and prompts": 'command: [x]\n    resources: ["file:///srv", "memo:"]\n    prompts: "*"',
    "native without grants": "command: [x]\n    sandbox: native\n    tools: {a: {effect: write_limited}}",
    "asking the client": 'command: [x]\n    client: {sampling: ask, elicitation: allow, roots: ["~"], logging: true}',
}


@pytest.mark.parametrize("entry", FINE.values(), ids=FINE)
def test_an_entry_is_accepted(entry: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"agent: a\nservers:\n  s:\n    {entry}\ncapabilities: {{}}\n")
    policy = read_policy(tmp_path / "a.yaml")
    assert policy.problems == ()
    assert policy.manifest is not None
    assert policy.manifest.places["servers.s"].line == 3


def test_a_server_is_part_of_the_digest_and_its_order_is_not(tmp_path: Path) -> None:
    def digest(entry: str) -> str:
        (tmp_path / "a.yaml").write_text(f"agent: a\nservers: {{s: {{command: [x], {entry}}}}}\n")
        manifest = read_policy(tmp_path / "a.yaml").manifest
        assert manifest is not None
        return manifest.digest

    first = digest('grants: ["fs:read:/a", "fs:read:/b"], env: [A, B]')
    assert digest('grants: ["fs:read:/b", "fs:read:/a"], env: [B, A], client: {}, sandbox: isolated') == first
    for other in ('grants: ["fs:read:/a"]', "client: {sampling: ask}", "tools: {a: {effect: full}}", "sandbox: native"):
        assert digest(other) != first
