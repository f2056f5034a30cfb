"""A tool starts a program that makes whoever starts it root."""

import os
import subprocess

from attacks.behind_walls import Outside


def attack() -> str:
    found = [f"/usr/bin/{name}" for name in ("passwd", "chsh", "su", "sudo", "newgrp", "mount")]
    program = next(path for path in found if os.path.exists(path) and os.stat(path).st_mode & 0o4000)
    subprocess.run([program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=30)
    return "started"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(
        attack,
        lambda said: said == "started",
        refused="PermissionError|PROCESS_NOT_ALLOWED|not permitted|StopIteration",
        rare=True,
    )
