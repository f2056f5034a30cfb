"""Measures how long a closed file is open to a program after a process of the host has replaced it.

    python scripts/replaced_files.py [TIMES]

A program behind walls asks as fast as it can whether it may write a file, and the host replaces that file. Once alone,
and once with as many busy processes as the machine has processors. `docs/limits.md` has the results.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from attacks.walled_programs import PYTHON, Programs  # noqa: E402
from licet.sandbox.programs import supervisor_client  # noqa: E402

PROGRAM = """
import os, sys, time
top, moments, before = sys.argv[1], [], False
open(top + "/started", "w").close()
while not os.path.exists(top + "/end"):
    for _ in range(1000):
        moment = time.monotonic_ns()
        now = os.access(top + "/file", os.W_OK)
        if now != before:
            moments.append(moment)
            before = now
print(*moments)
"""
# A file that is replaced often keeps the program waiting, and nothing could be measured.
PATIENT = """
from licet.sandbox import limits
limits.MOST_REPLACED = 1_000_000
"""
PAUSE = 0.02  # seconds; between two replacements


def measured(times: int) -> tuple[int, list[float]]:
    """How often the file was found open, and for how many milliseconds each time."""
    with tempfile.TemporaryDirectory() as place:
        top = Path(place).resolve()
        (top / "file").write_text("")
        deny = [f"fs:write:{top}/file", f"fs:delete:{top}/file"]
        programs = Programs("namespaces", [f"fs:*:{top}"], deny=deny, effect="destructive", seconds=3600.0)
        output: list[str] = []
        command = (PYTHON, "-I", "-S", "-c", PROGRAM, str(top))
        thread = threading.Thread(target=lambda: output.append(programs.run(*command).stdout))
        thread.start()
        while not (top / "started").exists():
            time.sleep(PAUSE)
        for _ in range(times):
            (top / "new").write_text("")
            os.rename(top / "new", top / "file")
            time.sleep(PAUSE)
        (top / "end").write_text("")
        thread.join()
    moments = [int(word) for word in output[0].split()]
    return len(moments) // 2, sorted(
        (end - start) / 1e6 for start, end in zip(moments[::2], moments[1::2], strict=False)
    )


def main() -> None:
    """Print both measurements."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    supervisor_client.PRELUDE += supervisor_client._IMPORT_LICET + PATIENT
    for busy in (0, os.cpu_count() or 1):
        others = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            count, gaps = measured(times)
        finally:
            for other in others:
                other.kill()
                other.wait()
        middle, high, most = (
            gaps[min(len(gaps) - 1, int(len(gaps) * part))] if gaps else 0.0 for part in (0.5, 0.99, 1.0)
        )
        print(f"{busy} busy: open in {count} of {times}; p50 {middle:.2f} ms, p99 {high:.2f} ms, max {most:.2f} ms")


if __name__ == "__main__":
    main()
