"""A tool starts a program."""

import subprocess

from attacks.behind_walls import Outside


def attack() -> str:
    return subprocess.run(["/bin/sh", "-c", "echo started"], capture_output=True, text=True, check=True).stdout


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "started\n", refused="PermissionError|PROCESS_NOT_ALLOWED|not permitted")
