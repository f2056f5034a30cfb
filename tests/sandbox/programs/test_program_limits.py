"""A program that a limit has ended says by which: to its tool, and in the receipt."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import PYTHON, Programs, both_kinds, needs_namespaces, needs_walls
from licet import Backends
from licet.backends.memory import MemoryLedger
from licet.core.decision.decision import CapabilityDenied
from licet.sandbox.native import InProcess
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.engine import Workers
from sandbox import program_tools
from sandbox.growth_tools import spin
from sandbox.levels import call, gate

DEAF = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
GREEDY = "kept = []\nwhile True: kept.append(b'x' * (1 << 20))"
CROWD = """
import os, time
try:
    for _ in range(100):
        if not os.fork():
            time.sleep(60)
finally:
    time.sleep(10)
    os._exit(1)
"""
# Memory that no limit of the kernel counts: it belongs to every process that has it mapped.
SHARED = """
import mmap, time
kept = mmap.mmap(-1, 200 << 20)
for place in range(0, len(kept), 4096):
    kept[place] = 1
time.sleep(60)
"""
FILE_IN_MEMORY = SHARED.replace("mmap.mmap(-1, 200 << 20)", "mmap.mmap(file, 200 << 20)").replace(
    "kept =", "import os\nfile = os.memfd_create('m')\nos.truncate(file, 200 << 20)\nkept ="
)
OF_A_CHILD = f"""
import os, sys
if not os.fork():
    exec({SHARED!r})
sys.exit(os.wait()[1] != 0)
"""
FILL = 'exec dd if=/dev/zero of="$TMPDIR/x" bs=1M count=64 status=none'


def of(code: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", code)


ENDINGS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "processor": (("sh", "-c", "while :; do :; done"), {"limits": {"cpu_seconds": 1}}, "LIMIT_CPU"),
    "processor, deaf": (of(DEAF), {"limits": {"cpu_seconds": 1}}, "LIMIT_CPU"),
    "memory": (of(GREEDY), {"limits": {"memory_mb": 100}}, "LIMIT_MEMORY"),
    "file": (("sh", "-c", FILL), {"limits": {"file_mb": 4}}, "LIMIT_FILE_SIZE"),
    "output": (("head", "-c", "5000", "/dev/zero"), {"output_bytes": 1000}, "LIMIT_OUTPUT"),
    "time": (("sleep", "60"), {"seconds": 0.5}, "LIMIT_TIME"),
    "nothing": (("true",), {}, ""),
    "its own fault": (("false",), {}, ""),
    "its own signal": (("sh", "-c", "kill -KILL $$"), {}, ""),
}


@both_kinds
@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.sampled(3)
def test_each_limit_has_its_reason(kind: str, how: str) -> None:
    command, given, limit = ENDINGS[how]
    walled = Programs(kind, **{"seconds": 60.0, **given})
    assert walled.run(*command).reason == limit
    denied = [event for event in walled.grant.events if isinstance(event, CapabilityDenied)]
    assert [event.reason for event in denied] == ([limit] if limit else [])
    assert all("process:exec:" in event.capability and event.rule for event in denied)


@needs_namespaces
@pytest.mark.parametrize(
    ("command", "limits", "limit"),
    [
        (of(CROWD), {"processes": 20}, "LIMIT_PROCESSES"),
        (("sh", "-c", FILL), {"scratch_mb": 4}, "LIMIT_DISK"),
        (of(SHARED), {"memory_mb": 100}, "LIMIT_MEMORY"),
        (of(FILE_IN_MEMORY), {"memory_mb": 100}, "LIMIT_MEMORY"),
        (of(OF_A_CHILD), {"memory_mb": 100}, "LIMIT_MEMORY"),
    ],
    ids=["processes", "scratch", "shared memory", "a file in memory", "shared memory of a child"],
)
@pytest.mark.sampled(3)
def test_what_only_a_namespace_tells(command: tuple[str, ...], limits: dict[str, int], limit: str) -> None:
    assert Programs("namespaces", limits=limits, seconds=60.0).run(*command).reason == limit


@needs_namespaces
def test_scratch_that_was_full_and_did_no_harm_is_no_limit() -> None:
    ended = Programs("namespaces", limits={"scratch_mb": 4}).run("sh", "-c", f"({FILL}) 2>/dev/null; exit 0")
    assert (ended.exit_code, ended.reason) == (0, "")


@needs_namespaces
def test_mapped_files_and_less_shared_memory_are_no_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(150 << 20))
    code = f"""
import mmap
with open({str(tmp_path / "large")!r}, "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), mmap.mmap(-1, 60 << 20)
    read = sum(kept[0][place] for place in range(0, len(kept[0]), 4096))
for place in range(0, len(kept[1]), 4096):
    kept[1][place] = 1
import time
time.sleep(0.3)
"""
    walled = Programs("namespaces", (f"fs:read:{tmp_path}",), limits={"memory_mb": 100}, seconds=60.0)
    ended = walled.run(*of(code))
    assert (ended.exit_code, ended.reason) == (0, "")


@needs_walls
def test_a_tool_behind_walls_hears_of_it_too(tmp_path: Path) -> None:
    sandbox = Workers(InProcess(), ProgramWalls())
    parts = Backends.memory(processes=LocalProcesses(os.defpath), sandbox=sandbox)
    at = gate(tmp_path, "restricted", spin, backends=parts, limits={"cpu_seconds": 1}, sandbox={"allow_degraded": True})
    result = call(at, "spin")
    assert result.unwrap() == "LIMIT_CPU"
    assert [event.reason for event in result.events if isinstance(event, CapabilityDenied)] == ["LIMIT_CPU"]


LIBRARIES = {
    "file": (FILL, {"file_mb": 1}, "LIMIT_FILE_SIZE", -signal.SIGXFSZ),
    "processor": ("while :; do :; done", {"cpu_seconds": 3}, "LIMIT_CPU", -signal.SIGXCPU),
    "its own fault": ("exit 3", {}, "", 3),
    "its own signal": ("kill -KILL $$", {}, "", -signal.SIGKILL),
}


@needs_walls
@pytest.mark.parametrize("how", LIBRARIES)
@pytest.mark.sampled(2)
def test_what_a_library_has_started_is_told_of_in_the_receipt(tmp_path: Path, how: str) -> None:
    script, limits, limit, code = LIBRARIES[how]
    ledger = MemoryLedger()
    parts = Backends.memory(
        processes=LocalProcesses(os.defpath), sandbox=Workers(InProcess(), ProgramWalls()), ledger=ledger
    )
    at = gate(
        tmp_path, "isolated", program_tools.start, backends=parts, limits={"wall_seconds": 120, **limits},
        grants=["process:exec:/bin/sh", "env:read:GIVEN", "env:read:KEPT"], sandbox={"allow_degraded": True},
    )  # fmt: skip
    result = call(at, "start", {"way": "a_script", "path": script})
    assert result.unwrap() == code
    told = [limit] if limit else []
    assert [event.reason for event in result.events if isinstance(event, CapabilityDenied)] == told
    receipt = json.loads(ledger.rows[-1].body)
    assert receipt["sandbox"]["programs"]["ended"] == [code]
    assert [event["reason"] for event in receipt["events"] if event.get("reason")] == told
