"""An organisation above the project: where its file must be and whose, what it may say, and that it only narrows."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from licet import Manifest, ManifestError, load_manifest
from licet.core.algebra.use import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Ask, Deny
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request, Usage
from licet.core.policy.commands import COMMANDS, with_commands
from licet.core.policy.effects import WRITES
from licet.core.policy.terms import WRITE_APPROVALS
from licet.policy_files import organisation
from licet.policy_files.load import read_policy
from licet.policy_files.organisation import Place, machine_organisation, read_organisation_file, under_organisation
from organisations import put

WORKSPACE = """connectors:
  tenant_allowlist: [github, {connector: slack, version: ">=2"}]
tools:
  fetch: {needs: ["network:*:*"], effect: write_limited, sandbox: isolated}
  save: {needs: ["fs:write:/srv/out"], effect: write_limited, sandbox: isolated}
  issue: {needs: ["network:https:api.example.com"], effect: read_only, sandbox: isolated, connector: github@2.1}
  wipe: {needs: ["fs:delete:/srv/out"], effect: full, sandbox: isolated}
"""
MANIFEST = """agent: research
capabilities:
  tools: [fetch, save, issue, wipe]
  max_side_effect_class: full
  destinations: {allow: [api.example.com, files.example.com]}
  fs_reach: {read: [/srv], write: [/srv/out]}
  process: {allowed_binaries: [git]}
  connectors: [github]
  approvals: {write: manifest, delete: session, expires_seconds: 600}
  budget: {max_calls_per_session: 10, max_cost_usd: 5}
"""
SECOND_USE = "network:https:get@files.example.com"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A manifest with its workspace."""
    (tmp_path / "licet.yaml").write_text(WORKSPACE, encoding="utf-8")
    path = tmp_path / "agent.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    return path


def own(path: Path) -> Manifest:
    """The policy alone."""
    found = read_policy(path).manifest
    assert found is not None
    return found


def problem(path: Path) -> str:
    """The first thing that is wrong, when a policy is loaded."""
    with pytest.raises(ManifestError) as wrong:
        load_manifest(path)
    return str(wrong.value.problems[0])


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
def test_a_refusal_names_its_line(case: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, tool, uses, reason, line = REFUSALS[case]
    request = Request(tool, tuple(map(Use, uses)))
    before = decide(request, own(policy).expand("/w", "/h"), Usage(calls=3))
    assert not isinstance(before, Deny)
    file = put(monkeypatch, tmp_path, text)
    after = decide(request, load_manifest(policy).expand("/w", "/h"), Usage(calls=3))
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
def test_the_stricter_approval_counts(
    text: str, write: str, delete: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, tmp_path, text)
    from pins import pinned

    manifest = with_commands(pinned(load_manifest(policy)).expand("/w", "/h"))
    for tool in ("save", COMMANDS):
        reach = reach_of(manifest, tool)
        assert reach is not None
        assert (tool, "manifest" if reach.approved_by else reach.approval) == (tool, write)
    assert manifest.approvals.delete == delete


def test_a_question_names_the_line_that_asks(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pins import pinned

    file = put(monkeypatch, tmp_path, "approvals:\n  delete: session\n  write: call\n")
    manifest = with_commands(pinned(load_manifest(policy)).expand("/w", "/h"))
    for tool in ("save", COMMANDS):
        asked = decide(Request(tool), manifest)
        assert isinstance(asked, Ask), tool
        assert str(asked.rules[0].origin) == f"{file}:3"


def test_its_budget_does_not_stand_for_one_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that needs a budget is not permitted by a file that only narrows."""
    path = tmp_path / "agent.yaml"
    path.write_text(f"{WORKSPACE}{MANIFEST.partition('  budget')[0]}", encoding="utf-8")
    put(monkeypatch, tmp_path, "budget: {max_calls_per_session: 3}")
    found = decide(Request("wipe"), load_manifest(path).expand("/w", "/h"))
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
def test_it_only_narrows(chosen: tuple[Any, ...], policy: Path, tmp_path: Path) -> None:
    """Whatever it says, no use is allowed that was refused or asked about before, and no limit is higher."""
    stated = {key: part for key, part in zip(PARTS, chosen, strict=True) if part is not None}
    file = tmp_path / "above.yaml"
    file.write_text(yaml.safe_dump(stated), encoding="utf-8")
    alone = with_commands(own(policy).expand("/w", "/h"))
    narrowed = with_commands(own(policy).under(read_organisation_file(file)).expand("/w", "/h"))
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


# Whose file it is -----------------------------------------------------------------------------------------------------


def test_without_a_file_a_policy_is_as_it_was(policy: Path) -> None:
    assert machine_organisation() is None
    manifest = own(policy)
    assert under_organisation(manifest) is manifest
    assert load_manifest(policy).organisations == ()


def test_the_place_is_a_constant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, policy: Path) -> None:
    """No variable and no directory moves the file: it is where it is in the source, and belongs to root."""
    monkeypatch.undo()
    assert Place("/etc/licet/organisation.yaml", 0, "/") == organisation.MACHINE
    put(monkeypatch, tmp_path, "destinations: {allow: []}")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "etc/licet").mkdir(parents=True)
    for name in ("HOME", "XDG_CONFIG_HOME", "LICET_ORGANISATION", "LICET_CONFIG", "LICET_HOME", "PWD"):
        monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.chdir(elsewhere)
    assert load_manifest(policy).organisations == (machine_organisation(),)


def test_one_look_is_all_that_a_machine_without_the_file_pays(monkeypatch: pytest.MonkeyPatch, policy: Path) -> None:
    looked: list[str] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any, *more: Any, **given: Any) -> Any:
            looked.append(str(path))
            return real(path, *more, **given)

        return look

    for name in ("lstat", "stat", "open", "readlink"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    assert machine_organisation() is None
    assert looked == [os.path.dirname(organisation.MACHINE.file)]


def _link(path: Path, target: Path) -> None:
    path.rename(path.with_name("real.yaml"))
    path.symlink_to(target)


def _instead(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "others may write it": (lambda file: file.chmod(0o646), "may write (mode 646)"),
    "a group may write it": (lambda file: file.chmod(0o664), "may write (mode 664)"),
    "others may write its directory": (lambda file: file.parent.chmod(0o1777), "may write (mode 1777)"),
    "a group may write its directory": (lambda file: file.parent.chmod(0o775), "may write (mode 775)"),
    "it is a directory": (lambda file: _instead(file, os.mkdir), "a directory, not a regular file"),
    "it is a pipe": (lambda file: _instead(file, os.mkfifo), "not a regular file"),
    "it is a link to nothing": (lambda file: _link(file, file.with_name("missing")), "a link that leads nowhere"),
    "it is a link in circles": (lambda file: _link(file, file), "too many links"),
    "it is no YAML": (lambda file: file.write_text("a: [", encoding="utf-8"), "expected"),
    "it is empty": (lambda file: file.write_text("", encoding="utf-8"), "expected"),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_a_file_that_cannot_be_used_refuses_everything(
    case: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: [api.example.com]}\n")
    assert load_manifest(policy).organisations
    change, expected = UNSAFE[case]
    change(file)
    found = problem(policy)
    assert found.startswith(str(file)), found
    assert expected in found


def test_it_must_belong_to_its_owner(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    monkeypatch.setattr(organisation, "MACHINE", Place(str(file), os.getuid() + 1, str(file.parent)))
    assert f"{file.parent}, which belongs to user {os.getuid()}" in problem(policy)


def test_the_way_to_a_linked_file_counts_too(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is followed, and whoever could change a directory on the way could change the file."""
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    open_to_all = file.parent / "shared"
    open_to_all.mkdir()
    (open_to_all / "hop").symlink_to("../real.yaml")
    _link(file, Path("shared/hop"))
    open_to_all.chmod(0o755)
    assert load_manifest(policy).organisations[0].origin.file == str(file)
    open_to_all.chmod(0o777)
    assert f"{open_to_all}, which others" in problem(policy)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_refuses_everything(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(monkeypatch, tmp_path, "destinations: {allow: []}\n")
    file.chmod(0)
    assert "cannot be read (permission denied)" in problem(policy)
    file.chmod(0o644)
    file.parent.chmod(0)
    try:
        assert "permission denied" in problem(policy)
    finally:
        file.parent.chmod(0o755)


# What it may say ------------------------------------------------------------------------------------------------------

WRONG = {
    "a tool": ("tools: {a: {needs: []}}", "1:1: error: found the key `tools`"),
    "a grant": ("grants: ['fs:read:/']", "1:1: error: found the key `grants`"),
    "an agent": ("destinations: {}\nagent: me\n", "2:1: error: found the key `agent`"),
    "capabilities": ("capabilities: {destinations: {allow: []}}", "1:1: error: found the key `capabilities`"),
    "limits": ("limits: {wall_seconds: 3}", "1:1: error: found the key `limits`"),
    "a definition": ("connectors:\n  definitions: {}\n", "2:3: error: found the key `definitions`"),
    "a class": ("max_side_effect_class: writes\n", "1:24: error: found `writes`"),
    "a key twice": ("budget: {}\nbudget: {}\n", "2:1: error: found the key `budget` a second time"),
    "a default": ("destinations: {default: deny}\n", "`default: deny` without an `allow` list"),
    "another default": ("destinations: {allow: [], default: allow}\n", "error: found `allow`"),
    "a public suffix": ("destinations: {allow: ['*.com']}\n", "error: found `*.com`"),
    "a newer format": ("licet: 2\ndestinations: {}\n", "found format 2"),
    "a list": ("- destinations\n", "1:1: error: found a list"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_it_may_not_say_is_an_error(
    case: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = WRONG[case]
    file = put(monkeypatch, tmp_path, text)
    for found in (problem(policy), str(read_policy(file).problems[0])):
        assert found.startswith(f"{file}:")
        assert expected in found


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
    digests = []
    for number, text in enumerate((one, two)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        digests.append(read_organisation_file(file).digest)
    assert all(digest.startswith("sha256:") for digest in digests)
    assert (digests[0] == digests[1]) is same


# Beside the policy ----------------------------------------------------------------------------------------------------


def test_an_edit_of_it_changes_no_digest(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests, above = {own(policy).digest}, set()
    for text in ("destinations: {allow: []}", "max_side_effect_class: read_only", "approvals: {write: call}"):
        put(monkeypatch, tmp_path, text)
        manifest = load_manifest(policy)
        digests |= {manifest.digest, manifest.expand("/w", "/h").declare(()).digest}
        digests.add(with_commands(manifest).digest)
        above |= {one.digest for one in manifest.organisations}
    assert len(digests) == 1
    assert len(above) == 3


def test_a_second_file_narrows_further(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, tmp_path, "destinations: {allow: [api.example.com]}\n")
    second = tmp_path / "second.yaml"
    second.write_text("destinations: {allow: [files.example.com]}\nmax_side_effect_class: full\n", encoding="utf-8")
    manifest = load_manifest(policy, organisation=second).expand("/w", "/h")
    assert [Path(one.origin.file).name for one in manifest.organisations] == ["organisation.yaml", "second.yaml"]
    for host in ("api", "files"):
        assert isinstance(decide(Request("fetch", (Use(f"network:https:get@{host}.example.com"),)), manifest), Deny)
    assert under_organisation(manifest, second) is manifest


def test_no_grant_writes_it(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "budget: {max_calls_per_session: 5}\n")
    wide = tmp_path / "wide.yaml"
    wide.write_text(
        f"agent: wide\ncapabilities:\n  max_side_effect_class: full\n  budget: {{max_calls_per_session: 5}}\n"
        f"  fs_reach: {{read: [{tmp_path}], write: [{tmp_path}]}}\n  process: {{allowed_binaries: [sh]}}\n",
        encoding="utf-8",
    )
    reach = reach_of(with_commands(load_manifest(wide).expand("/w", "/h")), COMMANDS)
    assert reach is not None
    for path in (file, file.parent / "new", file.parent):
        assert not reach.grant.has(f"fs:write:{path}")
        assert not reach.grant.has(f"fs:delete:{path}")
    assert reach.grant.has(f"fs:write:{tmp_path}/free")


def test_a_quorum_that_nobody_can_meet_is_reported(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from licet.assemble import review

    file = put(monkeypatch, tmp_path, "approvals:\n  quorum: 2\n")
    found = [one for one in review(policy).problems if one.origin.file == str(file)]
    assert [(one.origin.line, one.severity) for one in found] == [(2, "warning")]
