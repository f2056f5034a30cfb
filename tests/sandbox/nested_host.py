"""A host inside somebody else's sandbox: it walls itself in as it is told, makes calls, and says what came of them."""

import errno
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

from licet import Backends
from licet.sandbox import probe
from licet.sandbox.kernel import hardening, landlock, seccomp, system_calls
from licet.sandbox.native import InProcess
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers import engine
from sandbox import wild_tools as wild
from sandbox.growth_tools import start
from sandbox.levels import WALLED, call, gate

_ERRNO, _ALLOW, _NEW_SPACES = 0x00050000, 0x7FFF0000, 0x7E020000


def no_namespaces() -> None:
    """Refuse what makes namespaces, as the profiles of containers do."""
    numbers = system_calls.NUMBERS[system_calls.machine()]
    refused = (_ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS)
    steps = [(0x20, 0, 0, 0)]
    for name, answer in (("unshare", 0), ("setns", 0), ("mount", 0), ("clone3", 1)):
        steps += [(0x15, 0, 1, numbers[name]), (0x06, 0, 0, refused[answer])]
    steps += [(0x15, 0, 3, numbers["clone"]), (0x20, 0, 0, 16), (0x45, 0, 1, _NEW_SPACES), (0x06, 0, 0, refused[0])]
    steps.append((0x06, 0, 0, _ALLOW))
    hardening.no_new_privs()
    seccomp.install(b"".join(struct.pack("=HBBI", *step) for step in steps))


def landlocked() -> None:
    """Read and run everything, write to one directory, and no TCP at all."""
    hardening.no_new_privs()
    everything = landlock.READ | landlock.WRITE | landlock.DELETE
    rules = [("/", landlock.READ | landlock.EXECUTE), (os.environ["TMPDIR"], everything), ("/dev/null", everything)]
    landlock.restrict(landlock.ruleset([landlock.PathRule(path, access) for path, access in rules]))


OUTER = {"filter": [no_namespaces], "landlock": [landlocked], "both": [no_namespaces, landlocked], "licet": []}


def said_by(place: Path) -> dict[str, Any]:
    """What walled tools and programs come to here."""
    said: dict[str, Any] = {"namespaces": probe.support().namespaces, "missing": probe.support().missing("isolated")}
    for level in WALLED:
        at = gate(place, level, wild.count, wild.count_on, wild.misbehave)
        results = [call(at, name) for name in ("count", "count_on", "count_on")]
        said[level] = [result.value or result.error for result in results]
        said[f"{level}, forking"] = call(at, "misbehave", {"how": "fork"}).error
    for degraded in (False, True):
        sandbox = engine.Workers(InProcess(), ProgramWalls())
        parts = Backends.memory(processes=LocalProcesses("/usr/bin:/bin"), sandbox=sandbox)
        at = gate(place, "restricted", start, backends=parts, sandbox={"allow_degraded": degraded})
        result = call(at, "start", {"times": 2})
        kept = result.programs and result.programs.missing
        said["degraded" if degraded else "whole"] = [result.value, result.reason, result.explain(), kept]
    return said


if __name__ == "__main__":
    os.environ.setdefault("HOME", "/nowhere")
    for build in OUTER[sys.argv[1]]:
        build()
    if OUTER[sys.argv[1]]:  # begin anew, with nothing known from outside
        os.execv(sys.executable, [sys.executable, __file__, "licet"])
    folder = Path(os.environ["TMPDIR"], "place")
    folder.mkdir()
    print(json.dumps(said_by(folder)))
