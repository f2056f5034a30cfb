"""`licet lint`: its formats, exit codes, policies, proposals, packages, and the flake8 plugin."""

import ast
import importlib.metadata
import json
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from licet.cli.app import licet
from licet.lint.flake8 import Checker
from licet.lint.judge import RULES

ROOT = Path(__file__).parents[2]
TOOLS = """from helpers import load
from licet import Context, tool


@tool(capabilities={"network": {"allowed_hosts": ["a.example.com"]}}, effect="read_only", sandbox="restricted")
async def report(ctx: Context, name: str) -> str:
    await ctx.fetch("https://b.example.com/x")
    return load(name)
"""
HELPERS = """def load(name):
    with open(f"notes/{name}") as file:
        return file.read()
"""
FOUND = ["helpers.py:2 LIC101", "tools.py:5 LIC401", "tools.py:7 LIC102"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("tools.py").write_text(TOOLS)
    Path("helpers.py").write_text(HELPERS)


def lint(*words: str) -> Result:
    return CliRunner().invoke(licet, ["lint", *words], catch_exceptions=False)


def test_text_has_a_line_for_each_finding_and_a_summary() -> None:
    result = lint()
    lines = result.stdout.splitlines()
    assert [f"{line.split(':')[0]}:{line.split(':')[1]} {line[-7:-1]}" for line in lines] == FOUND
    assert (result.exit_code, result.stderr) == (1, "1 tool in 2 files, 2 errors, 1 warning\n")


def test_json_has_the_way_and_the_capability() -> None:
    said = json.loads(lint("--json", "tools.py").stdout)
    assert (said["errors"], said["warnings"], said["notes"], said["tools"]) == (2, 1, 0, ["report"])
    first = said["findings"][0]
    assert first["capability"] == "fs:read:${workdir}/notes"
    assert first["way"][1] == {"name": "load", "called": {"file": "tools.py", "line": 8, "column": 1}}


def test_sarif_has_the_rules_and_the_way() -> None:
    [run] = json.loads(lint("--sarif").stdout)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["LIC101", "LIC102", "LIC401"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    place = run["results"][0]["relatedLocations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("tools.py", 8)


def test_github_gets_annotations_with_escaped_text() -> None:
    Path("a,b:c").mkdir()
    Path("a,b:c/tools.py").write_text(
        TOOLS.replace("load(name)", "open('100%')").replace("from helpers import load", "")
    )
    lines = lint("--github", "a,b:c").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "::warning file=a%2Cb%3Ac/tools.py",
        *["::error file=a%2Cb%3Ac/tools.py"] * 2,
    ]
    assert "100%25" in lines[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--sarif"], "--json, --sarif and --github exclude each other"),
        (["none.py"], "there is no none.py"),
    ],
)
def test_a_bad_command_line(words: list[str], said: str) -> None:
    result = lint(*words)
    assert (result.exit_code, said in result.stderr) == (2, True)


POLICY = """agent: a
tools: {report: {from: "tools:report"}}
capabilities:
  tools: {report: {sandbox: LEVEL}}
  native: [report]
  fs_reach: {read: ["${workdir}"]}
  destinations: {allow: [a.example.com]}
"""


@pytest.mark.parametrize(("level", "severity"), [("native", "warning"), ("restricted", "error")])
def test_a_policy_states_the_level(level: str, severity: str) -> None:
    Path("tools.py").write_text(
        'from licet import tool\n@tool(needs=["fs:read:*"], effect="read_only")\n'
        "def report(name: str) -> str:\n    open(name)\n"
    )
    Path("licet.yaml").write_text(POLICY.replace("LEVEL", level))
    assert f"tools.py:4:5: {severity}: found `open`" in lint("licet.yaml").stdout


def test_check_reports_undeclared_uses() -> None:
    Path("licet.yaml").write_text(POLICY.replace("LEVEL", "restricted").replace("  native: [report]\n", ""))
    result = CliRunner().invoke(licet, ["check", "--sarif"])
    found = [one["ruleId"] for one in json.loads(result.stdout)["runs"][0]["results"]]
    assert (result.exit_code, found) == (1, ["LIC101", "LIC102"])
    plain = CliRunner().invoke(licet, ["check", "--github"])
    assert plain.stdout.startswith("::error file=helpers.py,line=2,col=10,title=licet LIC101::found `open`")


def test_all_lists_what_code_without_tools_does() -> None:
    Path("server.py").write_text("import os\ndef f():\n    os.remove('/x')\n")
    assert lint("server.py").stdout == ""
    result = lint("--all", "server.py")
    assert (result.exit_code, "server.py:3:5: note: found `os.remove`" in result.stdout) == (0, True)
    assert "[LIC701]" in result.stdout


# Elsewhere -----------------------------------------------------------------------------------------------------------


def flake8(path: str, text: str) -> list[tuple[int, int, str]]:
    lines = text.splitlines(keepends=True)
    return [(line, column, said) for line, column, said, _ in Checker(ast.parse(text), path, lines).run()]


def test_flake8_sees_the_text_of_the_editor_and_helpers_at_their_calls() -> None:
    found = flake8("tools.py", TOOLS.replace("b.example.com", "c.example.com"))
    assert [(line, said[:6]) for line, _, said in found] == [(8, "LIC101"), (5, "LIC401"), (7, "LIC102")]
    assert found[0][2].endswith("at helpers.py:2")
    assert "c.example.com" in found[2][2]
    assert flake8("helpers.py", HELPERS) == []


def test_flake8_finds_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [(name, value)] = project["entry-points"]["flake8.extension"].items()
    assert importlib.metadata.EntryPoint(name, value, "flake8.extension").load() is Checker
    assert all(code.startswith(name) for code in RULES)


def test_the_hooks_and_the_action_run_commands_that_exist() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [hook["entry"].split()[:2] for hook in hooks] == [["licet", "check"], ["licet", "lint"], ["licet", "diff"]]
    steps = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    run = "".join(step.get("run", "") for step in steps)
    assert 'bin/licet" check --github' in run
    assert 'bin/licet" lint --github' in run


def test_the_examples_and_the_ready_made_tools_have_no_finding() -> None:
    said = json.loads(lint("--json", str(ROOT / "examples"), str(ROOT / "src" / "licet" / "tools")).stdout)
    assert (said["findings"], len(said["tools"]) > 15) == ([], True)


def test_check_says_that_a_warning_is_an_error_of_lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    needs = 'needs=["fs:read:/srv"], effect="read_only", sandbox="restricted"'
    Path("tools.py").write_text(f"from licet import tool\n\n@tool({needs})\ndef t():\n    open('/srv/a')\n")
    text = "agent: a\ntools: {t: {from: 'tools:t'}}\ncapabilities: {tools: [t], fs_reach: {read: [/srv]}}\n"
    Path("m.yaml").write_text(text)
    found = {}
    for name, words in {"lint": ("lint", "tools.py"), "check": ("check", "m.yaml")}.items():
        lines = CliRunner().invoke(licet, [*words]).stdout.splitlines()
        found[name] = next(line for line in lines if "LIC201" in line)
    assert (": error: " in found["lint"], ": warning: " in found["check"]) == (True, True)
    assert "an error of `licet lint`, not of the policy" in found["check"]
    assert "an error of" not in found["lint"]
