"""What host, zygote and supervisors load and open, as an audit hook in each of them sees it (see `audit`).

Once a gate is built, licet loads no code of its own or of its libraries any more. Once a tool has run, it loads nothing
from what a grant may write, and opens nothing there but what a handle opens for the running call.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from audit import Log, read_log
from effort import LONG
from licet.sandbox import probe

TESTS = Path(__file__).resolve().parent
EXAMPLES = TESTS.parent / "examples"
LICET = str(TESTS.parent / "src" / "licet")
INSTALLED = sysconfig.get_path("purelib")
needs_walls = pytest.mark.skipif(bool(probe.support().missing("restricted")), reason="no walls here")


def audited(tmp_path: Path, directory: Path, *words: str) -> tuple[Log, str]:
    """What happened while a program ran, and what it printed."""
    log = tmp_path / "log"
    ran = subprocess.run(
        [sys.executable, TESTS / "audit.py", log, *words], cwd=directory, capture_output=True, text=True, timeout=600,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return read_log(log), ran.stdout


def check(log: Log) -> None:
    assert log.ran  # something was seen at all
    assert log.violations == []
    assert log.late_imports(LICET) == []
    assert log.late_imports(INSTALLED) == []


@needs_walls
@pytest.mark.parametrize("agent", ["research", "coding", "payments", "inbox"])
@pytest.mark.sampled(1)
def test_an_example_agent_plays_its_transcript_and_loads_nothing_late_and_nothing_from_a_grant(
    agent: str, tmp_path: Path
) -> None:
    if agent == "coding" and not probe.support().namespaces:
        pytest.skip("programs are refused without namespaces")
    log, printed = audited(tmp_path, EXAMPLES / agent, "../transcripts.py", "--play")
    assert printed == (EXAMPLES / agent / "transcript.md").read_text("utf-8"), "run `make transcripts`"
    check(log)
    processes = {line.process for line in log.ran}
    assert processes >= ({"host", "supervisor"} if agent == "coding" else {"host"})


# Of the suite: every level, files, programs, the network, storage and approvals.
SAMPLE = (
    "guard/test_own_ends.py",
    "sandbox/programs/test_running_programs.py::test_a_signal_can_be_handled",
    *(
        (
            "sandbox/programs/test_running_programs.py",
            "sandbox/test_same_at_every_level.py",
            "tools",
            "guard/handles/test_fetch_real.py",
        )
        if LONG
        else ()
    ),
)


@needs_walls
def test_a_sample_of_the_suite_loads_nothing_late_and_nothing_from_a_grant(tmp_path: Path) -> None:
    files = [str(TESTS / name) for name in SAMPLE]
    # Without what these tests do not need: without cached bytecode, each start would rewrite all their modules again.
    lean = ("--assert=plain", *(f"-pno:{name}" for name in ("anyio", "cacheprovider", "hypothesispytest", "xdist")))
    log, _ = audited(tmp_path, TESTS.parent, "-m", "pytest", "-q", *lean, *files)
    check(log)


@needs_walls
def test_a_command_loads_nothing_from_a_grant(tmp_path: Path) -> None:
    words = ("call", "desk.yaml", "read_file", "path=notes/oslo.md", "--state", str(tmp_path / "kept"))
    log, _ = audited(tmp_path, EXAMPLES / "desk", "-m", "licet", *words)
    assert log.roots
    assert log.violations == []


# The audit itself -----------------------------------------------------------------------------------------------------

SEEN = """
import sys
from licet import Backends, Gate, load_manifest, run
from licet.tools import write_file
from licet.guard import session

manifest = load_manifest("../m.yaml")
gate = Gate(manifest, [write_file], Backends.local("../state"), pin=manifest.digest, unchecked_imports=True)
assert run(gate, "write_file", {"path": "planted.py", "text": "ran = True"}).ok
exec(compile("import planted; open('planted.py').close()", session.__file__, "exec"))  # as if licet did it
"""


@needs_walls
def test_the_audit_sees_what_it_looks_for(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "agent.py").write_text(SEEN)
    (tmp_path / "m.yaml").write_text(
        'agent: a\\nversion: "1.0"\\ncapabilities:\\n  tools: {write_file: {sandbox: restricted}}\\n'
        "  max_side_effect_class: write_limited\\n  approvals: {write: manifest}\\n"
        '  fs_reach: {read: ["${workdir}"], write: ["${workdir}"]}\\n'.replace("\\n", "\n")
    )
    log, _ = audited(tmp_path, work, "agent.py")
    assert {(line.event, Path(line.path).name) for line in log.violations} >= {
        ("exec", "planted.py"),
        ("open", "planted.py"),
    }
