"""Makes a virtual environment with exactly the packages that a lock file pins and licet itself, editable or as a copy.

Does nothing if the environment is up to date; a copy of licet is installed again each time. The record of its contents
is written last, so the next run starts an interrupted one over. Uses only the standard library, because it runs before
anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = "licet-environment.json"
# Settings that would install packages elsewhere, or leave some out. Index, proxy and certificate settings stay.
DIVERTING = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_DEPS", "PIP_CONSTRAINT", "PIP_REQUIREMENT")


def main() -> None:
    """Bring the environment named on the command line up to date."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("folder", help="where the environment is; a name is beside this project's Makefile")
    options.add_argument("lock", help="the hashed requirements, all of them wheels")
    options.add_argument(
        "--source-lock", help="hashed requirements that exist only as source, built with what `lock` has"
    )
    options.add_argument("--without-licet", action="store_true", help="leave licet itself out")
    options.add_argument("--copy", action="store_true", help="install licet so that it needs this checkout no more")
    chosen = options.parse_args()

    target = ROOT / chosen.folder
    wanted = {
        "place": str(target),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "packages": _digest(chosen.lock, chosen.source_lock),
    }
    licet = "" if chosen.without_licet else _digest("pyproject.toml")
    if not chosen.copy and _held(target) == {**wanted, "licet": licet}:
        _compile(target, licet)
        return
    # If two makes run at once, the second waits here and then finds the environment ready.
    with open(ROOT / f"{chosen.folder}.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        held = _held(target)
        if wanted.items() - held.items():
            _fill(target, chosen.lock, chosen.source_lock)
            _record(target, {**wanted, "licet": ""})
        if licet and (chosen.copy or held != {**wanted, "licet": licet}):
            _say(f"{target.name}: installing licet")
            how = ["--force-reinstall"] if chosen.copy else ["--editable"]
            _pip(target, "--no-deps", "--no-build-isolation", "--no-index", *how, str(ROOT))
            _record(target, {**wanted, "licet": licet})
    if not chosen.copy:  # pip has compiled a copy
        _compile(target, licet)


def _compile(target: Path, licet: str) -> None:
    """Compile the sources of licet: pip compiles other packages when it installs them, but not an editable one.

    This only saves time: where Python may not write compiled files, it would compile all of licet at each start.
    """
    if licet:
        command = [str(target / "bin" / "python"), "-I", "-m", "compileall", "-qq", str(ROOT / "src")]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _fill(target: Path, lock: str, source_lock: str | None) -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as missing:
        sys.exit(
            f"{sys.executable} cannot make virtual environments: its module `{missing.name}` is missing\n"
            "install it (Debian, Ubuntu: `apt install python3-venv`), or use another: make PYTHON=/path/to/python3 ..."
        )
    (target / RECORD).unlink(missing_ok=True)
    _say(f"{target.name}: making a virtual environment with Python {sys.version.split()[0]}")
    # With the base interpreter: the one that runs this may belong to the environment that is cleared.
    python = getattr(sys, "_base_executable", None) or sys.executable
    _run([python, "-I", "-m", "venv", "--clear", str(target)], "making the virtual environment")
    _say(f"{target.name}: installing {lock} (once; takes about a minute)")
    # Only wheels, because installing one runs none of its code.
    _pip(target, "--require-hashes", "--only-binary=:all:", "-r", lock)
    if source_lock:
        _say(f"{target.name}: installing {source_lock}")
        _pip(target, "--require-hashes", "--no-deps", "--no-build-isolation", "-r", source_lock)


def _pip(target: Path, *arguments: str) -> None:
    pip = [str(target / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--no-warn-script-location", *arguments], "installing packages")


def _run(command: list[str], doing: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in DIVERTING}
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        sys.exit(f"{doing} failed: the output is above (packages come from the index that pip is set up to use)")


def _held(target: Path) -> dict[str, str]:
    """Read the record of an environment; empty if it is absent, incomplete, or its interpreter is gone."""
    try:
        record = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(record) if (target / "bin" / "python").exists() else {}


def _record(target: Path, held: dict[str, str]) -> None:
    (target / RECORD).write_text(json.dumps(held), encoding="utf-8")


def _digest(*files: str | None) -> str:
    return hashlib.sha256(b"\0".join((ROOT / file).read_bytes() for file in files if file)).hexdigest()


def _say(line: str) -> None:
    print(f"· {line}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the next make starts over")
