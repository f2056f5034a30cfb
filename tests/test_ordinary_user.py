"""Once more as an ordinary user, if root runs the tests: whatever depends on who runs it.

One run of pytest as that user. It has every test with the mark `who`, the commands of the README among them, and the
attacks on walls that this user built: one of some themes by default, all of them with LICET_LONG=1.
"""

import ast
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attacks.behind_walls import ATTACKS as ATTACKS_ON_WALLS
from attacks.behind_walls import NO_WALLS
from attacks.test_walls import HARMFUL
from effort import LONG
from ordinary_user import NOBODY, interpreter, opened
from sandbox.levels import WALLED

HERE = Path(__file__).resolve()
PROJECT = HERE.parents[1]
ATTACKS = HERE.parent / "attacks"
ASKS = re.compile(r"os\.gete?uid\(\)")
WHO = re.compile("^@pytest[.]mark[.]who\n", re.MULTILINE)
OF_ROOT = re.compile("root|superuser|ordinary")
ROOT_ALONE = re.compile(r"skipif\(\s*os\.gete?uid\(\) != 0")
WALLS = "test_walls"  # the file with the attacks of tools
ON_TOOLS = sorted(path.stem for path in (ATTACKS / "walls").glob("[a-z]*.py"))
ON_TOOLS_TRIED = ON_TOOLS if LONG else ON_TOOLS[::4]
ON_PROGRAMS = (
    "attacks/test_wall_program_processes.py::test_a_fork_bomb",
    "attacks/test_wall_program_processes.py::test_memory",
    "attacks/test_wall_program_files.py::test_what_is_denied_inside_a_granted_tree",
    "attacks/test_wall_program_files.py::test_a_denied_name_that_is_not_there_yet_cannot_be_made",
    "attacks/test_wall_program_network.py::test_unix_sockets_of_the_host",
    "attacks/test_wall_program_processes.py::test_ending_another_process",
    "attacks/test_wall_program_processes.py::test_privileges_do_not_come_back",
    "sandbox/programs/test_launcher.py::test_a_program_ends_by_its_own_signal",
    "sandbox/programs/test_launcher.py::test_one_http_request_of_a_program",
    "attacks/test_wall_program_network.py::test_ways_to_a_socket_outside",
    "sandbox/programs/test_own_network.py::test_processes_of_one_run_talk_over_unix_sockets",
    "sandbox/programs/test_own_network.py::test_libraries_that_use_unix_sockets",
)
ON_PROGRAMS_TRIED = ON_PROGRAMS if LONG else ON_PROGRAMS[::5]
FILES_ON_PROGRAMS = sorted({Path(test.partition("::")[0]).stem for test in ON_PROGRAMS_TRIED})
WASM_BUILDERS = () if LONG else ("componentize_py*",)  # large, and used by one test of the README alone
OTHER_MACHINE = "made of numbers that"  # as `behind_walls` says it of an attack that exists on one architecture alone
WHOLE = ("src", "tests", "examples", "docs")
LONGEST = 1800  # seconds for all of it together, on a machine that has much else to do

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="pytest runs as an ordinary user already")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[tuple[str, str, str]]]]:
    """What came of each test, by file: its name, `passed`, `skipped` or `failed`, and what was said."""
    project = Path("/tmp") / f"licet-{tmp_path_factory.mktemp('user').name}-{os.getpid()}"  # where others can get to
    try:
        project.mkdir(0o755)
        python = interpreter(project)
        if python is None:
            pytest.skip("there is no Python here that another user can run")
        # Compiled files come along: without them every interpreter would compile all it imports.
        unwanted = shutil.ignore_patterns("*mypy*", "ruff*", "*.pth", "pip", "setuptools", "grimp*", *WASM_BUILDERS)
        for name in WHOLE:
            shutil.copytree(PROJECT / name, project / name, ignore=unwanted)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(PROJECT / name, project)
        environment = project / ".venv"
        venv = [python, "-I", "-m", "venv", "--without-pip", "--symlinks", str(environment)]
        subprocess.run(venv, check=True, capture_output=True)
        packages = next(environment.glob("lib/python*/site-packages"))
        shutil.copytree(sysconfig.get_paths()["purelib"], packages, ignore=unwanted, dirs_exist_ok=True)
        (packages / "licet.pth").write_text(f"{project / 'src'}\n")
        python = str(environment / "bin" / "python")
        licet = environment / "bin" / "licet"
        licet.write_text(f"#!{python}\nimport sys\nfrom licet.cli import program\nsys.exit(program())\n")
        licet.chmod(0o755)
        opened(project)
        home = project / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        yield run_as_user(python, project, home)
    finally:
        shutil.rmtree(project, ignore_errors=True)


def functions(file: Path, mentioning: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """The tests of a file, each with its text; none if nothing in the file matches, since parsing it takes long."""
    text = file.read_text(encoding="utf-8")
    if not mentioning.search(text):
        return
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min((one.lineno for one in node.decorator_list), default=node.lineno)
            yield node.name, "".join(lines[first - 1 : node.end_lineno])


@cache
def marked() -> list[tuple[str, str]]:
    """The file and the name of every test that depends on who runs it."""
    return [
        (file.relative_to(PROJECT).as_posix(), name)
        for file in sorted(HERE.parent.rglob("test_*.py"))
        for name, text in functions(file, WHO)
        if file != HERE and WHO.search(text)
    ]


def test_whatever_asks_who_runs_it_is_run_as_both() -> None:
    unmarked = [
        (file.name, name)
        for file in sorted(HERE.parent.rglob("test_*.py"))
        for name, text in functions(file, ASKS)
        if ASKS.search(text) and not ROOT_ALONE.search(text) and not WHO.search(text)
    ]
    assert unmarked == []
    assert len(marked()) > 10


def chosen() -> list[str]:
    """The attacks of tools that are run: one of each theme that is tried, at each level, or all of them."""
    file = f"tests/attacks/{WALLS}.py"
    if LONG:
        return [file]
    harmless = sorted(ATTACKS_ON_WALLS.keys() - HARMFUL)
    tried = [next(name for name in harmless if name.startswith(f"{theme}.")) for theme in ON_TOOLS_TRIED]
    return [f"{file}::test_the_walls_stop_it[{level}-{name}]" for name in tried for level in (NO_WALLS, *WALLED)]


def run_as_user(python: str, project: Path, home: Path) -> dict[str, list[tuple[str, str, str]]]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tests = [
        *chosen(),
        *(f"tests/{one}" for one in ON_PROGRAMS_TRIED),
        *(f"{file}::{name}" for file, name in marked()),
    ]
    report = home / "report.xml"
    pytest_there = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--junitxml={report}"]
    ended = subprocess.run(
        [*pytest_there, *dict.fromkeys(tests)],
        cwd=project, env=environment, user=NOBODY, group=NOBODY, extra_groups=[],
        capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip
    assert report.exists(), ended.stdout[-4000:] + ended.stderr[-2000:]
    found: dict[str, list[tuple[str, str, str]]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        said = case[0].get("message", "") + (case[0].text or "") if len(case) else ""
        outcome = {"skipped": "skipped", "failure": "failed", "error": "failed"}.get(case[0].tag if len(case) else "")
        file = case.get("classname", "").rpartition(".")[2]
        found.setdefault(file, []).append((case.get("name", ""), outcome or "passed", said))
    return found


@needs_root
def test_what_depends_on_the_user_holds_for_an_ordinary_one(outcomes: dict[str, list[tuple[str, str, str]]]) -> None:
    for file, name in marked():
        ended = [
            (one, outcome, said) for one, outcome, said in outcomes.get(Path(file).stem, ()) if one.startswith(name)
        ]
        failed = "\n\n".join(f"{one}\n{said[-3000:]}" for one, outcome, said in ended if outcome == "failed")
        assert not failed, failed
        # What this machine lacks is skipped for every user. What root alone does must not be all of it.
        assert any(outcome == "passed" or not OF_ROOT.search(said) for _, outcome, said in ended), (file, name, ended)


@needs_root
def test_the_walls_hold_for_an_ordinary_user(
    outcomes: dict[str, list[tuple[str, str, str]]], report_sample: Callable[[int, int], None]
) -> None:
    report_sample(len(ON_TOOLS_TRIED) + len(ON_PROGRAMS_TRIED), len(ON_TOOLS) + len(ON_PROGRAMS))
    failed = [
        f"{name}\n{said[-3000:]}" for tests in outcomes.values() for name, outcome, said in tests if outcome == "failed"
    ]
    assert not failed, "\n\n".join(failed)
    on_tools = {theme: [one for one in outcomes.get(WALLS, []) if f"-{theme}." in one[0]] for theme in ON_TOOLS_TRIED}
    for file, tests in (on_tools | {file: outcomes.get(file, []) for file in FILES_ON_PROGRAMS}).items():
        elsewhere = tests and all(outcome == "skipped" and OTHER_MACHINE in said for _, outcome, said in tests)
        # Without walls, what the system lets only root do is skipped. Behind walls nothing is.
        assert elsewhere or any(outcome == "passed" for _, outcome, _ in tests), (file, tests)
