"""A tool that may write beside its manifest plants a module for the next host: nothing that is planted ever runs there.

Each attack is played by whole processes, as an operator would start them. What is planted leaves a mark outside every
grant if it runs without walls.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from licet.sandbox import probe
from pins import trust

SCRIPT = str(Path(sysconfig.get_path("scripts"), "licet"))
needs_walls = pytest.mark.skipif(bool(probe.support().missing("restricted")), reason="no walls here")

TOOLS = '''
import csv
from licet import tool

@tool(capabilities={}, effect="read_only", sandbox="restricted")
def total(text: str) -> int:
    """Add up the first column."""
    return sum(int(row[0]) for row in csv.reader(text.splitlines()))
'''
MANIFEST: dict[str, Any] = {
    "agent": "desk",
    "version": "1.0",
    "tools": {"write_file": {"from": "licet.tools:write_file"}, "total": {"from": "sums:total"}},
    "capabilities": {"tools": {"write_file": {"sandbox": "restricted"}, "total": {}},
        "max_side_effect_class": "write_limited", "approvals": {"write": "manifest"},
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}"]}},
}  # fmt: skip


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """What a planted module writes if it runs in a host."""
    return tmp_path / "ran"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    place = tmp_path / "desk"
    place.mkdir()
    (place / "sums.py").write_text(TOOLS)
    (place / "desk.yaml").write_text(json.dumps(MANIFEST))
    trust(place / "desk.yaml", tmp_path / "state")
    return place


def planted(mark: Path) -> str:
    return f"import os\nos.close(os.open({str(mark)!r}, os.O_CREAT | os.O_WRONLY))\nraise ImportError('planted')\n"


def started(desk: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "XDG_STATE_HOME": str(desk.parent / "state"),
        "LANG": "C.UTF-8",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    return subprocess.run(command, cwd=desk, env=environment, capture_output=True, text=True, timeout=120, check=False)


# A program of its own -------------------------------------------------------------------------------------------------

AGENT = """
import sys
from licet import Backends, Gate, RegistrationRefused, load_manifest, run
from licet.tools import http_get, write_file

options = {"unchecked_imports": True} if "unchecked" in sys.argv else {}
try:
    manifest = load_manifest("../policy/m.yaml")
    options["pin"] = manifest.digest
    gate = Gate(manifest, [write_file, http_get], Backends.local("../state"), **options)
except RegistrationRefused:
    sys.exit("refused")
for name in ("httpcore2.py", "httpx2.py", "anyio/__init__.py", "h11.py", "cryptography/__init__.py", "idna.py"):
    wrote = run(gate, "write_file", {"path": name, "text": sys.argv[1]})
    assert wrote.ok, wrote.error
print(run(gate, "http_get", {"url": "http://127.0.0.1:9/"}).reason)
"""
CLERK: dict[str, Any] = {
    "agent": "clerk",
    "version": "1.0",
    "capabilities": {"tools": {"write_file": {"sandbox": "native"}, "http_get": {"sandbox": "native"}},
        "native": ["write_file", "http_get"], "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"}, "fs_reach": {"write": ["${workdir}"]},
        "destinations": {"allow": ["127.0.0.1"]}, "private": ["127.0.0.0/8"]},
}  # fmt: skip


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    for place in ("agent", "policy"):
        (tmp_path / place).mkdir()
    (tmp_path / "agent" / "agent.py").write_text(AGENT)
    (tmp_path / "policy" / "m.yaml").write_text(json.dumps(CLERK))
    return tmp_path / "agent"


def test_a_program_whose_tools_may_write_beside_it_gets_no_gate(agent: Path, mark: Path) -> None:
    ran = started(agent, sys.executable, "agent.py", planted(mark))
    assert ran.stderr == "refused\n"
    assert not mark.exists()


@pytest.mark.parametrize("start", [("agent.py",), ("-P", "agent.py")])
@pytest.mark.sampled(1)
def test_what_is_planted_for_the_first_request_was_loaded_before(agent: Path, mark: Path, start: tuple[str]) -> None:
    ran = started(agent, sys.executable, *start, planted(mark), "unchecked")
    assert ran.stdout == "CONNECT_FAILED\n", ran.stderr
    assert not mark.exists()


# `licet call` ---------------------------------------------------------------------------------------------------------


HELPED = TOOLS.replace(
    "import csv\n", "import csv\nfrom aids import clean\ntry:\n    import fast\nexcept ImportError: ...\n"
)
AIDS = "try:\n    from . import quick\nexcept ImportError: ...\ndef clean(): ..."
FREE = ["csv.py", "_csv.py", "json/__init__.py", "click.py", "httpcore2.py", "src/csv.py"]
CLOSED = [
    "aids/__init__.py", "aids/quick.py", "aids/__pycache__/quick.pyc", "aids.py", "src/aids/__init__.py",
    "fast.py", "fast/__init__.py", "fast.abi3.so", "src/fast.py", "sums/__init__.py",
]  # fmt: skip


@needs_walls
def test_what_a_tool_plants_beside_the_manifest_is_not_loaded_by_the_next_call(
    desk: Path, mark: Path, report_sample: Callable[[int, int], None]
) -> None:
    (desk / "sums.py").write_text(HELPED)
    (desk / "aids").mkdir()
    (desk / "aids" / "__init__.py").write_text(AIDS)
    free, closed = (FREE, CLOSED) if LONG else (FREE[:1], CLOSED[:1])
    report_sample(len(free) + len(closed), len(FREE) + len(CLOSED))
    for name in (*free, *closed):
        call = started(desk, SCRIPT, "call", "desk.yaml", "write_file", f"path={name}", f"text={planted(mark)}")
        if name in FREE:
            assert call.returncode == 0, call.stderr  # the manifest allows it
            assert (desk / name).exists()
        else:
            assert call.returncode == 1, call.stdout
            assert "the code of a tool is never writable" in call.stderr
        assert not mark.exists(), name
    call = started(desk, SCRIPT, "call", "desk.yaml", "total", "text=1\n2")
    assert (call.returncode, call.stdout) == (0, "3\n"), call.stderr
    assert not mark.exists()


def test_a_second_file_for_a_module_stops_the_next_call(desk: Path, mark: Path) -> None:
    (desk / "sums.py").write_text(TOOLS.replace("import csv\n", "import csv, aids\n"))
    (desk / "aids.py").write_text("")
    (desk / "aids").mkdir()
    (desk / "aids" / "__init__.py").write_text(planted(mark))
    call = started(desk, SCRIPT, "call", "desk.yaml", "total", "text=1\n2")
    assert call.returncode == 1
    assert f"`aids` in two places: {desk}/aids and {desk}/aids.py" in call.stderr
    assert not mark.exists()


# `licet` itself -------------------------------------------------------------------------------------------------------

COMMANDS = {
    "check": ("check", "desk.yaml"),
    "surface": ("surface", "desk.yaml"),
    "explain": ("explain", "desk.yaml", "total", "fs:read:/x"),
    "help": ("--help",),
    "doctor": ("doctor",),
    "receipts": ("receipts", "list"),
}
STARTS = {
    "the script": (SCRIPT,),
    "the module": (sys.executable, "-m", "licet"),
    "-P": (sys.executable, "-P", "-m", "licet"),
}
PLANTED = ("click.py", "yaml/__init__.py", "rich.py", "typing.py", "json.py", "re.py", "sqlite3.py", "dataclasses.py")


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.sampled(3)
def test_commands_load_nothing_from_the_directory_they_are_started_in(
    desk: Path, mark: Path, start: tuple[str, ...], words: tuple[str, ...]
) -> None:
    for name in PLANTED:
        if name == "re.py" and "-m" in start and "-P" not in start:
            continue  # Python itself may load it, before any code of licet
        (desk / name).parent.mkdir(exist_ok=True)
        (desk / name).write_text(planted(mark))
    ran = started(desk, *start, *words)
    assert not mark.exists(), ran.stderr
    assert ran.returncode in (0, 1), ran.stderr
    assert "Traceback" not in ran.stderr
