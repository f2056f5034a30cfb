"""The cases of the YAML files here, against the library and against the command line."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from licet import decide, load_manifest, validate_registration
from licet.assemble.acceptance import with_standing
from licet.cli.app import licet
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted, events
from licet.core.decision.reach import reach_of
from licet.core.decision.validate import Category, unmet_needs
from licet.policy_files.load import read_policy

from .cases import DOCUMENTS, HOME, MANIFEST, Case, Registration, Trouble, World, cases, filled

_FILES = ("decisions", "effects", "ceilings", "bundles", "connectors", "optional")
DECISIONS = tuple(cases(Case, *(f"{name}.yaml" for name in _FILES), *DOCUMENTS))
REGISTRATIONS = (*cases(Registration, "registration.yaml"), *cases(Registration, *DOCUMENTS, key="registrations"))
TROUBLES = tuple(cases(Trouble, "problems.yaml"))


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in, so that files are named as a person would name them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("HOME", HOME)
    return tmp_path


def run(*words: str, personality: str | None) -> tuple[int, Any]:
    """The exit code of a command and the JSON that it prints."""
    second = ["--personality", personality] if personality else []
    result = CliRunner().invoke(licet, [*words, "--json", *second])
    return result.exit_code, json.loads(result.stdout)


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in (*DECISIONS, *REGISTRATIONS, *TROUBLES)]
    assert sorted(set(names)) == sorted(names)


# Decisions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: case.name)
@pytest.mark.sampled(130)
def test_the_library_decides(case: Case, place: Path) -> None:
    manifest = load_manifest(MANIFEST, personality=case.write(place)).expand(str(place), HOME)
    if case.standing:
        manifest = with_standing(manifest, place / MANIFEST)
    decision = decide(case.request(place), manifest, case.spent(manifest))

    assert (decision.verdict, getattr(decision, "reason", "")) == (case.verdict, case.reason)
    if case.rules is not None:
        assert [str(rule) for rule in decision.rules] == [filled(rule, place) for rule in case.rules]
    if case.fix is not None:
        assert [rule.fix for rule in decision.rules if rule.fix] == case.fix

    last = events(decision)[-1]
    assert type(last) is (CapabilityGranted if case.verdict == "allow" else CapabilityDenied)
    assert last.tool_name == case.tool


@pytest.mark.parametrize(
    "case", [case for case in DECISIONS if not (case.usage or case.arguments or case.asked)], ids=lambda case: case.name
)
@pytest.mark.sampled(35)
def test_the_command_line_decides_alike(case: Case, place: Path) -> None:
    use = [filled(case.use, place)] if case.use else []
    personality = case.write(place)
    code, said = run("explain", MANIFEST, case.tool, *use, personality=personality)

    # A tool that does not fit is not registered, so nothing that it asks is allowed, and the misfit is told too.
    unfit = _needs_unmet(case.tool, personality, place)
    verdict = "deny" if unfit else case.verdict
    assert (code, said["verdict"]) == (0 if verdict == "allow" else 1, verdict)
    if verdict == case.verdict:
        assert said["reason"] == {"allow": None, "ask": "APPROVAL_REQUIRED", "deny": case.reason}[verdict]
    told = [_ground(rule) for rule in said["rules"]]
    own = [rule for rule in told if rule not in unfit]
    if verdict == case.verdict and case.rules is not None:
        assert own == [*(filled(rule, place) for rule in case.rules), *case.foreseen]
    if verdict == case.verdict and case.fix is not None:
        advised = [rule["fix"] for rule in said["rules"] if rule["fix"] and _ground(rule) in own]
        assert advised == [*case.fix, *case.foreseen.values()]
    fixes = " ".join(rule["fix"] or "" for rule in said["rules"])
    assert all(text in told or fix in fixes for text, fix in unfit.items())


def _needs_unmet(tool: str, personality: str | None, place: Path) -> dict[str, str]:
    """What a tool needs and does not get, each with what would give it."""
    reach = reach_of(load_manifest(MANIFEST, personality=personality).expand(str(place), HOME), tool)
    return {str(ground): ground.fix for ground in unmet_needs(reach)} if reach is not None else {}


def _ground(rule: dict[str, Any]) -> str:
    origin = rule["origin"]
    return f"{rule['text']} ({origin['file']}:{origin['line']})" if origin else str(rule["text"])


# Registration ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REGISTRATIONS, ids=lambda case: case.name)
def test_the_library_finds_the_misfits(case: Registration, place: Path) -> None:
    manifest = load_manifest(MANIFEST, personality=case.write(place))
    found = validate_registration(case.spec, manifest)
    assert {misfit.tool for misfit in found} <= {"t"}
    assert [misfit.capability for misfit in found] == [capability for capability, _ in case.misfits]
    for misfit, (_, message) in zip(found, case.misfits, strict=True):
        assert message in misfit.message
        # Whatever stands in the way stands somewhere, unless it is that nobody says anything.
        assert (".yaml:" in misfit.message) != misfit.message.startswith(("no class is", "no level is"))


@pytest.mark.parametrize("case", [case for case in REGISTRATIONS if case.runs_at], ids=lambda case: case.name)
def test_narrowing_runs_at_the_tighter_class_and_level(case: Registration, place: Path) -> None:
    manifest = load_manifest(MANIFEST, personality=case.write(place)).declare([case.spec], narrow=True)
    reach = reach_of(manifest, "t")
    assert reach is not None
    assert f"{reach.effect} {reach.level}".lower() == case.runs_at
    assert bool(reach.grounds) == (case.runs_at == "none none")


@pytest.mark.parametrize("case", REGISTRATIONS, ids=lambda case: case.name)
@pytest.mark.sampled(21)
def test_the_command_line_finds_the_same_misfits(case: Registration, place: Path) -> None:
    personality = case.write(place)
    # The workspace declares the tool, where the library was handed it.
    declared = {
        "needs": case.needs,
        "optional": case.optional,
        "effect": case.effect,
        "sandbox": case.sandbox,
        "connector": case.connector,
    }
    tools = {"t": {key: value for key, value in declared.items() if value or key == "needs"}}
    with (place / "licet.yaml").open("a") as workspace:
        workspace.write(f"tools: {json.dumps(tools)}\n")

    code, said = run("check", MANIFEST, personality=personality)
    errors = [problem["found"] for problem in said["problems"] if problem["severity"] == "error"]
    if any(capability == "tool:call:t" for capability, _ in case.misfits):
        assert (code, errors) == (0, [])  # a tool for other agents is no problem of this manifest
        return
    assert code == (1 if case.misfits else 0)
    assert len(errors) == len(case.misfits)
    told = [problem["misfit"] for problem in said["problems"] if problem["severity"] == "error"]
    assert sorted(one["capability"] for one in told) == sorted(capability for capability, _ in case.misfits)
    for one in told:
        assert one.keys() == {"tool", "category", "capability", "message", "fix"}
        assert one["tool"] == "t"
        assert one["category"] in get_args(Category)
    for _, message in case.misfits:
        # The place of what the library was handed is nowhere; here it is a line of the workspace.
        assert any(message in error for error in errors)


# Problems -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TROUBLES, ids=lambda case: case.name)
def test_the_library_reports_every_problem(case: Trouble, place: Path) -> None:
    policy = read_policy(case.check, personality=case.write(place))
    fatal = any("severity" not in expected for expected in case.problems)
    assert (policy.manifest is None) == fatal == (not policy.sound)
    assert [problem.origin.full for problem in policy.problems] == [expected["at"] for expected in case.problems]
    for problem, expected in zip(policy.problems, case.problems, strict=True):
        _assert_says(problem.found, problem.expected, problem.hint, problem.severity, expected)
        assert expected["at"] in str(problem)


@pytest.mark.parametrize("case", TROUBLES, ids=lambda case: case.name)
@pytest.mark.sampled(40)
def test_the_command_line_reports_every_problem(case: Trouble, place: Path) -> None:
    code, said = run("check", case.check, personality=case.write(place))
    fatal = [expected for expected in case.problems if "severity" not in expected]
    assert code == (1 if fatal else 0)
    # Beyond reading a file, `check` warns about tools that no file declares.
    reported = [problem for problem in said["problems"] if "without a declaration" not in problem["found"]]
    places = [f"{problem['file']}:{problem['line']}:{problem['column']}" for problem in reported]
    assert places == [expected["at"] for expected in case.problems]
    for problem, expected in zip(reported, case.problems, strict=True):
        hint = problem["hint"] or ""
        _assert_says(problem["found"], problem["expected"], hint, problem["severity"], expected)


def _assert_says(found: str, wanted: str, hint: str, severity: str, expected: Any) -> None:
    assert expected.keys() <= {"at", "found", "expected", "hint", "severity"}
    assert expected["found"] in found
    assert expected["expected"] in wanted
    if "hint" in expected:
        assert expected["hint"] in hint
        assert bool(expected["hint"]) == bool(hint)  # every text holds the empty one
    assert severity == expected.get("severity", "error")


def test_worlds_are_written_as_they_are(place: Path) -> None:
    World(name="bytes", files={"a": b"\xff", "b": "é"}).write(place)
    assert ((place / "a").read_bytes(), (place / "b").read_bytes()) == (b"\xff", "é".encode())
