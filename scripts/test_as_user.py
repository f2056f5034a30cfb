"""Runs all tests as the user `nobody`, in a copy of the tracked files that this user owns, and all of the README.

Does nothing for an ordinary user, who has run them already.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from ordinary_user import NOBODY, interpreter, opened  # noqa: E402


def main() -> int:
    """Run pytest and return its exit code; 0 with a message if there is nothing to run."""
    if os.getuid():
        print("· an ordinary user has run the tests already")
        return 0
    place = Path(tempfile.mkdtemp(prefix="licet-user-", dir="/tmp"))  # a directory that other users can enter
    try:
        place.chmod(0o755)
        python = interpreter(place)
        if python is None:
            print("· there is no Python here that another user can run: the tests as an ordinary user are skipped")
            return 0
        project, home = place / "project", place / "home"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, tracked.split("\0")):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, project / name, follow_symlinks=False)
        opened(project)
        home.mkdir()
        for path in (home, project, *project.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        environment = {**os.environ, "HOME": str(home), "PYTHON": python}
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "VIRTUAL_ENV"):
            environment.pop(name, None)
        as_user = {"cwd": project, "env": environment, "user": NOBODY, "group": NOBODY, "extra_groups": []}
        subprocess.run(["make", "--no-print-directory", ".venv"], check=True, **as_user)  # type: ignore[call-overload]
        tests = [".venv/bin/pytest", "-n", os.environ.get("WORKERS", "auto"), "--dist", "worksteal"]
        ended = subprocess.run(tests, check=False, **as_user)  # type: ignore[call-overload]
        environment["LICET_LONG"] = "1"
        print("· every command of the README, as an ordinary user", flush=True)
        readme = subprocess.run([".venv/bin/pytest", "tests/test_readme.py"], check=False, **as_user)  # type: ignore[call-overload]
        return int(ended.returncode or readme.returncode)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
