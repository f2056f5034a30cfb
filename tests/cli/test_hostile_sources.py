"""Source files that are made to cost memory: a review refuses them before they are parsed, and says why."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cli.messages import message
from effort import LONG
from licet.core.policy.tool import ToolSpec
from licet.core.values import Problem
from licet.source.declarations import Modules, find_tool, read_tools
from licet.source.limits import MOST_BYTES_IN_REVIEW, MOST_TOKENS, MOST_TOKENS_IN_REVIEW
from licet.source.project import project_modules
from licet.source.source_files import token_count

MOST_MEMORY = 200_000  # kB
TOOL = 'from licet import tool\n@tool(needs=[], effect="read_only")\ndef %s() -> str: ...\n'
CHECK = """
import re, sys
from licet.cli.app import licet
try:
    licet(["check", "agent.yaml"])
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
"""


def filled(tool: str, unit: str, tokens: int = MOST_TOKENS) -> str:
    """A module with one tool, and a unit repeated until it has almost that many tokens."""
    head = TOOL % tool
    return head + unit * ((tokens - token_count(head)) // token_count(unit))


def distinct(tool: str, names: int = MOST_TOKENS // 2 - 20) -> str:
    return TOOL % tool + "import " + ",".join(f"n{number:x}" for number in range(names)) + "\n"


def linked() -> Mapping[str, str]:
    return {"m0": TOOL % "f0" + "a;" * 250_000, **{f"m{number}": "m0.py" for number in range(1, 4)}}


HOSTILE: dict[str, Callable[[], Mapping[str, str]]] = {
    "one file of many names": lambda: {"m0": TOOL % "f0" + "a;" * 250_000},
    "links to it": linked,
    "just below the bound": lambda: {f"m{number}": filled(f"f{number}", "a\n") for number in range(5)},
    "many names that are kept": lambda: {
        **{f"m{number}": distinct(f"f{number}") for number in range(2)},
        "m2": filled("f2", "a\n", MOST_TOKENS - 1000),
    },
    "an imported file": lambda: {"m0": TOOL % "f0" + "import other\n", "other": "a;" * 250_000},
    "many imported files": lambda: {
        "m0": TOOL % "f0" + "import " + ",".join(f"o{number}" for number in range(5)),
        **{f"o{number}": filled("g", "a;") for number in range(5)},
    },
    "imports of many names": lambda: {"m0": distinct("f0")},
    "a long name": lambda: {"m0": TOOL % "f0" + "import a" + " . \\\n a\u00b7" * 15_000},
    "imports of long names": lambda: {"m0": TOOL % "f0" + "import other\n", "other": "import a" + ".a" * 49_000},
}


def write(directory: Path, sources: Mapping[str, str]) -> None:
    for module, text in sources.items():
        if text.endswith(".py"):
            (directory / f"{module}.py").symlink_to(text)
        else:
            (directory / f"{module}.py").write_text(text, encoding="utf-8")
    tools = [f"f{module[1:]}" for module in sources if module.startswith("m")]
    named = "".join(f"  {tool}: {{from: 'm{tool[1:]}:{tool}'}}\n" for tool in tools)
    allowed = f"capabilities: {{tools: [{', '.join(tools)}], max_side_effect_class: read_only}}\n"
    (directory / "agent.yaml").write_text(f"agent: a\ntools:\n{named}{allowed}", encoding="utf-8")


SLOW = {"just below the bound", "many names that are kept"}  # cases that take long: tried with LICET_LONG=1
TRIED = {name: made for name, made in HOSTILE.items() if LONG or name not in SLOW}


@pytest.mark.parametrize("sources", TRIED.values(), ids=TRIED)
@pytest.mark.sampled(1)
def test_check_stays_small_whatever_the_sources_are(tmp_path: Path, sources: Callable[[], Mapping[str, str]]) -> None:
    write(tmp_path, sources())
    ran = subprocess.run([sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    assert "Traceback" not in ran.stderr
    assert int(ran.stderr.split()[-1]) <= MOST_MEMORY


def test_a_file_of_too_many_tokens_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("a;" * MOST_TOKENS, encoding="utf-8")
    found = read_tools(tmp_path / "m.py", "m.py")
    assert list(map(str, found.problems)) == [message("hostile_sources.py_tokens_expected_most_one")]


def test_a_dotted_name_that_is_too_long_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import a" + ".a" * 101, encoding="utf-8")
    found = read_tools(tmp_path / "m.py", "m.py")
    assert list(map(str, found.problems)) == [message("hostile_sources.py_name_dots_expected_most")]


@pytest.mark.parametrize("text", ["f'{a}{a}'", "a\r", "a\n", "-~-a", "é.é"])
def test_all_that_becomes_a_node_is_counted(text: str) -> None:
    assert token_count(text) == len(re.findall(r"\w|[^\w\s]|\s", text)) - text.count(" ")


def test_a_long_file_of_ordinary_code_is_read(tmp_path: Path) -> None:
    body = (
        '    """What this one does, said in a sentence of ordinary words."""\n    return some_function(argument_name)\n'
    )
    one = f"\n\ndef another_function(argument_name: SomeType) -> AnotherType:\n{body}"
    (tmp_path / "m.py").write_text(TOOL % "f" + one * 2_450, encoding="utf-8")
    assert (tmp_path / "m.py").stat().st_size > 400_000
    assert isinstance(find_tool("m:f", [tmp_path]), ToolSpec)


def test_all_files_of_a_review_together_have_a_bound_of_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TOKENS_IN_REVIEW == 300_000
    most = MOST_TOKENS_IN_REVIEW // 100
    monkeypatch.setattr("licet.source.declarations.MOST_TOKENS_IN_REVIEW", most)
    write(tmp_path, {f"m{number}": filled(f"f{number}", "0,", MOST_TOKENS // 100) for number in range(6)})
    modules = Modules()
    found = [find_tool(f"m{number}:f{number}", [tmp_path], modules=modules) for number in (0, 0, 1, 2, 3, 4)]
    assert [isinstance(one, ToolSpec) for one in found] == [True] * 4 + [False] * 2
    total = sum(token_count((tmp_path / f"m{number}.py").read_text()) for number in range(4))
    expected = (
        f"1:1: error: found more source than one review reads ({total} tokens up to here), expected at most 4 MiB and "
        f"{most} tokens in all files together; name tools of fewer or smaller files with `from:`"
    )
    assert [str(one).partition(".py:")[2] for one in found if isinstance(one, Problem)] == [expected] * 2


def test_all_files_of_a_review_together_have_a_bound_of_bytes(tmp_path: Path) -> None:
    write(tmp_path, {f"m{number}": TOOL % f"f{number}" + "#" + "x" * 500_000 for number in range(9)})
    modules = Modules()
    found = [find_tool(f"m{number}:f{number}", [tmp_path], modules=modules) for number in range(9)]
    assert [isinstance(one, ToolSpec) for one in found] == [True] * 8 + [False]
    total = sum(os.stat(tmp_path / f"m{number}.py").st_size for number in range(9))
    assert message("hostile_sources.bytes_up_here", total=total) in str(found[-1])
    assert MOST_BYTES_IN_REVIEW == 4 << 20


@pytest.mark.parametrize(
    "text",
    [
        b"import helper\n" + b"a;" * MOST_TOKENS,
        b"# coding: utf-7\nimport helper\n+" + b"AGEAOwBhADsA" * 30_000 + b"-\n",
        b"import helper" + b".a" * 101 + b"\n",
        b"import helper." + b"a" * 512 + b"\n",
    ],
    ids=["too many tokens", "too many tokens in disguise", "too many dots", "a name too long"],
)
def test_imports_of_a_file_that_is_too_large_are_not_loaded(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "helper.py").write_text("", encoding="utf-8")
    (tmp_path / "m.py").write_bytes(text)
    assert project_modules(["m:f"], [tmp_path]).modules.keys() == {"m"}


def test_imports_of_more_source_than_is_followed_are_not_loaded(tmp_path: Path) -> None:
    links = 40
    (tmp_path / "m.py").write_text("".join(f"import o{number}\n" for number in range(links)), encoding="utf-8")
    for number in range(links):
        (tmp_path / f"o{number}.py").write_text(f"import p{number}\n#{'x' * 500_000}", encoding="utf-8")
        (tmp_path / f"p{number}.py").write_text("", encoding="utf-8")
    found = project_modules(["m:f"], [tmp_path])
    assert 0 < sum(name.startswith("p") for name in found.modules) < links


def test_missing_module_names_are_closed_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(distinct("f", 4000), encoding="utf-8")
    found = project_modules(["m:f"], [tmp_path])
    assert 1000 < len({os.path.basename(path).partition(".")[0] for path in found.missing}) < 2000
