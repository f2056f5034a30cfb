"""Whether walls that do not hold are noticed: kernels that lack something, refuse it, or only say that they did it."""

import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from licet.guard.execution import SandboxUnavailable
from licet.sandbox import probe
from licet.sandbox.kernel import system_calls
from licet.sandbox.probe import Attempted, Support
from licet.sandbox.programs import supervisor_client
from sandbox.walled import needs_landlock, run

pytestmark = needs_landlock

_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000


def answering(numbers: Mapping[int, int]) -> str:
    """A filter that answers some calls with an error, or with success and nothing done where the error is 0."""
    steps = [(0x20, 0, 0, 0)]
    for number, error in numbers.items():
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, _ERRNO | error)]
    steps.append((0x06, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps).hex()


def looked(numbers: Mapping[int, int]) -> dict[str, Any]:
    code = """
from licet.sandbox import probe
hardening.no_new_privs()
seccomp.install(bytes.fromhex(spec["given"]))
found = probe.look()
answer = {"restricted": found.keeps("restricted"), "isolated": found.keeps("isolated"), "namespaces": found.namespaces,
          "missing": found.missing("restricted"), "trouble": found.trouble,
          "walls": {wall: found.wall_holds(wall) for wall in probe.WALLS}}
"""
    return dict(run(code, given=answering(numbers)))


def test_everything_holds_where_nothing_is_missing() -> None:
    found = probe.look()
    assert not found.trouble
    assert {finding.about for finding in found.findings if finding.wall in ("landlock", "seccomp", "hardening")} >= {
        "read a file", "open a socket", "take too much memory",
    }  # fmt: skip
    assert [finding for finding in found.findings if finding.wall not in probe.NAMESPACES and not finding.holds] == []
    assert found.keeps("restricted")
    assert found.keeps("isolated")


@pytest.mark.parametrize(
    ("numbers", "wall", "reason"),
    [
        ({444: 38}, "landlock", "cannot be built"),
        ({446: 1}, "landlock", "cannot be built"),
        ({446: 0}, "landlock", "does not hold"),
        ({445: 0, 446: 0}, "landlock", "does not hold"),
        ({436: 0}, "hardening", "does not hold"),
    ],
    ids=["no landlock", "landlock refused", "landlock pretended", "rules pretended", "closing pretended"],
)
@pytest.mark.sampled(3)
def test_a_wall_that_does_not_stand_is_noticed(numbers: dict[int, int], wall: str, reason: str) -> None:
    found = looked(numbers)
    assert not found["restricted"]
    assert not found["isolated"]
    assert not found["walls"][wall]
    assert any(line.startswith(f"{wall}: {reason}") for line in found["missing"]), found["missing"]


@pytest.mark.skipif(system_calls.machine() != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize(
    "numbers", [{272: 1}, {272: 0}, {165: 1}], ids=["unshare refused", "pretended", "mount refused"]
)
@pytest.mark.sampled(1)
def test_without_namespaces_the_levels_stand(numbers: dict[int, int]) -> None:
    found = looked(numbers)
    assert found["restricted"]
    assert not found["namespaces"]


@pytest.mark.skipif(system_calls.machine() != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize("error", [1, 22, 38])
@pytest.mark.sampled(1)
def test_without_notifications_the_levels_stand_and_nothing_is_counted(error: int) -> None:
    found = looked({317: error})
    assert found["restricted"]
    assert found["isolated"]
    assert not found["walls"][probe.ENTRIES]
    assert not found["walls"][probe.SOCKETS]


@pytest.mark.skipif(system_calls.machine() != "x86_64", reason="numbers of x86_64")
def test_a_pretended_filter_is_noticed() -> None:
    # prctl does nothing and says that it went well: no filter, no dumpable, no death with the parent.
    found = looked({157: 0})
    assert not found["walls"]["seccomp"]
    assert not found["restricted"]


def test_what_cannot_be_tried_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = probe.look()
    assert found.trouble
    assert not found.keeps("restricted")
    assert found.keeps("native")


@pytest.mark.parametrize(
    "said",
    [b"", b"[]", b"{}", b'{"landlock": 7}', b'{"landlock": "x", "attempts": []}', b'{"landlock": 7, "attempts": [1]}'],
)
def test_nonsense_is_not_believed(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    program = f"import os, sys; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); os._exit(0)"
    monkeypatch.setattr(supervisor_client, "PRELUDE", program)
    assert not probe.look().keeps("restricted")


def test_an_attempt_that_ends_its_process_takes_no_other_with_it(tmp_path: Path) -> None:
    code = """
from licet.sandbox import attempts
from licet.sandbox.attempts import Attempt, World

def refuse(world):
    raise PermissionError

def odd(world):
    raise LookupError("odd\\nindeed")

def behind(act):
    return lambda world: act(world) if walled else None

walled = False
def build(world):
    global walled
    walled = True

def unbuilt(world):
    raise OSError("no such wall")

ways = {
    "stops": (build, behind(refuse)), "dies": (build, behind(lambda world: os._exit(3))),
    "is odd": (build, behind(odd)), "stands open": (build, lambda world: None),
    "was stopped already": (build, refuse), "cannot be tried": (build, lambda world: os.stat("/nowhere/at/all")),
    "cannot be built": (unbuilt, behind(refuse)), "is always odd": (unbuilt, odd),
}
given = [Attempt("wall", about, *way) for about, way in ways.items()]
world = World(spec["given"] + "/file", spec["given"], 1, os.getpid())
answer = dict(zip(ways, attempts.outcomes(given, world)))
"""
    assert run(code, given=str(tmp_path)) == {
        "stops": "holds",
        "dies": "the attempt ended without an answer",
        "is odd": "LookupError: odd indeed",
        "stands open": "does not hold",
        "was stopped already": "holds already",
        "cannot be tried": "could not be tried: [Errno 2] No such file or directory: '/nowhere/at/all'",
        "cannot be built": "cannot be built: no such wall",
        "is always odd": "LookupError: odd indeed",
    }


def test_each_attempt_on_files_finds_the_one_hole_that_it_looks_for(tmp_path: Path) -> None:
    code = """
from licet.sandbox import attempts; from licet.sandbox.kernel import hardening, landlock
from licet.sandbox.attempts import World

rights = {
    "read a file": landlock._READ_FILE, "write to a file": landlock._WRITE_FILE,
    "create a file": landlock._MAKE_REG, "list a directory": landlock._READ_DIR,
}

def around(right):
    def build(world):
        hardening.no_new_privs()
        landlock.restrict(landlock.ruleset([landlock.PathRule(world.folder, right)]))
    return build

world, answer = World(spec["given"] + "/file", spec["given"], 1, os.getpid()), {}
for hole, right in rights.items():
    tried = [attempt._replace(build=around(right)) for attempt in attempts.ATTEMPTS
             if attempt.wall == "landlock" and attempt.about in rights]
    said = zip(tried, attempts.outcomes(tried, world))
    answer[hole] = [attempt.about for attempt, outcome in said if outcome == "does not hold"]
"""
    found = run(code, given=str(tmp_path))
    assert found == {about: [about] for about in found}
    assert len(found) == 4


def test_elsewhere_than_on_linux_only_native_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    found = probe.look()
    assert [found.keeps(level) for level in ("restricted", "isolated", "native")] == [False, False, True]
    with pytest.raises(SandboxUnavailable, match=r"`restricted` cannot be kept here: .*not Linux.*only `native` runs"):
        found.require("restricted")


def test_a_refusal_says_what_is_missing_and_how_to_get_it() -> None:
    found = Support(
        0,
        (
            Attempted("landlock", "read a file", "cannot be built: no Landlock"),
            Attempted("seccomp", "open a socket", "holds"),
            Attempted("hardening", "open too many files", "holds"),
        ),
    )
    with pytest.raises(SandboxUnavailable) as refused:
        found.require("isolated")
    assert "landlock: cannot be built: no Landlock (tried to read a file)" in str(refused.value)
    assert "lsm=" in str(refused.value)
    found.require("native")


def test_a_wall_that_was_not_tried_does_not_hold() -> None:
    assert not Support(7, ()).keeps("restricted")
    assert list(Support(7, ()).faults("seccomp")) == ["seccomp: nothing was tried that only this wall stops"]


def test_one_attempt_that_succeeds_is_enough_against_a_wall() -> None:
    good, bad = Attempted("seccomp", "a", "holds"), Attempted("seccomp", "b", "does not hold")
    assert Support(7, (good,)).wall_holds("seccomp")
    assert not Support(7, (good, bad)).wall_holds("seccomp")


def test_a_process_tries_once() -> None:
    assert probe.support() is probe.support()


def test_a_receipt_names_the_walls_with_the_version_of_landlock() -> None:
    assert Support(7, ()).layers("restricted") == ("landlock-7", "seccomp", "hardening")
    assert Support(7, ()).layers("native") == ()
