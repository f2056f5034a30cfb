"""`licet lint`: its formats, exit codes, policies, proposals, packages, and the flake8 plugin."""

import ast
import importlib.metadata
import json
import os
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from licet.cli.app import licet
from licet.lint.flake8 import Checker
from licet.lint.judge import RULES
from licet.lint.packages import Packages
from licet.source.project import read_tools

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
        (["--write"], "--write goes with --fix"),
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


# Proposals -----------------------------------------------------------------------------------------------------------


def test_a_proposal_is_printed_and_written_only_on_request() -> None:
    printed = lint("--fix").stdout
    assert Path("tools.py").read_text() == TOOLS
    assert '{"network": {"allowed_hosts": ["b.example.com"]}, "fs_reach": {"read": ["${workdir}/notes"]}}' in printed
    assert lint("--fix", "--write").exit_code == 0
    [spec] = read_tools("tools.py").specs
    assert [str(rule) for rule in spec.needs] == ["fs:read:${workdir}/notes", "network:*:b.example.com"]
    assert [line[-7:-1] for line in lint().stdout.splitlines()] == ["LIC201"]  # the raw use stays
    assert "every declaration fits its source" in lint("--fix").stderr


FIXES = {
    "rules": (
        'needs=["env:read:LANG"], effect="read_only"',
        "os.remove('/a')",
        'needs=["fs:delete:/a"], effect="full"',
    ),
    "nothing so far": (
        'capabilities={}, effect="read_only"',
        "open(x, 'w')",
        'capabilities={"fs_reach": {"write": "from-personality"}}, effect="write_limited"',
    ),
    "a secret": (
        "capabilities={}",
        "os.environ['API_KEY']",
        'capabilities={"secrets": ["API_KEY"]}',
    ),
    "a program": (
        "capabilities={}",
        "os.system('ls')",
        'capabilities={"process": {"allowed_binaries": ["/bin/sh"]}}',
    ),
    "a wider class": (
        'capabilities={"fs_reach": {"write": ["/a"]}}, effect="read_only"',
        "open('/a', 'w')",
        'capabilities={"fs_reach": {"write": ["/a"]}}, effect="write_limited"',
    ),
}


@pytest.mark.parametrize("name", FIXES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_what_is_proposed(name: str, ends: str) -> None:
    before, line, after = FIXES[name]
    text = f"import os\nfrom licet import tool\n# é\n@tool({{}})\ndef t(x: str) -> None:\n    {line}\n".replace(
        "\n", ends
    )
    Path("tools.py").write_bytes(text.format(before).encode())
    assert lint("--fix", "--write", "--no-packages", "tools.py").exit_code == 0
    assert Path("tools.py").read_bytes().decode() == text.format(after)
    ast.parse(text.format(after))


@pytest.mark.parametrize(
    ("declared", "why"),
    [("capabilities={\n    # why\n}", "a comment would be lost"), ("capabilities=NONE", "not written as a literal")],
)
def test_what_has_to_be_changed_by_hand(declared: str, why: str) -> None:
    text = f"from licet import tool\nNONE = {{}}\n@tool({declared})\ndef t() -> None:\n    open('/a')\n"
    Path("tools.py").write_text(text)
    result = lint("--fix", "--write", "tools.py")
    assert (Path("tools.py").read_text(), why in result.stderr) == (text, True)
    assert "add `fs:read:/a`" in result.stderr


# Packages ------------------------------------------------------------------------------------------------------------


def installed(name: str, text: str, version: str = "1.2") -> Path:
    """A virtual environment with one package."""
    site = Path(".venv/lib/python3.11/site-packages")
    (site / name).mkdir(parents=True, exist_ok=True)
    (site / name / "__init__.py").write_text(text)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    Path(".venv/pyvenv.cfg").write_text("")
    return site / name / "__init__.py"


USING = """import useful
from licet import tool
@tool(needs=[], effect='read_only', sandbox='LEVEL')
def t() -> None: ...
"""


@pytest.mark.parametrize(
    ("level", "severity", "hint"),
    [
        ("restricted", "note", "the walls stop"),
        ("isolated", "note", "the walls keep it within"),
        ("native", "warning", "nothing keeps it within"),
    ],
)
def test_a_package_that_touches_something(level: str, severity: str, hint: str) -> None:
    installed("useful", "raise SystemExit\nimport socket\ndef f():\n    open('x')\n")
    Path("tools.py").write_text(USING.replace("LEVEL", level))
    [line] = lint("tools.py").stdout.splitlines()
    assert (
        f"tools.py:1:1: {severity}: found the package `useful` 1.2, which uses files and the network by itself" in line
    )
    assert hint in line
    assert lint("--no-packages", "tools.py").stdout == ""


def test_a_package_that_only_computes_is_silent() -> None:
    installed("useful", "import json, re\ndef f(x):\n    return json.loads(x)\n")
    Path("tools.py").write_text(USING.replace("LEVEL", "native"))
    result = lint("--json", "tools.py")
    assert json.loads(result.stdout)["findings"] == []
    assert json.loads(result.stdout)["packages"] == [
        {"name": "useful", "version": "1.2", "touches": {}, "compiled": False}
    ]


def test_a_package_is_read_once_per_version(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "licet"
    source = installed("useful", "open('x')\n")
    site = str(source.parents[1])
    first = Packages([site], cache=str(cache)).scanned("useful")
    assert first is not None
    assert first.touches.keys() == {"fs"}
    source.write_text("")
    assert Packages([site], cache=str(cache)).scanned("useful") == first
    [kept] = (cache / "lint").iterdir()
    assert [oct(os.stat(path).st_mode & 0o777) for path in (cache, cache / "lint", kept)] == ["0o700", "0o700", "0o600"]
    kept.write_text('{"name": 1')
    again = Packages([site], cache=str(cache)).scanned("useful")
    assert again is not None
    assert again.touches == {}


def test_all_lists_what_code_without_tools_does() -> None:
    Path("server.py").write_text("import os\ndef f():\n    os.remove('/x')\n")
    assert lint("server.py").stdout == ""
    result = lint("--all", "server.py")
    assert (result.exit_code, "server.py:3:5: note: found `os.remove`" in result.stdout) == (0, True)
    assert "[LIC701]" in result.stdout


def test_packages_next_to_a_named_one_are_packages_and_not_the_project() -> None:
    server = installed("server", "import useful\nuseful.f()\n")
    installed("useful", "def f():\n    open('x')\n")
    found = json.loads(lint("--all", "--json", str(server)).stdout)["findings"]
    assert [(one["code"], one["file"].rpartition("/")[2]) for one in found] == [("LIC501", "__init__.py")]


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
