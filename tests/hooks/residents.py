"""Finds the residents of an installation, talks to them as no client would, and ends them."""

import os
import re
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from attacks.programs import alive, until
from hooks.installation import Installation


def named(installed: Installation) -> list[str]:
    """The names of the residents that listen."""
    return [path.stem for path in installed.place.glob("*.sock")]


def stopped(installed: Installation) -> None:
    """End the residents of an installation, also those that do not answer, and wait until they have ended."""
    ended(processes(installed))


def ended(residents: Iterable[int]) -> None:
    """End residents, and wait until they have ended."""
    for process in residents:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        until(lambda process=process: not alive(process))  # type: ignore[misc]


def processes(installed: Installation) -> list[int]:
    """The residents of an installation: their interpreter is its own."""
    return [int(entry.name) for entry, words in _residents() if words[0] == os.fsencode(installed.python)]


def living_below(*places: Path) -> dict[int, str]:
    """The residents whose home or state lies in a directory, each with which it is."""
    found = {}
    for entry, _ in _residents():
        with suppress(OSError):
            pairs = dict(pair.split(b"=", 1) for pair in (entry / "environ").read_bytes().split(b"\0") if pair)
            own = [os.fsdecode(pairs[name]) for name in (b"XDG_STATE_HOME", b"HOME") if name in pairs]
            if inside := [path for path in own for place in places if Path(path).is_relative_to(place)]:
                found[int(entry.name)] = inside[0]
    return found


def _residents() -> Iterator[tuple[Path, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"licet.hooks.resident" in words:
                    yield entry, words


def without_resident(state: Path) -> None:
    """Let hooks and lines with this state work alone: where the directory of the sockets would be is a file."""
    (state / "licet").mkdir(mode=0o700, parents=True, exist_ok=True)
    (state / "licet" / "resident").touch()


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
