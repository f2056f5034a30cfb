"""Looks for a key behind walls: in the environments, the words, the memory and the files of all programs there.

Run as a program there: SITE KEY-BACKWARDS STAND-IN FOLDER… COMMAND as JSON. It starts the command, waits until the site
has sent the first answer with a key, searches, lets the answer go on, and prints what it has seen.
"""

import base64
import json
import os
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress

STEP = 1 << 24


def forms(value: bytes) -> tuple[bytes, ...]:
    """A value as it is, and in base64 wherever it begins in a group of three bytes."""
    inner = [base64.b64encode(b"\0" * before + value)[4 if before else 0 : -4] for before in range(3)]
    return (value, *inner)


def has(data: bytes, value: bytes) -> bool:
    """Whether a value is in some bytes."""
    return any(form in data for form in forms(value))


def places(value: bytes, folders: list[str]) -> list[str]:
    """Where a value is: in other processes, and in files."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        if int(process) == os.getpid():
            continue
        for part in ("environ", "cmdline"):
            with suppress(OSError), open(f"/proc/{process}/{part}", "rb") as file:
                if has(file.read(), value):
                    found.append(part)
        with suppress(OSError):
            if in_memory(process, value):
                found.append("memory")
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError), open(os.path.join(where, name), "rb") as file:
                    if os.path.isfile(file.name) and has(file.read(), value):
                        found.append("file")
    return sorted(set(found))


def in_memory(process: str, value: bytes) -> bool:
    """Whether a value is in memory that a process can read."""
    with open(f"/proc/{process}/maps", encoding="utf-8") as lines, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in lines:
            span, access = line.split()[:2]
            begin, end = (int(number, 16) for number in span.split("-"))
            if not access.startswith("r") or "[vvar" in line or "[vsyscall" in line:
                continue
            for start in range(begin, end, STEP):
                with suppress(OSError, ValueError):
                    memory.seek(start)
                    if has(memory.read(min(STEP + 4096, end - start)), value):
                        return True
    return False


def main(site: str, backwards: str, stand_in: str, *rest: str) -> None:
    """Start the command, search, and print what was found."""
    *folders, command = rest
    started = subprocess.Popen(json.loads(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    seen: dict[str, object] = {}

    def tell_its_end() -> None:
        started.wait()
        with suppress(OSError):
            urllib.request.urlopen(f"{site}/~ended").read()

    threading.Thread(target=tell_its_end).start()
    try:
        urllib.request.urlopen(f"{site}/~arrived").read()
        seen["stand_in"] = places(stand_in.encode(), folders)
        seen["key"] = places(backwards[::-1].encode(), folders)
    except OSError as wrong:
        seen["wrong"] = str(wrong)
    urllib.request.urlopen(f"{site}/~searched").read()
    out = started.communicate()[0]
    seen |= {"code": started.returncode, "key_after": places(backwards[::-1].encode(), folders)}
    print(json.dumps({**seen, "out": out.decode("latin-1")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
