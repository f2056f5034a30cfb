"""What a receipt says of the walls that stood around a call, and around the programs that it started."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import degraded, needs_namespaces, needs_walls, without_namespaces
from licet import Backends, Gate
from licet.backends.memory import MemoryLedger
from licet.core.ledger.entry import SandboxFact
from licet.guard.execution import Layers
from licet.sandbox import probe
from licet.sandbox.kernel import landlock
from licet.sandbox.native import InProcess
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.engine import Workers
from sandbox import wild_tools as wild
from sandbox.growth_tools import start
from sandbox.levels import WALLED, call, gate

WALLS = ("process", f"landlock-{landlock.abi()}", "seccomp", "hardening")
SPACES = ("namespaces", "private root")


def backends(folder: Path, support: Callable[[], probe.Support]) -> Backends:
    sandbox = Workers(InProcess(), ProgramWalls(None, support))
    return Backends.local(folder / "state", sandbox=sandbox, ledger=MemoryLedger())


def kept(at: Gate) -> SandboxFact:
    """What the receipt in the ledger says of the sandbox."""
    ledger = at.ports.ledger
    assert isinstance(ledger, MemoryLedger)
    (receipt,) = ledger.receipts
    return receipt.sandbox


@needs_walls
@pytest.mark.parametrize("level", WALLED)
def test_a_receipt_names_the_walls_around_its_tool(tmp_path: Path, level: str) -> None:
    at = gate(tmp_path, level, wild.count, backends=Backends.memory(ledger=MemoryLedger()))
    assert call(at, "count").layers == kept(at).layers == ("handles", *WALLS)
    assert kept(at).programs is None


def test_a_call_that_did_not_run_had_no_walls(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", wild.count, backends=Backends.memory(ledger=MemoryLedger()))
    assert call(at, "count", {"no": "such argument"}).reason == "INPUT_INVALID"
    assert kept(at).layers == ()


@pytest.mark.parametrize("level", ["native", pytest.param("restricted", marks=needs_walls)])
@needs_namespaces
def test_whole_walls_around_programs_lack_nothing(tmp_path: Path, level: str) -> None:
    at = gate(tmp_path, level, start, backends=backends(tmp_path, probe.support), sandbox={"allow_degraded": True})
    assert call(at, "start", {"times": 2}).unwrap() == 0
    programs = kept(at).programs
    assert programs is not None
    assert (programs.layers, programs.missing) == ((*WALLS, *SPACES), ())


@pytest.mark.who
@needs_walls
@pytest.mark.parametrize("level", ["native", "restricted"])
def test_degraded_walls_are_in_the_receipt_with_what_was_missing(tmp_path: Path, level: str) -> None:
    parts = backends(tmp_path, degraded)
    at = gate(tmp_path, level, start, backends=parts, sandbox={"allow_degraded": True})
    result = call(at, "start", {"times": 1})
    assert result.unwrap() == 0
    missing = (*SPACES, probe.SUPERVISED, *(() if os.getuid() else ("limit of processes",)))
    assert result.programs == Layers(WALLS, missing)
    programs = kept(at).programs
    assert programs is not None
    assert (programs.layers, programs.missing) == (WALLS, missing)
    assert "degraded      its programs ran without namespaces, private root" in result.explain()
    assert pickle.loads(pickle.dumps(result)).programs == result.programs


@needs_walls
def test_walls_without_namespaces_are_no_degraded_ones(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", start, backends=backends(tmp_path, without_namespaces))
    result = call(at, "start", {"times": 1})
    assert result.unwrap() == 0
    assert result.programs == Layers((*WALLS, probe.SUPERVISED), SPACES)
    assert "walls         its programs ran without namespaces, private root" in result.explain()


@needs_walls
def test_a_call_that_started_nothing_lacked_nothing(tmp_path: Path) -> None:
    parts = backends(tmp_path, degraded)
    at = gate(tmp_path, "native", start, backends=parts, sandbox={"allow_degraded": True})
    assert call(at, "start", {"times": 0}).programs is None


@needs_walls
@pytest.mark.parametrize("sandbox", [{}, {"sandbox": {"allow_degraded": False}}])
def test_nothing_is_degraded_unless_the_manifest_says_so(tmp_path: Path, sandbox: dict[str, Any]) -> None:
    at = gate(tmp_path, "native", start, backends=backends(tmp_path, degraded), **sandbox)
    result = call(at, "start", {"times": 1})
    assert (result.ok, result.reason) == (False, "SANDBOX_UNAVAILABLE")
    assert "allow_degraded" in result.explain()
    assert kept(at).programs is None
