"""Finds the residents of an installation, talks to them as no client would, and ends them."""

import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

from attacks.programs import alive, until
from hooks.installation import Installation


def named(installed: Installation) -> list[str]:
    """The names of the residents that listen."""
    return [path.stem for path in installed.place.glob("*.sock")]


def stopped(installed: Installation) -> None:
    """End the residents of an installation, also those that do not answer, and wait until they have ended."""
    for process in processes(installed):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        until(lambda process=process: not alive(process))  # type: ignore[misc]


def processes(installed: Installation) -> list[int]:
    """The residents of an installation: their interpreter is its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0] == os.fsencode(installed.python) and b"licet.hooks.resident" in words:
                    found.append(int(entry.name))
    return found


class Connection:
    """A raw connection to the only resident of an installation."""

    def __init__(self, installed: Installation) -> None:
        (path,) = installed.place.glob("*.sock")
        place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        self.end = socket.socket(socket.AF_UNIX)
        self.end.settimeout(120)
        try:
            self.end.connect(f"/proc/self/fd/{place}/{path.name}")
        finally:
            os.close(place)

    def said(self) -> bytes:
        """Everything that comes until the resident closes."""
        data = b""
        with suppress(ConnectionError):
            while part := self.end.recv(1 << 16):
                data += part
        return data
