"""What it takes to run tests as an ordinary user when root has started them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NOBODY = 65534


def can_run(python: str) -> bool:
    command = [python, "-c", "import ctypes, ssl"]
    try:
        subprocess.run(command, user=NOBODY, env={}, capture_output=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def interpreter(place: Path) -> str | None:
    """A Python of this version that every user may run: an installed one, or a copy of this one."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    there = (os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}")
    for candidate in there:
        if can_run(candidate):
            return candidate
    # This one is probably in a home directory. Python finds its libraries by its own place, so both are copied.
    prefix, copy = Path(os.path.realpath(sys.base_prefix)), place / "python"
    (copy / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), copy / "bin" / version)
    ignored = shutil.ignore_patterns("test", "idlelib", "site-packages", "tkinter", "*.a")
    shutil.copytree(prefix / "lib" / version, copy / "lib" / version, ignore=ignored)
    opened(copy)
    # A Python that is linked to a library of its own still looks for it at the old place, and cannot be run.
    return str(copy / "bin" / version) if can_run(str(copy / "bin" / version)) else None


def opened(tree: Path) -> None:
    """Let every user read a tree."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
