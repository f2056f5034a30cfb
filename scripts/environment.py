"""Makes a virtual environment that holds exactly one lock file and, editable, licet itself.

Does nothing when the environment is already that. The record of what it holds is written last, so an interrupted
run is started over by the next one. Uses the standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = "licet-environment.json"
# Settings that would send packages elsewhere, or leave some out; index, proxy and certificate settings stay in force.
DIVERTING = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_DEPS", "PIP_CONSTRAINT", "PIP_REQUIREMENT")


def main() -> int:
    """Bring the environment named on the command line up to date."""
    folder, lock, *options = sys.argv[1:]
    target = ROOT / folder
    editable = "--without-licet" not in options
    wanted = {
        "place": str(target),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "lock": _digest(ROOT / lock),
        "licet": _digest(ROOT / "pyproject.toml") if editable else "",
    }
    if _holds(target) == wanted:
        return 0
    # Two makes may run side by side: the second waits here, then finds the work done.
    with open(ROOT / f"{folder}.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        held = _holds(target)
        if held == wanted:
            return 0
        if {**held, "licet": ""} != {**wanted, "licet": ""}:
            _fill(target, folder, lock)
            _record(target, {**wanted, "licet": ""})
        if editable:
            _say(f"{folder}: installing licet")
            _pip(target, "--no-deps", "--no-build-isolation", "--no-index", "--editable", str(ROOT))
            _record(target, wanted)
    return 0


def _fill(target: Path, folder: str, lock: str) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            f"{sys.executable} cannot make virtual environments: its `ensurepip` module is missing\n"
            "install it (Debian, Ubuntu: `apt install python3-venv`), or use another: make PYTHON=/path/to/python3 ..."
        )
    (target / RECORD).unlink(missing_ok=True)
    _say(f"{folder}: making a virtual environment with Python {sys.version.split()[0]}")
    # From the base interpreter: the one that runs this may be the environment about to be cleared.
    python = getattr(sys, "_base_executable", None) or sys.executable
    _run([python, "-I", "-m", "venv", "--clear", str(target)], "making the virtual environment")
    _say(f"{folder}: installing {lock} (once, about a minute)")
    # Wheels only, so that nothing is compiled or run while it installs.
    _pip(target, "--require-hashes", "--only-binary=:all:", "-r", str(ROOT / lock))


def _pip(target: Path, *arguments: str) -> None:
    pip = [str(target / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--no-warn-script-location", *arguments], "installing packages")


def _run(command: list[str], doing: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in DIVERTING}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        sys.exit(f"{doing} failed; the output is above. Packages come from the index that pip is set up to use.")


def _holds(target: Path) -> dict[str, str]:
    """What the environment holds now; nothing when it is absent, half made, or its interpreter is gone."""
    try:
        held = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if (target / "bin" / "python").exists() else {}


def _record(target: Path, held: dict[str, str]) -> None:
    (target / RECORD).write_text(json.dumps(held), encoding="utf-8")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _say(line: str) -> None:
    print(f"· {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
