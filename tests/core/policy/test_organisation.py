"""An organisation above a manifest: what it narrows, that it never widens, and what its digest is about."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from licet import Manifest
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Ask, Deny
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request, Usage
from licet.core.policy import keys
from licet.core.policy.layer import WRITES
from licet.core.policy.manifest import COMMANDS, with_commands
from licet.core.policy.terms import WRITE_APPROVALS
from licet.policy_files.load import read_policy
from licet.policy_files.organisation import read_organisation_file
from organisations import MANIFEST, WORKSPACE
from pins import pinned

SECOND_USE = "network:https:get@files.example.com"


@pytest.fixture
def policy(tmp_path: Path) -> Manifest:
    """A manifest with its workspace."""
    return policy_of(tmp_path, MANIFEST)


def policy_of(folder: Path, text: str) -> Manifest:
    """Write and read a manifest, next to the workspace."""
    (folder / "licet.yaml").write_text(WORKSPACE, encoding="utf-8")
    path = folder / "agent.yaml"
    path.write_text(text, encoding="utf-8")
    found = read_policy(path).manifest
    assert found is not None
    return found


def above(folder: Path, text: str, name: str = "above.yaml") -> Any:
    """Write and read an organisation file."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_organisation_file(file)


# What it narrows ------------------------------------------------------------------------------------------------------

REFUSALS = {
    "a destination": ("destinations:\n  allow: [api.example.com]\n", "fetch", (SECOND_USE,), "HOST_NOT_ALLOWED", 1),
    "a denied host": ("destinations:\n  deny:\n  - files.example.com\n", "fetch", (SECOND_USE,), "HOST_NOT_ALLOWED", 3),
    "no destination": ("destinations: {allow: [], default: deny}\n", "fetch", (SECOND_USE,), "HOST_NOT_ALLOWED", 1),
    "a class": ("licet: 1\nmax_side_effect_class: read_only\n", "save", (), "SIDE_EFFECT_EXCEEDED", 2),
    "a connector": ("connectors:\n  allow: [slack]\n", "issue", (), "CONNECTOR_NOT_ALLOWED", 2),
    "a version": ("connectors: {allow: [{connector: github, version: '3'}]}", "issue", (), "CONNECTOR_NOT_ALLOWED", 1),
    "a denied connector": ("connectors:\n  deny:\n  - slack\n  - github\n", "issue", (), "CONNECTOR_NOT_ALLOWED", 4),
    "a budget": ("budget:\n  max_calls_per_session: 3\n", "issue", (), "BUDGET_EXCEEDED", 2),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_its_line(case: str, policy: Manifest, tmp_path: Path) -> None:
    text, tool, uses, reason, line = REFUSALS[case]
    request = Request(tool, tuple(map(Use, uses)))
    before = decide(request, policy.expand("/w", "/h"), Usage(calls=3))
    assert not isinstance(before, Deny)
    one = above(tmp_path, text)
    file = one.origin.file
    after = decide(request, policy.under(one).expand("/w", "/h"), Usage(calls=3))
    assert isinstance(after, Deny)
    assert (after.rules[0].reason, str(after.rules[0].origin)) == (reason, f"{file}:{line}")
    assert str(file) in after.rules[0].fix


@pytest.mark.parametrize(
    ("text", "write", "delete"),
    [
        ("approvals: {write: call}", "call", "session"),
        ("approvals: {write: session}", "session", "session"),
        ("approvals: {write: manifest, delete: manifest}", "manifest", "session"),
        ("approvals: {delete: call}", "manifest", "call"),
        ("budget: {}", "manifest", "session"),
    ],
)
def test_the_stricter_approval_counts(text: str, write: str, delete: str, policy: Manifest, tmp_path: Path) -> None:
    one = above(tmp_path, text)
    manifest = with_commands(pinned(policy.under(one)).expand("/w", "/h"))
    for tool in ("save", COMMANDS):
        reach = reach_of(manifest, tool)
        assert reach is not None
        assert (tool, "manifest" if reach.approved_by else reach.approval) == (tool, write)
    assert manifest.approvals.delete == delete


def test_a_question_names_the_line_that_asks(policy: Manifest, tmp_path: Path) -> None:
    one = above(tmp_path, "approvals:\n  delete: session\n  write: call\n")
    manifest = with_commands(pinned(policy.under(one)).expand("/w", "/h"))
    for tool in ("save", COMMANDS):
        asked = decide(Request(tool), manifest)
        assert isinstance(asked, Ask), tool
        assert str(asked.rules[0].origin) == f"{one.origin.file}:3"


def test_its_budget_does_not_stand_for_one_of_the_policy(tmp_path: Path) -> None:
    """A class that needs a budget is not permitted by a file that only narrows."""
    manifest = policy_of(tmp_path, MANIFEST.partition("  budget")[0])
    manifest = manifest.under(above(tmp_path, "budget: {max_calls_per_session: 3}"))
    found = decide(Request("wipe"), manifest.expand("/w", "/h"))
    assert isinstance(found, Deny)
    assert [rule.text for rule in found.rules] == ["class full needs a budget"]


PARTS: dict[str, list[Any]] = {
    "destinations": [None, {"allow": ["api.example.com", "10.0.0.1", "*"]}, {"allow": []}, {"deny": ["*.example.com"]}],
    "connectors": [None, {"allow": ["github", "jira"]}, {"allow": []}, {"deny": ["github"]}],
    "max_side_effect_class": [None, "read_only", "destructive"],
    "approvals": [None, {"write": "call"}, {"write": "manifest", "delete": "manifest", "through_client": True}],
    "budget": [None, {"max_calls_per_session": 1000}, {"max_calls_per_session": 1}],
}
USES = [
    *("network:https:get@api.example.com", SECOND_USE, "network:https:post@other.example", "network:tcp:10.0.0.1:22"),
    *("fs:read:/srv/a", "fs:write:/srv/out/a", "fs:delete:/srv/out/a", "fs:write:/etc/a", "process:exec:git"),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("chosen", list(itertools.product(*PARTS.values())), ids=lambda _: "")
def test_it_only_narrows(chosen: tuple[Any, ...], policy: Manifest, tmp_path: Path) -> None:
    """Whatever it says, no use is allowed that was refused or asked about before, and no limit is higher."""
    stated = {key: part for key, part in zip(PARTS, chosen, strict=True) if part is not None}
    alone = with_commands(policy.expand("/w", "/h"))
    narrowed = with_commands(policy.under(above(tmp_path, yaml.safe_dump(stated))).expand("/w", "/h"))
    assert narrowed.digest == alone.digest
    assert narrowed.max_effects[: len(alone.max_effects)] == alone.max_effects
    for tool in (*alone.admissions, "unknown"):
        for uses in ((), *((Use(use),) for use in USES)):
            before, after = (decide(Request(tool, uses, arguments="sha256:0"), one) for one in (alone, narrowed))
            assert isinstance(after, Deny) or not isinstance(before, Deny), (tool, uses)
        one, two = reach_of(alone, tool), reach_of(narrowed, tool)
        assert (one is None) == (two is None)
        if one is None or two is None:
            continue
        assert two.grant <= one.grant
        assert two.approvals.quorum >= one.approvals.quorum
        assert two.approvals.through_client <= one.approvals.through_client
        if two.grant & WRITES:  # what still writes asks at least as often
            often = (WRITE_APPROVALS.index(each.approval or "manifest") for each in (two, one))
            assert next(often) <= next(often), tool


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("destinations: {allow: [a.example, b.example]}", "destinations:\n  allow: [b.example, a.example]  # x", True),
        ("destinations: {allow: [a.example]}", "destinations: {allow: [b.example]}", False),
        ("budget: {max_cost_usd: 5}", "licet: 1\nbudget: {max_cost_usd: 5.00}", True),
        ("budget: {max_cost_usd: 5}", "budget: {max_cost_usd: 6}", False),
        ("connectors: {allow: []}", "connectors: {}", False),
        ("connectors: {allow: [github]}", "connectors: {deny: [github]}", False),
        ("max_side_effect_class: full", "max_side_effect_class: read_only", False),
        ("approvals: {write: call}", "approvals: {delete: call}", False),
        ("destinations: {allow: []}", "destinations: {deny: []}", False),
    ],
)
def test_its_digest_is_of_what_it_means(one: str, two: str, same: bool, tmp_path: Path) -> None:
    digests = [above(tmp_path, text, f"{number}.yaml").digest for number, text in enumerate((one, two))]
    assert all(digest.startswith("sha256:") for digest in digests)
    assert (digests[0] == digests[1]) is same


# Flow -----------------------------------------------------------------------------------------------------------------

FLOW = "flow:\n  preset: guarded\n  own: [a.test, b.test]\n  results: {fetch: authored, issue: trusted}\n"
NARROWED_FLOW: dict[str, tuple[str, str, dict[str, Any]]] = {
    # the manifest's own, what the organisation says, and what holds
    "a preset for all": ("", "flow: {preset: guarded}", {"preset": "guarded"}),
    "a preset alone": (
        FLOW,
        "flow: {preset: strict}",
        {"preset": "strict", "own": ("a.test", "b.test"), "results": ["fetch", "issue"]},
    ),
    "a tool that is not believed": (FLOW, "flow: {results: {issue: untrusted}}", {"results": ["fetch"]}),
    "a domain": (FLOW, "flow: {own: [a.test]}", {"own": ("a.test",)}),
    "no domain": (FLOW, "flow: {own: []}", {"own": ()}),
    "a domain that the manifest does not name": (FLOW, "flow: {own: [c.test]}", {"own": ()}),
    "nothing": (FLOW, "flow: {}", {"own": ("a.test", "b.test"), "results": ["fetch", "issue"]}),
    "a preset that is off": (FLOW, "flow: {preset: off, own: [a.test]}", {"preset": "guarded", "own": ("a.test",)}),
    "nothing for a policy that is off": ("", "flow: {own: [a.test]}", {"preset": "off"}),
    "a refusal": (FLOW, "flow: {otherwise: deny}", {"otherwise": "deny"}),
}


@pytest.mark.parametrize("case", NARROWED_FLOW)
def test_an_organisation_narrows_what_is_said_about_flow(tmp_path: Path, case: str) -> None:
    own, said, holds = NARROWED_FLOW[case]
    policy = policy_of(tmp_path, MANIFEST + own)
    narrowed = policy.under(above(tmp_path, said))
    flow = keys.FLOW.of(narrowed)
    found = {key: sorted(flow.results) if key == "results" else getattr(flow, key) for key in holds}
    assert found == holds
    assert narrowed.digest == policy.digest
    assert keys.FLOW.of(narrowed.own) == keys.FLOW.of(policy)


def test_what_an_organisation_says_about_flow_is_in_its_digest(tmp_path: Path) -> None:
    said = ["{}", "flow: {own: []}", "flow: {sources: []}", "flow: {preset: guarded}", "flow: {preset: strict}"]
    said += ["flow: {results: {}}", "flow: {results: {fetch: untrusted}}", "flow: {results: {issue: untrusted}}"]
    assert len({above(tmp_path, text).digest for text in said}) == len(said)
