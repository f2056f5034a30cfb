"""The examples of policies as tests of pytest: which are collected, and what a failure says."""

import pytest

import licet.pytest_plugin
import licet.testing
from licet.assemble import Places
from licet.assemble.policy_tests import run_examples

pytest_plugins = ["pytester"]

POLICY = """\
agent: clerk
tools: {read: {needs: ["fs:read:${workdir}/notes"], effect: read_only, sandbox: restricted}}
capabilities: {tools: [read], fs_reach: {read: ["${workdir}/notes"]}}
examples:
  match:
    - {tool: read, use: "fs:read:${workdir}/notes/a"}
  no_match:
    - {tool: read, use: "fs:read:${workdir}/notes/b"}
"""
CASES = """\
cases:
  - {name: nothing else is read, tool: read, use: "fs:read:/etc/passwd", verdict: deny}
  - {tool: reed, verdict: deny}
"""
FAILED = "*.licet/licet.yaml:8:7: failed: `read` may fs:read:${workdir}/notes/b: expected deny, found allow, because*"
UNKNOWN = "*.licet/tests/a.yaml:3:5: error: found the tool `reed`, expected a tool that the policy knows; did you mean*"


@pytest.fixture(autouse=True, scope="module")
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import all that the tests need before `pytester` starts.

    It forgets the modules that were first imported while it ran. A second copy of one would have other classes.
    """
    assert licet.testing.pytest_plugins == (licet.pytest_plugin.__name__,)
    path = tmp_path_factory.mktemp("policy") / "licet.yaml"
    path.write_text(POLICY)
    assert len(run_examples([path], Places.here()).outcomes) == 2


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with the plugin, a policy whose examples fail in part, a test file and a test of its own."""
    pytester.makeconftest('pytest_plugins = ["licet.testing"]')
    pytester.makepyfile(test_own="def test_own(): pass")
    tests = pytester.mkdir(".licet") / "tests"
    tests.mkdir()
    (tests.parent / "licet.yaml").write_text(POLICY)
    (tests / "a.yaml").write_text(CASES)
    return pytester


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *words)


@pytest.mark.parametrize("ini", ["", "testpaths = test_own.py"])
def test_configured_policies_run_with_the_tests_of_the_project(project: pytest.Pytester, ini: str) -> None:
    project.makeini(f"[pytest]\n{ini}\nlicet_policies = .licet/licet.yaml\n")
    result = run(project)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines([FAILED, UNKNOWN])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_paths_on_the_command_line_replace_the_configured_ones(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nlicet_policies = .licet/licet.yaml\n")
    run(project, "test_own.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("word", "passed", "failed"),
    [(".licet/licet.yaml", 2, 2), (".licet/tests/a.yaml", 1, 1)],
)
def test_a_named_file_is_run(project: pytest.Pytester, word: str, passed: int, failed: int) -> None:
    result = run(project, word, "-v")
    result.assert_outcomes(passed=passed, failed=failed)
    result.stdout.fnmatch_lines(["*a.yaml*line 2: nothing else is read*PASSED*"])


def test_without_a_path_or_a_setting_no_policy_is_run(project: pytest.Pytester) -> None:
    (project.path / "other.yaml").write_text("not: policy\n")
    run(project).assert_outcomes(passed=1)


def test_a_policy_with_errors_is_an_error_of_its_file(project: pytest.Pytester) -> None:
    (project.path / ".licet" / "licet.yaml").write_text("agent: a\ncapabilites: {}\n")
    result = run(project, ".licet/licet.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*.licet/licet.yaml:2:1: error: found the key `capabilites`, *did you mean*"])
