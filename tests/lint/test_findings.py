"""The findings of `licet lint` about small projects: levels, handles, helpers, suppressions, unused declarations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from licet.lint.judge import RULES
from licet.lint.linter import Lint, Report
from licet.policy_files.policy_paths import shown_path
from licet.source.source_files import Project, python_files

CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "findings.yaml").read_text("utf-8"))
IMPORTS = "from licet import Context, tool\n"


def cases() -> Iterator[Any]:
    for name, case in CASES.items():
        for level, findings in case.get("levels", {None: case.get("findings")}).items():
            yield pytest.param(
                case["files"], level, findings, id=name if level is None else f"{name}, {level or 'none'}"
            )


def write(files: dict[str, str], level: str | None = None) -> None:
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        stated = f', sandbox="{level}"' if level else ""
        path.write_text((IMPORTS if "@tool" in text else "") + text.replace("LEVEL", stated))


def linted(*paths: str) -> Report:
    lint = Lint(Project(shown_path))
    for path in python_files(paths or (".",)):
        lint.add_file(path)
    return lint.report()


def shown(report: Report) -> list[str]:
    return [
        f"{one.origin.file}:{one.origin.line} {one.severity} {one.code} {','.join(one.tools)}"
        for one in report.findings
    ]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("files", "level", "findings"), list(cases()))
def test_the_findings_of_a_project(files: dict[str, str], level: str | None, findings: list[str]) -> None:
    write(files, level)
    assert shown(linted()) == findings


def test_the_way_to_a_line_is_shown() -> None:
    write(CASES["helpers in other files, over several steps and in circles"]["files"])
    [finding] = linted("tools.py").findings
    assert [hop.name for hop in finding.way] == ["t", "first", "second", "third"]
    assert [str(hop.called) for hop in finding.way[1:]] == ["tools.py:6", "package/one.py:3", "package/two.py:4"]
    assert str(finding).endswith("(t → first → second → third, and of 1 more) [LIC101]")


def test_each_rule_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text("utf-8")
    for rule in RULES.values():
        assert f"| `{rule.code}` | `{rule.name}` | {rule.about} |" in page


def test_the_cases_have_every_rule_that_a_project_can_break() -> None:
    known = {
        line.split()[2]
        for case in CASES.values()
        for each in case.get("levels", {"": case.get("findings")}).values()
        for line in each
    }
    assert set(RULES) - known == {"LIC701"}  # of `--all`: tested apart


def test_a_module_is_read_from_its_text_and_never_run() -> None:
    write(
        {
            "tools.py": "import helper\nraise SystemExit\n@tool(needs=[])\ndef t(): ...\n",
            "helper.py": "raise SystemExit",
        }
    )
    assert [tool.spec.name for tool in linted().tools] == ["t"]


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(lambda: " * 80 + "0" + ")" * 80,
        "a = b = c = a\nb.x()\na.y.z()\n",
        "class A(B): ...\nclass B(A): ...\nA().x()\n",
        "x = " + " / ".join(["x"] * 2000) + "\nx.unlink()\n",
        "x" + ".a()" * 90 + "\n",
        "class A:\n    class B:\n        def f(): ...\n        f()\n",
        "\n".join(f"v{n} = v{n + 1} / v{n + 1}" for n in range(60)) + "\nv0.unlink()\n",
    ],
    ids=[
        "lambdas",
        "names bound to each other",
        "bases of each other",
        "a long path",
        "a long chain",
        "a class in a class",
        "doubling",
    ],
)
def test_hostile_code_ends(text: str) -> None:
    write({"tools.py": f"@tool(needs=[])\ndef t(): ...\n{text}"})
    assert len(linted().tools) == 1


def test_one_run_reads_a_limited_number_of_tokens() -> None:
    names = [f"h{number}" for number in range(4)]
    write({"tools.py": f"import {', '.join(names)}\n@tool(needs=[])\ndef t(): ...\n"})
    write({f"{name}.py": "value = 1\n" * 100 for name in names})  # 400 tokens each
    lint = Lint(Project(shown_path, most_tokens=1000))
    lint.add_file("tools.py")
    report = lint.report()
    assert [line.split()[1:3] for line in shown(report)] == [["warning", "LIC601"]] * 2
    assert report.files == 3


AT_IMPORT = """from pathlib import Path

Path("/srv/out").mkdir()

def prepare() -> None:
    Path("/srv/more").mkdir()

prepare()

@tool(needs=["fs:read:/srv/notes"], effect="read_only", sandbox="restricted")
def t() -> None:
    Path("/srv/own").mkdir()

if __name__ == "__main__":
    Path("/srv/main").mkdir()
"""


def test_code_that_runs_at_import_is_to_be_moved_and_not_to_be_declared() -> None:
    write({"tools.py": AT_IMPORT})
    found = {one.origin.line: (one.expected, one.hint) for one in linted().findings if one.code == "LIC101"}
    moved = "no such use while the module is imported", 'move it below `if __name__ == "__main__":`'
    assert found.keys() == {4, 7, 13}
    assert [(found[line][0], found[line][1].partition(",")[0]) for line in (4, 7)] == [moved, moved]
    assert found[13][0].endswith("in the declaration of `t`")
