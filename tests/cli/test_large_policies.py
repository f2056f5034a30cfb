"""`licet check` on policy files that are meant to be expensive: it ends with a verdict, and in bounded memory.

Time is measured by `python -m benchmarks check`, on the same files.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from effort import LONG
from licet.cli.app import licet

_SOURCE = Path(__file__).parents[2] / "benchmarks" / "large_policies.py"
_SPEC = importlib.util.spec_from_file_location("large_policies", _SOURCE)
assert _SPEC
assert _SPEC.loader
large_policies = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(large_policies)

MOST_MEGABYTES = 200

# The peak of this very process: the usage that a parent is told about its child counts what the parent had at the fork.
_PROGRAM = """
import sys
from licet.cli import main
try:
    main()
except SystemExit as ended:
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(ended.code, peak, file=sys.stderr)
"""

# What each file is told; a file without a problem is fine. Beside these, every case runs where tests may take long.
TOLD = {
    "tools of the audit": (1, "2000 tools with different needs under"),
    "different tools and denies": (1, "pairs of a tool and a rule or deny"),
    "wide tools and allows": (1, "pairs of a tool and a rule or deny"),
    "many bundles with destinations": (1, "pairs of a tool and a rule or deny"),
    "many connectors": (1, "pairs of a tool and a rule or deny"),
    "hosts and ports": (1, "pairs of a tool and a rule or deny"),
    "hosts and ports of a workspace": (1, "pairs of a tool and a rule or deny"),
    "deep paths and denies": (1, "parts in the paths and names of all rules, expected at most 150000"),
    "equal tools and denies": (0, "1 file, 1 warning"),
    "different tools and allows": (0, "fine"),
    "one long pattern": (1, "more than 65536 characters in different rules with patterns"),
    "one version": (1, "a version range of at most 500 characters"),
    "arguments that a tool has not": (1, "more are not shown: fix these first"),
    "unknown keys": (1, "more are not shown: fix these first"),
    "misfits": (1, "more are not shown: fix these first"),
    "one tool with many connector needs": (1, "more are not shown: fix these first"),
}

SLOW = {"different tools and allows", "misfits", "wide tools and allows"}


def check(folder: Path, name: str, *words: str) -> tuple[int, int, str]:
    """The exit code of `licet check`, the most memory it had in megabytes, and what it said."""
    files = large_policies.CASES[name]()
    for file, text in files.items():
        (folder / file).write_text(text)
    program = [sys.executable, "-c", _PROGRAM, "check", next(iter(files)), *words]
    ended = subprocess.run(program, check=True, capture_output=True, text=True, cwd=folder)
    code, peak = ended.stderr.splitlines()[-1].split()
    return int(code), int(peak) // 1024, ended.stdout + ended.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells a process its own peak")
@pytest.mark.parametrize("name", large_policies.CASES if LONG else sorted(TOLD.keys() - SLOW))
@pytest.mark.sampled(1)
def test_a_policy_file_that_is_meant_to_be_expensive_is_checked_in_bounded_memory(tmp_path: Path, name: str) -> None:
    code, megabytes, said = check(tmp_path, name)
    assert megabytes <= MOST_MEGABYTES
    if name in TOLD:
        assert (code, TOLD[name][1] in said) == (TOLD[name][0], True)
    assert len(said) < 2_000_000


@pytest.mark.skipif(not LONG, reason="takes seconds: tried with LICET_LONG=1")
@pytest.mark.parametrize("words", ["--json", "--sarif"])
def test_so_is_the_report_for_programs(tmp_path: Path, words: str) -> None:
    code, megabytes, said = check(tmp_path, "unknown keys", words)
    assert (code, megabytes <= MOST_MEGABYTES, len(said) < 3_000_000) == (1, True, True)


def report(folder: Path, text: str, *words: str) -> Result:
    (folder / "agent.yaml").write_text(text)
    return CliRunner().invoke(licet, ["check", str(folder / "agent.yaml"), *words], catch_exceptions=False)


@pytest.mark.parametrize("words", ["--json", "--sarif"])
def test_a_report_shows_so_many_problems_and_says_how_many_there_are(tmp_path: Path, words: str) -> None:
    unknown = "".join(f"k{number}: 1\n" for number in range(1500))
    ended = report(tmp_path, f"agent: a\n{unknown}", words)
    document = json.loads(ended.stdout)
    assert ended.exit_code == 1
    if words == "--json":
        assert (len(document["problems"]), document["problems_left_out"]) == (1000, 500)
    else:
        assert len(document["runs"][0]["results"]) == 1000
        assert "500 " + message("large_policies.more_are_not_shown") in ended.stderr


def test_errors_are_shown_before_warnings_where_not_all_are(tmp_path: Path) -> None:
    hosts = "".join(f"    - h{number}.internal\n" for number in range(1200))  # a warning each
    said = report(tmp_path, f"agent: a\ncapabilities:\n  destinations:\n    allow:\n{hosts}  wrong: 1\n").stdout
    assert "the key `wrong`" in said
    assert len(said.splitlines()) == 1000
