"""The attacks on walls once more, by an ordinary user on walls that this user built.

One run of pytest as that user: one attack of some files by default, all of all files with LICET_LONG=1.
"""

import ast
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from effort import LONG
from ordinary_user import NOBODY, interpreter, opened

HERE = Path(__file__).resolve()
PROJECT = HERE.parents[2]
OF_EACH_FILE = 1
ON_TOOLS = sorted(
    path.stem
    for path in HERE.parent.glob("test_wall_*.py")
    if path != HERE and not path.name.startswith("test_wall_program_")
)
ON_TOOLS_TRIED = ON_TOOLS if LONG else ON_TOOLS[::6]
ON_PROGRAMS = (
    "attacks/test_wall_program_limits.py::test_a_fork_bomb",
    "attacks/test_wall_program_limits.py::test_memory",
    "attacks/test_wall_program_files.py::test_what_is_denied_inside_a_granted_tree",
    "attacks/test_wall_program_files.py::test_a_denied_name_that_is_not_there_yet_cannot_be_made",
    "attacks/test_wall_program_network.py::test_unix_sockets_of_the_host",
    "attacks/test_wall_program_processes.py::test_ending_another_process",
    "attacks/test_wall_program_kernel.py::test_privileges_do_not_come_back",
    "sandbox/programs/test_launcher.py::test_a_program_ends_by_its_own_signal",
    "sandbox/programs/test_launcher.py::test_one_http_request_of_a_program",
    "attacks/test_wall_program_unix_sockets.py::test_ways_to_a_socket_outside",
    "sandbox/programs/test_own_network.py::test_processes_of_one_run_talk_over_unix_sockets",
    "sandbox/programs/test_own_network.py::test_libraries_that_use_unix_sockets",
)
ON_PROGRAMS_TRIED = ON_PROGRAMS if LONG else ON_PROGRAMS[::5]
FILES_ON_PROGRAMS = sorted({Path(test.partition("::")[0]).stem for test in ON_PROGRAMS_TRIED})
OTHER_MACHINE = "made of numbers that"  # as `behind_walls` says it of an attack that exists on one architecture alone
LONGEST = 1800  # seconds for all of it together, on a machine that has much else to do

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="pytest runs as an ordinary user already, so these attacks have run"
)


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
        unwanted = shutil.ignore_patterns("*mypy*", "ruff*", "*.pth", "pip", "setuptools", "grimp*", "pygments")
        for name in ("src", "tests"):
            shutil.copytree(PROJECT / name, project / name, ignore=unwanted)
        shutil.copy(PROJECT / "pyproject.toml", project)
        shutil.copytree(sysconfig.get_paths()["purelib"], project / "site-packages", ignore=unwanted)
        opened(project)
        home = project / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        yield run_as_user(python, project, home)
    finally:
        shutil.rmtree(project, ignore_errors=True)


def chosen(name: str) -> list[str]:
    """The tests of one file that are run: those spread evenly over the file, or the whole file."""
    file = f"tests/attacks/{name}.py"
    if LONG:
        return [file]
    body = ast.parse((PROJECT / file).read_text(encoding="utf-8")).body
    found = [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [f"{file}::{test}" for test in found[:: -(-len(found) // OF_EACH_FILE)]]


def run_as_user(python: str, project: Path, home: Path) -> dict[str, list[tuple[str, str, str]]]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(str(project / name) for name in ("src", "tests", "site-packages")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tests = [
        *(test for name in ON_TOOLS_TRIED for test in chosen(name)),
        *(f"tests/{one}" for one in ON_PROGRAMS_TRIED),
    ]
    report = home / "report.xml"
    ended = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={home}/t", f"--junitxml={report}", *tests],
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


def test_the_walls_hold_for_an_ordinary_user(
    outcomes: dict[str, list[tuple[str, str, str]]], report_sample: Callable[[int, int], None]
) -> None:
    report_sample(len(ON_TOOLS_TRIED) + len(ON_PROGRAMS_TRIED), len(ON_TOOLS) + len(ON_PROGRAMS))
    failed = [
        f"{name}\n{said[-3000:]}" for tests in outcomes.values() for name, outcome, said in tests if outcome == "failed"
    ]
    assert not failed, "\n\n".join(failed)
    for file in (*ON_TOOLS_TRIED, *FILES_ON_PROGRAMS):
        tests = outcomes.get(file, [])
        elsewhere = tests and all(outcome == "skipped" and OTHER_MACHINE in said for _, outcome, said in tests)
        # Without walls, what the system lets only root do is skipped. Behind walls nothing is.
        assert elsewhere or any(outcome == "passed" for _, outcome, _ in tests), (file, tests)
