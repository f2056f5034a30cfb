"""Compares the time of `licet run -- true` with that of `srt true`, in turns: python scripts/compare_srt.py SRT."""

import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

RUNS = 20
TARGET = 0.75
POLICY = 'agent: peer\ncapabilities: {process: {allowed_binaries: ["true"]}}\n'


def seconds(command: list[str], folder: str) -> float:
    """Return the time that a command takes; exits if the command fails."""
    started = time.perf_counter()
    environment = {**os.environ, "XDG_STATE_HOME": str(Path(folder, "state"))}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def main(srt: str) -> None:
    """Print the median of both and their ratio."""
    licet = str(Path(sysconfig.get_path("scripts")) / "licet")
    with tempfile.TemporaryDirectory(prefix="licet-peers-") as folder:
        Path(folder, "agent.yaml").write_text(POLICY, encoding="utf-8")
        ours = [licet, "run", "agent.yaml", "--", "true"]
        theirs = [str(Path(srt).resolve()), "true"]
        try:
            seconds(theirs, folder)
        except subprocess.CalledProcessError as failed:
            reason = failed.stderr.decode(errors="replace").strip()[-200:]
            print(f"· srt does not run here: {reason}: the comparison is skipped")
            return
        try:
            seconds([licet, "trust", "agent.yaml", "--yes"], folder)
            pairs = [(seconds(ours, folder), seconds(theirs, folder)) for _ in range(RUNS + 1)][1:]
        except subprocess.CalledProcessError as failed:
            sys.exit(f"{failed.cmd[0]} ended with {failed.returncode}: {failed.stderr.decode(errors='replace')[-500:]}")
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"· licet run -- true {mine:.3f} s, srt true {other:.3f} s: {mine / other:.2f}x (target at most {TARGET}x)")


if __name__ == "__main__":
    main(sys.argv[1])
