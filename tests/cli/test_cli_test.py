"""`licet test`: examples and test files, failures with their place, coverage, and policies that are never run."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from licet.cli.app import licet

EXAMPLES = Path(__file__).parents[2] / "examples"
POLICY = """\
agent: clerk
tools:
  read_note: {from: "tools:read_note"}
  publish: {from: "tools:publish"}
capabilities:
  tools:
    read_note: {}
    publish: {args: {url: {pattern: "^https://a[.]example/"}}}
  max_side_effect_class: write_limited
  destinations: {allow: [a.example]}
  fs_reach: {read: ["${workdir}/notes"]}
  deny: ["fs:read:${workdir}/notes/private"]
  approvals: {write: WRITE}
examples:
  match:
    - {tool: read_note, use: "fs:read:${workdir}/notes/oslo.md"}
  no_match:
    - {tool: read_note, use: "fs:read:~/.ssh/id_rsa"}
"""
TOOLS = '''\
from licet import Context, tool

@tool(needs=["fs:read:${workdir}/notes"], effect="read_only", sandbox="restricted")
async def read_note(ctx: Context, city: str) -> str:
    """A note."""

@tool(needs=["network:https:post@a.example"], effect="write_limited", sandbox="restricted")
async def publish(ctx: Context, url: str) -> str:
    """Publish."""

raise RuntimeError("this code ran")
'''
CASES = """\
cases:
  - {tool: publish, args: {url: "https://evil.example"}, verdict: deny, reason: ARGUMENT_NOT_ALLOWED}
  - {tool: publish, args: {url: "https://a.example/x"}, use: "network:https:post@a.example", verdict: ask}
"""
FAILING = """\
cases:
  - {tool: publish, args: {url: "https://a.example/x"}, verdict: allow}
  - {tool: read_note, use: "fs:read:${workdir}/notes/private/a", verdict: deny, reason: HOST_NOT_ALLOWED}
  - {tool: reed_note, verdict: deny}
"""
RULELESS = """\
agent: a
tools: {read_note: {from: "tools:read_note"}}
examples: {no_match: [{tool: read_note, use: "./a"}]}
"""
FAILURES = [
    "4:5: error: found the tool `reed_note`, expected a tool that the policy knows; did you mean `read_note`?",
    '2:5: failed: `publish` with {"url": "https://a.example/x"}: expected allow, found ask, because ASKS',
    "3:5: failed: `read_note` may fs:read:${workdir}/notes/private/a: expected deny (HOST_NOT_ALLOWED), found DENIED",
]
ASKS = "class write_limited asks once a session (.licet/licet.yaml:13)"
DENIED = "deny (PATH_NOT_REACHABLE), because denied by fs:read:PROJECT/notes/private (.licet/licet.yaml:12)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a policy, one good test file, and tools that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    write(".licet/licet.yaml", POLICY.replace("WRITE", "session"))
    write(".licet/tests/a.yaml", CASES)
    write("tools.py", TOOLS)
    return tmp_path


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["test", *words])


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "summary"),
    [
        ([], "4 passed, 0 failed"),
        (["."], "4 passed, 0 failed"),
        ([".licet/licet.yaml"], "4 passed, 0 failed"),
        ([".licet/tests/a.yaml"], "2 passed, 0 failed"),
        ([".licet/tests/a.yaml", ".licet/licet.yaml"], "6 passed, 0 failed"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_examples_and_test_files_run_and_no_tool_is_imported(words: list[str], summary: str) -> None:
    result = run(*words)
    assert (result.stdout, result.stderr.strip(), result.exit_code) == ("", summary, 0)


def test_a_failure_is_one_line_with_its_place_and_the_rules_that_decided(project: Path) -> None:
    write(".licet/tests/f.yaml", FAILING)
    result = run()
    lines = [line.replace("ASKS", ASKS).replace("DENIED", DENIED) for line in FAILURES]
    expected = [f".licet/tests/f.yaml:{line}" for line in lines]
    assert result.stdout.replace(str(project), "PROJECT").splitlines() == expected
    assert result.stderr == "4 passed, 2 failed, 1 error\n"
    assert result.exit_code == 1


@pytest.mark.usefixtures("project")
def test_json_has_every_case_with_what_was_found() -> None:
    write(".licet/tests/f.yaml", FAILING)
    result = run("--json", "--coverage")
    found = json.loads(result.stdout)
    assert (found["passed"], found["failed"], found["errors"], result.exit_code) == (4, 2, 1, 1)
    assert [case["passed"] for case in found["cases"]] == [True, True, True, True, False, False]
    failed = found["cases"][4]
    assert (failed["file"], failed["line"], failed["tool"]) == (".licet/tests/f.yaml", 2, "publish")
    assert (failed["expected"], failed["verdict"]) == ({"verdicts": ["allow"], "reason": None}, "ask")
    assert failed["rules"][0]["origin"]["line"] == 13
    assert found["problems"][0]["line"] == 4
    assert found["coverage"] == {"rules": 6, "covered": 6, "percent": 100.0, "missing": []}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        (["--coverage"], 0, "5 of 6 rules covered, 83.3 %"),
        (["--fail-under", "83"], 0, "5 of 6 rules covered, 83.3 %"),
        (["--fail-under", "84"], 1, "expected at least 84 % of the rules to be covered"),
        (["--fail-under", "101"], 2, "Error: Invalid value for '--fail-under': 101.0 is not in the range 0<=x<=100."),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_coverage_lists_the_rules_that_no_example_exercises(words: list[str], code: int, last: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (code, last)
    if code != 2:
        assert result.stdout == ".licet/licet.yaml:12:10: not covered: deny fs:read:${workdir}/notes/private\n"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("files", "words", "text"),
    [
        ({".licet/licet.yaml": "agent: a\ncapabilites: {}\n"}, [], "did you mean `capabilities`?"),
        ({".licet/tests/a.yaml": "cases: [{tool: t}]\n"}, [], ".licet/tests/a.yaml:1:9: error: "),
        ({"x.yaml": "cases: []\n"}, ["x.yaml"], "x.yaml:1:1: error: found no `policy`, expected the manifest"),
        ({}, ["gone.yaml"], "gone.yaml:1:1: error: found no file there, expected a policy file"),
        ({"empty/x": ""}, ["empty"], "empty:1:1: error: found a directory without a policy, expected"),
        ({"x.yaml": "agent: a\n"}, ["x.yaml"], "there is nothing to run: write `examples:` in the manifest"),
        ({"x.yaml": RULELESS}, ["x.yaml", "--coverage"], "there is no rule to cover: the policy allows nothing"),
        ({"w/licet.yaml": "bundles: {}\n"}, ["w"], "w/licet.yaml:1:1: error: found a workspace, expected a manifest"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_run_fails_with_the_reason(files: dict[str, str], words: list[str], text: str) -> None:
    for name, content in files.items():
        write(name, content)
    result = run(*words)
    assert text in result.output
    assert result.exit_code == 1


def test_without_a_policy_here_a_path_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run()
    assert (result.exit_code, "there is no .licet/licet.yaml" in result.output) == (2, True)


@pytest.mark.usefixtures("project")
def test_a_policy_counts_as_accepted_and_its_lock_need_not_be_written_yet() -> None:
    write(".licet/licet.yaml", POLICY.replace("WRITE", "manifest"))
    write(".licet/licet.lock", '{"stale": true}')
    write(".licet/tests/a.yaml", 'cases: [{tool: publish, use: "network:https:post@a.example", verdict: allow}]\n')
    result = run()
    assert (result.output, result.exit_code) == ("3 passed, 0 failed\n", 0)


@pytest.mark.usefixtures("project")
def test_a_test_file_is_run_with_the_policy_that_it_names_alone() -> None:
    write("next.yaml", POLICY.replace("WRITE", "call").replace("agent: clerk", "agent: next"))
    write(".licet/tests/next.yaml", "policy: ../../next.yaml\ncases: [{tool: read_note, verdict: allow}]\n")
    assert run().stderr == "7 passed, 0 failed\n"  # of both policies in the directory
    assert run("next.yaml").stderr == "3 passed, 0 failed\n"


def test_the_working_directory_is_the_value_of_workdir(project: Path) -> None:
    absolute = f'cases: [{{tool: read_note, use: "fs:read:{project}/other/notes/a", verdict: allow}}]\n'
    write(".licet/tests/a.yaml", absolute)
    assert run().exit_code == 1
    assert run("--workdir", "other").exit_code == 0


def test_the_first_test_of_a_new_policy_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("tools.py", TOOLS.partition("\nraise")[0])
    assert CliRunner().invoke(licet, ["init", "tools.py"]).exit_code == 0
    assert (run().stdout, run().exit_code) == ("", 0)


AGENTS = ["coding", "payments", "research", "weather"]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_examples_of_our_own_agents_pass(agent: str) -> None:
    result = run(os.path.relpath(EXAMPLES / agent))
    assert result.exit_code == 0, result.output


def test_every_agent_with_examples_is_tested() -> None:
    having = {path.parent.name for path in EXAMPLES.glob("*/*.yaml") if "\nexamples:" in path.read_text("utf-8")}
    assert having == set(AGENTS)


def test_every_manifest_of_a_directory_is_tested_and_a_broken_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text("tools: {t: {needs: ['fs:read:/srv'], effect: read_only}}\n")
    example = "examples: {match: [{tool: t, use: 'fs:read:/srv/a'}]}"
    allowed = "{tools: {t: {sandbox: restricted}}, fs_reach: {read: [/srv]}}"
    for name in ("a.yaml", "b.YAML"):
        (tmp_path / name).write_text(f"agent: {name[0]}\ncapabilities: {allowed}\n{example}\n")
    ended = CliRunner().invoke(licet, ["test", str(tmp_path)])
    assert (ended.exit_code, "2 passed" in ended.output) == (0, True), ended.output
    (tmp_path / "c.yaml").write_text("agent: c\ncapabilities: {tols: []}\n")
    broken = CliRunner().invoke(licet, ["test", str(tmp_path)])
    assert (broken.exit_code, "c.yaml:2" in broken.output) == (1, True), broken.output
