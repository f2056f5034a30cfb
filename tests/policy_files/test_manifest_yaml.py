"""Loading policy files: which files belong together, what the keys mean, and that nothing wrong gets through."""

import json
import os
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet import ManifestError, decide, load_manifest
from licet.core.algebra.rules import Capability, Use, destination_rule
from licet.core.algebra.scope import Malformed, path_key
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Request
from licet.core.policy.manifest import Manifest
from licet.policy_files import checks
from licet.policy_files.limits import LARGEST_INT, MOST_PATTERNS
from licet.policy_files.load import read_policy
from policy_files.messages import message


def write(place: Path, **files: str) -> Path:
    """Put files into a directory, by their names without `.yaml`, and return the manifest's path."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text, "utf-8")
    return place / "manifest.yaml"


def problem_texts(path: Path, **given: Any) -> list[str]:
    """The problems of a file, without the directory."""
    return [str(problem).replace(f"{path.parent}/", "") for problem in read_policy(path, **given).problems]


# The documents that licet answers to ----------------------------------------------------------------------------------

BUNDLES = """\
# helm.yaml
bundles:
  filesystem:
    tools: [file_read, file_write, file_list]
    sandbox: restricted
    side_effect_class: write_limited

  network:
    tools: [http_get, http_post]
    sandbox: isolated
    side_effect_class: full
    destinations:
      - "api.example.com"
      - "*.internal.corp"

  analytics:
    tools: [query_db, aggregate]
    sandbox: restricted
    side_effect_class: read_only
"""
MANIFEST = """\
# capability-manifest.yaml
agent: research-assistant
version: "1.0"
capabilities:
  bundles: [analytics, filesystem]
  max_side_effect_class: write_limited
  destinations:
    allow: ["api.example.com", "cdn.example.com"]
    deny: ["*.production.internal"]
  budget:
    max_calls_per_session: 100
    max_cost_usd: 5.00
"""
CONNECTORS = """\
connectors:
  tenant_allowlist:
    - connector: github
      version: ">=2.0"
    - connector: slack
      version: "1.5"
  
  app_overrides:
    research-app:
      deny: [slack]  # this app cannot use slack
"""  # noqa: W293
DESTINATIONS = """\
destinations:
  allow:
    - "api.openai.com"
    - "*.internal.company.com"
    - "cdn.example.com"
  deny:
    - "*.production.database.internal"  # explicit deny
  default: deny  # anything not in allow list is denied
"""


@pytest.mark.parametrize("text", [BUNDLES, CONNECTORS, DESTINATIONS, BUNDLES + CONNECTORS + DESTINATIONS])
def test_a_workspace_of_the_documents_loads_unchanged(text: str, tmp_path: Path) -> None:
    write(tmp_path, licet=text)
    policy = read_policy(tmp_path / "licet.yaml")
    assert (policy.kind, policy.problems, policy.sound) == ("workspace", (), True)


def test_the_manifest_of_the_documents_loads_unchanged(tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, licet=BUNDLES + CONNECTORS + DESTINATIONS, manifest=MANIFEST))
    assert (manifest.agent, manifest.version) == ("research-assistant", "1.0")
    assert sorted(manifest.admissions) == ["aggregate", "file_list", "file_read", "file_write", "query_db"]
    assert manifest.max_effect == "write_limited"
    assert manifest.budget.max_calls_per_session == 100
    assert manifest.budget.max_cost_usd == Decimal(5)
    assert manifest.ceiling.has("network:https:get@cdn.example.com")
    assert not manifest.ceiling.has("network:https:get@api.example.com")  # the workspace does not list it
    assert not manifest.ceiling.has("network:https:get@db.production.internal")


def test_a_ceiling_of_the_personality_kind_loads_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        manifest="id: researcher\ntoolset: [read_file]\nfs_reach: {read: [/srv]}\n"
        "safety: {network: {allow: ['*.github.com'], deny: [raw.github.com]}}\n",
    )
    manifest = load_manifest(path)
    assert (manifest.agent, manifest.personality) == ("researcher", "researcher")
    assert manifest.ceiling.has("network:https:get@api.github.com")
    assert not manifest.ceiling.has("network:https:get@raw.github.com")
    assert manifest.ceiling.has("fs:read:/srv/x")


# Which files belong together ------------------------------------------------------------------------------------------

TOOL = "tools: {t: {needs: ['env:read:A'], effect: read_only, sandbox: restricted}}\n"


def test_the_workspace_next_to_the_manifest_is_used(tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, licet=TOOL, manifest="agent: a\n"))
    assert "t" in manifest.tools
    assert [Path(file).name for file in manifest.files] == ["manifest.yaml", "licet.yaml"]


def test_every_kind_of_file_may_state_its_format(tmp_path: Path) -> None:
    texts = {
        "manifest": "agent: a\ncapabilities: {bundles: [b]}\n",
        "licet": "bundles: {b: {tools: [t]}}\n",
        "p": "id: p\ntoolset: [t]\n",
    }
    bare = write(tmp_path / "bare", **texts)
    stated = write(tmp_path / "stated", **{name: f"licet: 1\n{text}" for name, text in texts.items()})
    one, two = (load_manifest(path, personality=path.with_name("p.yaml")) for path in (bare, stated))
    assert "t" in two.admissions
    assert one.digest == two.digest
    assert read_policy(stated.with_name("licet.yaml")).kind == "workspace"


def test_the_workspace_of_a_parent_directory_is_not_used(tmp_path: Path) -> None:
    write(tmp_path, licet=TOOL)
    manifest = load_manifest(write(tmp_path / "below", manifest="agent: a\n"))
    assert not manifest.tools


def test_the_workspace_of_the_current_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, licet=TOOL)
    path = write(tmp_path / "elsewhere", manifest="agent: a\n")
    monkeypatch.chdir(tmp_path)
    assert not load_manifest(path).tools


def test_a_workspace_that_is_named_is_used_instead(tmp_path: Path) -> None:
    path = write(tmp_path, licet=TOOL, shared=TOOL.replace("t:", "u:", 1), manifest="agent: a\n")
    manifest = load_manifest(path, tmp_path / "shared.yaml")
    assert sorted(manifest.tools) == ["u"]
    assert load_manifest(str(path), str(tmp_path / "shared.yaml")).tools.keys() == {"u"}


def test_one_file_may_be_workspace_and_manifest(tmp_path: Path) -> None:
    write(tmp_path, licet=TOOL + "agent: a\ncapabilities: {tools: [t], env: [A]}\n")
    manifest = load_manifest(tmp_path / "licet.yaml")
    assert decide(Request("t", (Use("env:read:A"),)), manifest).verdict == "allow"
    assert len(manifest.files) == 1


@pytest.mark.parametrize("target", ["/nonexistent/licet.yaml", "licet.yaml"])
def test_a_workspace_that_is_a_broken_link_is_a_problem(target: str, tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: a\n")
    (tmp_path / "licet.yaml").symlink_to(target)
    (problem,) = problem_texts(path)
    assert problem.startswith("licet.yaml:1:1: error: found ")


@pytest.mark.who
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_workspace_without_read_permission_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, licet=TOOL, manifest="agent: a\n")
    (tmp_path / "licet.yaml").chmod(0)
    assert len(problem_texts(path)) == 1


def test_a_workspace_that_is_a_directory_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: a\n")
    (tmp_path / "licet.yaml").mkdir()
    assert [problem.split(": ")[0] for problem in problem_texts(path)] == ["licet.yaml:1:1"]


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ManifestError) as refusal:
            load_manifest(path)
        (problem,) = refusal.value.problems
        assert problem.origin.full == f"{path}:1:1"
        assert problem.found[0].islower()


def test_an_impossible_file_name_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        load_manifest(f"{tmp_path}/\0.yaml")


def test_a_personality_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: a\n")
    assert len(problem_texts(path, personality=tmp_path / "p.yaml")) == 1


def test_a_workspace_alone_is_no_manifest(tmp_path: Path) -> None:
    write(tmp_path, licet=TOOL)
    with pytest.raises(ManifestError):
        load_manifest(tmp_path / "licet.yaml")


def test_a_file_of_the_wrong_kind_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, licet=TOOL, manifest="agent: a\n", other="agent: b\n", person="id: p\n")
    assert problem_texts(path, personality=tmp_path / "other.yaml") == [
        message("manifest_yaml.other_yaml_manifest_expected_personality")
    ]
    assert problem_texts(path, workspace=tmp_path / "person.yaml") == [
        message("manifest_yaml.person_yaml_personality_expected_workspace")
    ]
    assert len(problem_texts(tmp_path / "licet.yaml", personality=tmp_path / "person.yaml")) == 1


def test_a_file_of_a_mebibyte_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    head = "agent: a\n#"
    path = write(tmp_path, manifest=head + "x" * ((1 << 20) - len(head)))
    assert load_manifest(path).agent == "a"
    write(tmp_path, manifest=head + "x" * ((1 << 20) - len(head) + 1))
    (problem,) = problem_texts(path)
    assert "at most 1048576" in problem


def test_all_problems_of_all_files_are_reported_in_one_run(tmp_path: Path) -> None:
    path = write(tmp_path, licet="bundles: {b: {tools: [t], sandbox: vm}}\n", manifest="agent: 5\nwibble: 1\n")
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path)
    places = [problem.origin.full.replace(f"{tmp_path}/", "") for problem in refusal.value.problems]
    assert places == ["licet.yaml:1:36", "manifest.yaml:1:8", "manifest.yaml:2:1"]


def test_the_order_of_problems_is_deterministic(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: !!str 5\ncapabilities: {tools: !!str 5}\n")
    assert problem_texts(path) == problem_texts(path)
    assert "the tag" in problem_texts(path)[0]


def test_warnings_do_not_stop_a_load(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: a\ncapabilities: {destinations: {allow: ['*.github.io']}}\n")
    policy = read_policy(path)
    assert [problem.severity for problem in policy.problems] == ["warning"]
    assert policy.sound
    assert load_manifest(path) == policy.manifest


def test_errors_and_warnings_are_reported_and_only_errors_are_raised(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: 5\ncapabilities: {destinations: {allow: ['*.github.io']}}\n")
    assert len(read_policy(path).problems) == 2
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path)
    assert len(refusal.value.problems) == 1


# What the keys mean ---------------------------------------------------------------------------------------------------

KEYS: list[tuple[str, list[str]]] = [
    # what `capabilities` says, the rules that it stands for
    ("destinations: {allow: [api.example.com]}", ["network:*:api.example.com"]),
    ("destinations: {allow: ['api.example.com:8443']}", ["network:*:api.example.com:8443"]),
    ("destinations: {allow: ['*']}", ["network:*:*"]),
    ("destinations: {allow: [get, delete]}", ["network:*:*@get", "network:*:*@delete"]),
    ("destinations: {allow: ['[::1]', '127.1']}", ["network:*:[::1]", "network:*:127.0.0.1"]),
    ("fs_reach: {read: [/srv]}", ["fs:read:/srv"]),
    ("fs_reach: {write: [/srv]}", ["fs:write:/srv", "fs:delete:/srv"]),
    ("fs_reach: {read: ['*'], write: [/]}", ["fs:*:*"]),
    ("fs_reach: {read: ['${workdir}', '~/x']}", ["fs:read:${workdir}", "fs:read:~/x"]),
    ("env: [PATH, '*']", ["env:read:*"]),
    ("secrets: [KEY, 'github/*']", ["secret:read:KEY", "secret:read:github/*"]),
    ("process: {allowed_binaries: [git, /usr/bin/grep]}", ["process:exec:git", "process:exec:/usr/bin/grep"]),
    ("process: {allowedBinaries: ['*']}", ["process:exec:*"]),
    ("storage: [personality]", ["storage:*:*"]),
    ("grants: ['network:tcp:db.internal:5432']", ["network:tcp:db.internal:5432"]),
    ("tools: [t, u]", ["tool:call:t", "tool:call:u"]),
    ("tools: {t: {}}", ["tool:call:t"]),
]
ALWAYS = ["storage:*:tool-private", "storage:*:session"]


@pytest.mark.parametrize(("text", "rules"), KEYS)
def test_the_rules_of_each_key(text: str, rules: list[str], tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, manifest=f"agent: a\ncapabilities: {{{text}}}\n"))
    own = CapabilitySet(rule for rule in manifest.ceiling.allow if rule.domain != "connector")
    assert own == CapabilitySet([*rules, *ALWAYS])


@pytest.mark.parametrize(("text", "rules"), [*KEYS[:12], KEYS[14]])
def test_a_personality_has_the_same_keys(text: str, rules: list[str], tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, manifest=f"id: p\n{text}\n"))
    own = CapabilitySet(rule for rule in manifest.ceiling.allow if rule.domain != "connector")
    assert own == CapabilitySet([*rules, *ALWAYS])


def test_every_rule_has_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        manifest="agent: a\ncapabilities:\n  destinations:\n    allow:\n      - a.example\n      - b.example\n"
        "  fs_reach:\n    read: [/one,\n      /two]\n  deny:\n  - env:read:X\n",
    )
    manifest = load_manifest(path)
    places = {
        str(rule.capability): (rule.origin.line, rule.origin.column)
        for layer in manifest.layers
        if layer.kind == "manifest"
        for rule in (*layer.allows, *layer.denies)
    }
    assert places["network:*:a.example"] == (5, 9)
    assert places["network:*:b.example"] == (6, 9)
    assert places["fs:read:/one"] == (8, 12)
    assert places["fs:read:/two"] == (9, 7)
    assert places["env:read:X"] == (11, 5)


def test_all_other_keys_of_a_manifest_are_read(tmp_path: Path) -> None:
    manifest = load_manifest(
        write(
            tmp_path,
            licet="bundles: {b: {tools: [t], limits: {wall_seconds: 9}}}\nservers: {s: {command: [x, y]}}\n",
            manifest="""\
agent: a
app: shop
capabilities:
  bundles: [b]
  tools:
    t: {approval: call, max_calls: 3, max_cost_usd: 1e1, args: {path: {scope: "fs:read"}}, limits: {cpu_seconds: 4}}
  private: [10.0.0.0/8]
  native: [t]
  approvals: {write: manifest, expires_seconds: 60, quorum: 1}
  budget: {max_calls_per_session: 0, max_calls_per_day: 7, max_cost_usd: 0.10, max_cost_usd_per_day: 1e2}
  limits: {memory_mb: 64}
  sandbox: {allow_degraded: true}
  record: full
examples:
  match: [{tool: t, use: "env:read:A"}]
  no_match: [{tool: t, use: "network:https:get@API.example.com"}]
""",
        )
    )
    assert (manifest.app, manifest.record, manifest.allow_degraded) == ("shop", "full", True)
    assert manifest.private == (("10.0.0.0/8",),)
    assert manifest.native == {"t"}
    assert (manifest.approvals.write, manifest.approvals.expires_seconds) == ("manifest", 60)
    assert manifest.budget.max_calls_per_session == 0
    assert (manifest.budget.max_cost_usd, manifest.budget.max_cost_usd_per_day) == (Decimal("0.1"), Decimal(100))
    assert (manifest.budget.max_calls_per_session, manifest.budget.max_calls_per_day) == (0, 7)
    assert dict(manifest.limits) == {"memory_mb": 64}
    assert manifest.servers["s"]["command"] == ["x", "y"] or manifest.servers["s"]["command"] == ("x", "y")
    in_bundle, by_name = manifest.admissions["t"]
    assert (in_bundle.bundle, dict(in_bundle.limits)) == ("b", {"wall_seconds": 9})
    assert (by_name.approval, by_name.max_calls, dict(by_name.limits)) == ("call", 3, {"cpu_seconds": 4})
    assert by_name.max_cost_usd == Decimal(10)
    assert by_name.args["path"]["scope"] == "fs:read"
    assert [(example.use, example.matches) for example in manifest.examples] == [
        ("env:read:A", True),
        ("network:https:get@API.example.com", False),
    ]


def test_absent_keys_have_the_strictest_defaults(tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, manifest="agent: a\n"))
    assert manifest.max_effect == "read_only"
    assert (manifest.approvals.write, manifest.record, manifest.allow_degraded) == ("session", "digests", False)
    assert not manifest.native
    assert not manifest.admissions
    assert not manifest.budget
    assert all(not ranges for ranges in manifest.private)
    assert {str(rule) for rule in manifest.ceiling.allow if rule.domain != "connector"} == set(ALWAYS)


def test_no_is_text_in_a_policy(tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, manifest="agent: no\ncapabilities: {tools: [on, off, y]}\n"))
    assert manifest.agent == "no"
    assert sorted(manifest.admissions) == ["off", "on", "y"]


def test_a_manifest_is_immutable(tmp_path: Path) -> None:
    manifest: Any = load_manifest(
        write(
            tmp_path,
            licet="servers: {s: {command: [x]}}\n" + TOOL,
            manifest="agent: a\ncapabilities: {tools: {t: {args: {p: {enum: [x]}}}}}\n",
        )
    )
    with pytest.raises((AttributeError, TypeError)):
        manifest.agent = "b"
    (one,) = manifest.admissions["t"]
    for value in (one, manifest.tools["t"], manifest.layers[0], manifest.origin):
        with pytest.raises((AttributeError, TypeError)):
            value.origin = None
    with pytest.raises((AttributeError, TypeError)):
        one.args["p"]["enum"].append("y")


def test_policy_files_are_protected_by_each_of_their_paths(tmp_path: Path) -> None:
    grants = "agent: a\ncapabilities: {tools: [t], grants: ['fs:*:*'], max_side_effect_class: full}\n"
    path = write(tmp_path, licet=TOOL, manifest=grants, p="id: p\ntools: [t]\ngrants: ['fs:*:*']\n")
    manifest = load_manifest(path, personality=tmp_path / "p.yaml")
    for name in ("manifest.yaml", "licet.yaml", "p.yaml", "licet.lock"):
        for action in ("write", "delete"):
            assert not manifest.ceiling.has(f"fs:{action}:{tmp_path}/{name}")
        assert manifest.ceiling.has(f"fs:read:{tmp_path}/{name}")
    assert manifest.ceiling.has(f"fs:write:{tmp_path}/other.yaml")


def test_policy_files_with_relative_paths_are_protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "policy", manifest="agent: a\ncapabilities: {grants: ['fs:*:*']}\n")
    monkeypatch.chdir(tmp_path / "policy")
    for spelling in (
        "manifest.yaml",
        "./manifest.yaml",
        "../policy/manifest.yaml",
        f"{tmp_path}//policy/manifest.yaml",
    ):
        manifest = load_manifest(spelling)
        assert not manifest.ceiling.has(f"fs:write:{tmp_path}/policy/manifest.yaml"), spelling


def test_the_target_of_a_linked_policy_file_is_protected(tmp_path: Path) -> None:
    write(tmp_path / "real", manifest="agent: a\ncapabilities: {grants: ['fs:*:*']}\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    manifest = load_manifest(tmp_path / "link" / "manifest.yaml")
    for name in ("real", "link"):
        assert not manifest.ceiling.has(f"fs:write:{tmp_path}/{name}/manifest.yaml")


def test_json_and_yaml_give_equal_manifests(tmp_path: Path) -> None:
    data = {"agent": "a", "capabilities": {"tools": ["t"], "env": ["A"], "budget": {"max_cost_usd": 0.1}}}
    (tmp_path / "m.json").write_text(json.dumps(data))
    (tmp_path / "m.yaml").write_text("agent: a\ncapabilities: {tools: [t], env: [A], budget: {max_cost_usd: 0.10}}\n")
    assert load_manifest(tmp_path / "m.json").digest == load_manifest(tmp_path / "m.yaml").digest


def test_loading_twice_gives_equal_manifests(tmp_path: Path) -> None:
    path = write(tmp_path, licet=BUNDLES + CONNECTORS + DESTINATIONS, manifest=MANIFEST)
    assert load_manifest(path) == load_manifest(path)


# Suggestions and garbage ----------------------------------------------------------------------------------------------

_MEANT = re.compile(r"did you mean `([^`]*)`\?")
hosts = st.one_of(
    st.text(st.sampled_from("ab.*:/@[]-_%?# 0129é"), max_size=12),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(("https://", "http://u@", "//", "")),
        st.sampled_from(("a.example", "*.b", "10.0.0.0", "")),
        st.sampled_from(("/x", ":80", ":x", "/8", "", "?q")),
    ),
)
paths = st.lists(st.sampled_from(("a", "..", ".", "", "~", "${workdir}", "*", "b c")), max_size=5).map("/".join)


@pytest.mark.parametrize(
    ("words", "wrong", "hints"),
    [
        (100, 10, 10),
        (100, 500, 101),  # after a hundred problems nobody needs one
        (1000, 100, 20),
        (10_000, 100, 2),
        (20_001, 3, 0),
    ],
)
@pytest.mark.sampled(1)
def test_suggestions_are_limited_by_the_number_of_known_words(
    words: int, wrong: int, hints: int, tmp_path: Path
) -> None:
    bundles = "bundles:\n" + "".join(f"  bundle_{number}: {{tools: [t]}}\n" for number in range(words))
    named = ", ".join(f"bundel_{number}" for number in range(wrong))
    path = write(tmp_path, licet=bundles, manifest=f"agent: a\ncapabilities: {{bundles: [{named}]}}\n")
    problems = read_policy(path).problems
    assert len(problems) == wrong
    assert sum("did you mean" in problem.hint for problem in problems) == hints


def test_suggestions_for_argument_rules_are_limited(tmp_path: Path) -> None:
    tools = "".join(f"    t{number}: {{args: {{a: {{enumm: [1]}}}}}}\n" for number in range(300))
    problems = read_policy(write(tmp_path, manifest=f"agent: a\ncapabilities:\n  tools:\n{tools}")).problems
    assert len(problems) == 300
    assert sum(message("manifest_yaml.did_you_mean_enum") in problem.hint for problem in problems) == 101


def _patterns(tmp_path: Path, patterns: list[str]) -> list[str]:
    tools = "".join(f"    t{number}: {{args: {{a: {{pattern: '{one}'}}}}}}\n" for number, one in enumerate(patterns))
    path = write(tmp_path, manifest=f"agent: a\ncapabilities:\n  tools:\n{tools}")
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in read_policy(path).problems]


def test_a_pattern_that_takes_long_to_compile_is_a_problem(tmp_path: Path) -> None:
    (problem,) = _patterns(tmp_path, [r"\PL{200}"])
    assert problem == (message("manifest_yaml.manifest_yaml_pl_not_regex"))


def test_the_message_about_a_long_pattern_is_short(tmp_path: Path) -> None:
    (problem,) = _patterns(tmp_path, ["(" * 9000])
    assert len(problem) < 600


def test_a_rule_with_an_unsafe_number_is_one_problem(tmp_path: Path) -> None:
    path = write(tmp_path, manifest="agent: a\ncapabilities: {tools: {t: {args: {a: {maximum: 1e400}}}}}\n")
    (problem,) = read_policy(path).problems
    assert (problem.found, problem.expected) == ("`1e400`", message("manifest_yaml.number_double_can_hold"))


def test_the_largest_allowed_number_has_a_digest(tmp_path: Path) -> None:
    rule = f"agent: a\ncapabilities: {{tools: {{t: {{args: {{a: {{maximum: {LARGEST_INT}}}}}}}}}}}\n"
    assert load_manifest(write(tmp_path, manifest=rule)).digest.startswith("sha256:")


def test_patterns_beyond_the_limit_are_not_compiled(tmp_path: Path) -> None:
    most = MOST_PATTERNS
    assert _patterns(tmp_path, [f"^x{number}$" for number in range(most)]) == []
    (problem,) = _patterns(tmp_path, [*(f"^x{number}$" for number in range(most)), "(", "("])
    assert message("manifest_yaml.more_than_different_patterns_expected", most=most) in problem


def test_a_repeated_pattern_is_compiled_once(tmp_path: Path) -> None:
    before = checks.compiled.cache_info().misses
    assert _patterns(tmp_path, [f"^{tmp_path.name}$"] * 3000) == []
    assert checks.compiled.cache_info().misses == before + 1


def _suggested(parse: Any, text: str) -> str | None:
    try:
        parse(text)
    except Malformed as wrong:
        meant = _MEANT.search(wrong.hint)
        return meant[1] if meant else None
    return None


@given(hosts)
def test_a_suggested_host_is_valid(text: str) -> None:
    meant = _suggested(destination_rule, text)
    assert meant is None or isinstance(destination_rule(meant), Capability)


@given(paths)
def test_a_suggested_path_is_valid(text: str) -> None:
    meant = _suggested(path_key, text)
    assert meant is None or path_key(meant)


_WORDS = st.sampled_from(
    (
        "agent",
        "capabilities",
        "tools",
        "bundles",
        "a",
        "t",
        "destinations",
        "allow",
        "deny",
        "*",
        "fs:read:/a",
        "id",
        "toolset",
    )
    + (
        "max_side_effect_class",
        "full",
        "budget",
        "max_cost_usd",
        "connectors",
        "servers",
        "examples",
        "from",
        "needs",
        "args",
    )
)
_values = st.recursive(
    st.one_of(_WORDS, st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=4)),
    max_leaves=12,
)


@given(_values, st.one_of(st.none(), _values), st.booleans())
def test_any_data_gives_a_manifest_or_problems(
    tmp_path_factory: pytest.TempPathFactory, data: Any, shared: Any, named: bool
) -> None:
    place = tmp_path_factory.mktemp("any")
    path = place / ("m.json" if named else "m.yaml")
    path.write_text(json.dumps(data))
    if shared is not None:
        (place / "licet.yaml").write_text(json.dumps(shared))
    policy = read_policy(path)
    assert (policy.manifest is not None and policy.sound) or policy.problems or policy.kind == "workspace"
    if policy.manifest is not None:
        assert isinstance(policy.manifest, Manifest)
        assert policy.manifest.agent
    for problem in policy.problems:
        assert problem.origin.file in (str(path), str(place / "licet.yaml"))
        assert problem.found
        assert problem.expected
        assert str(problem).isprintable()
    shutil.rmtree(place)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_manifest_or_problems(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "m.yaml"
    path.write_bytes(b"agent: a\ncapabilities:\n  tools: [" + data + b"]\n")
    policy = read_policy(path)
    assert (policy.manifest is not None) == policy.sound
    shutil.rmtree(path.parent)


WHOLE = """agent: a
tools: {t: {needs: ["env:read:A"], effect: read_only, sandbox: restricted}}
bundles: {b: {tools: [t]}}
destinations: {allow: [%s]}
capabilities: {bundles: [b], env: [A]}
"""


def test_a_policy_of_one_file_ignores_another_policy_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text(WHOLE % "new.example")
    (tmp_path / "v1.yaml").write_text(WHOLE % "old.example")
    loaded = load_manifest(tmp_path / "v1.yaml")
    assert [str(rule.capability) for rule in loaded.layers[0].allows] == ["network:*:old.example"]
    assert loaded.files == (str(tmp_path / "v1.yaml"),)
    # A manifest without keys of a workspace still takes those of the file beside it.
    (tmp_path / "b.yaml").write_text("agent: b\ncapabilities: {bundles: [b]}\n")
    assert list(load_manifest(tmp_path / "b.yaml").admissions) == ["t"]


def test_a_workspace_key_in_a_manifest_does_not_replace_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text("destinations: {allow: []}\n")
    (tmp_path / "v1.yaml").write_text(WHOLE % "old.example")
    with pytest.raises(ManifestError, match="the workspace key `tools` although there is a separate workspace"):
        load_manifest(tmp_path / "v1.yaml")
    # Nor is a workspace that is named.
    (tmp_path / "other.yaml").write_text(WHOLE % "new.example")
    (tmp_path / "licet.yaml").unlink()
    with pytest.raises(ManifestError, match="the workspace key `tools` although there is a separate workspace"):
        load_manifest(tmp_path / "v1.yaml", workspace=tmp_path / "other.yaml")
