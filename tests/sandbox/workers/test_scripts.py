"""A script whose tool is loaded a second time, behind the walls: the error names the line and the way out."""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.levels import needs_walls

AGENT = "agent: a\ncapabilities:\n  tools: [ask]\n"
TOOL = """
from licet import Backends, Gate, load_manifest, run, tool

@tool(needs=[], effect="read_only", sandbox="restricted")
def ask() -> int:
    "Ask."
    return 1
"""
CALL = 'print(run(Gate(load_manifest("agent.yaml"), [ask], Backends.local()), "ask").explain())\n'
GUARDED = f'if __name__ == "__main__":\n    {CALL}'
FIX = 'put what starts the program under `if __name__ == "__main__":`'

# Before the tool; after it; a text of the explanation, and the line that it names.
SCRIPTS = {
    "a call at the top": ("", CALL, "could not be loaded behind the walls: ManifestError", "script.py:8"),
    "a file": ("SET = open('agent.yaml').read()", GUARDED, "walls: FileNotFoundError", "script.py:1"),
    "a variable": ("import os\nSET = os.environ['TOKEN']", GUARDED, "walls: KeyError: 'TOKEN'", "script.py:2"),
    "an argument": ("import sys\nSET = int(sys.argv[1])", GUARDED, "walls: IndexError", "script.py:2"),
    "a parser": (
        "import sys\nif sys.argv[1:] != ['7']:\n    sys.exit(2)",
        GUARDED,
        "walls: SystemExit: 2",
        "script.py:3",
    ),
    "a helper": ("import helper", GUARDED, "walls: FileNotFoundError", "helper.py:2"),
}


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.sampled(2)
def test_the_error_names_the_line_where_loading_stopped(tmp_path: Path, case: str) -> None:
    needs_walls()
    before, after, said, line = SCRIPTS[case]
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "helper.py").write_text("\nSET = open('agent.yaml').read()\n")
    (tmp_path / "script.py").write_text(before + TOOL + after)
    words = [sys.executable, "script.py", "7"]
    environment = {"TOKEN": "x", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert f"{tmp_path}/{line})" in done.stdout
    assert FIX in done.stdout
