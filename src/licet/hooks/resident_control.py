"""What `licet hooks status` and tests ask of the residents of this user: which there are, and that they end."""

import os
import socket
from collections.abc import Iterator

from licet.hooks import resident_wire as wire
from licet.hooks.limits import READ_BYTES, REQUEST_SECONDS
from licet.hooks.resident_place import NoPlace, NoResident, Unreachable, connect_in, directory, opened

_SUFFIX = ".sock"


def resident_status() -> list[dict[str, str]]:
    """The state of each resident that listens: name, pid, version, and what it has done.

    One that does not answer has a `problem`.
    """
    return [{"name": name, **state} for name, state in _asked(wire.STATUS)]


def stop_residents() -> list[str]:
    """End all residents, with the lines that they run; returns the names of those that were told to."""
    return [name for name, state in _asked(wire.STOP) if "problem" not in state]


def _asked(kind: int) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        place = opened(directory(dict(os.environb)))
    except (FileNotFoundError, NoPlace):
        return
    try:
        names = sorted(entry.removesuffix(_SUFFIX) for entry in _entries(place) if entry.endswith(_SUFFIX))
        for name in names:
            try:
                yield name, _answer(place, name, kind)
            except NoResident:
                continue
            except (OSError, Unreachable, wire.BadMessage) as wrong:
                yield name, {"problem": str(wrong) or type(wrong).__name__}
    finally:
        os.close(place)


def _entries(place: int) -> list[str]:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    try:
        return os.listdir(readable)
    finally:
        os.close(readable)


def _answer(place: int, name: str, kind: int) -> dict[str, str]:
    raw = connect_in(place, name)
    with socket.socket(fileno=raw.detach()) as end:
        end.settimeout(REQUEST_SECONDS)
        end.sendall(wire.packed(kind))
        messages = wire.Messages(wire.FROM_RESIDENT)
        while data := end.recv(READ_BYTES):
            for said, fields in messages.feed(data):
                if said == wire.STATE and len(fields) % 2 == 0:
                    words = [field.decode("utf-8", "replace") for field in fields]
                    return dict(zip(words[::2], words[1::2], strict=True))
                if said == wire.LEAVING:
                    return {}
                raise wire.BadMessage("no answer")
    raise Unreachable("it has ended")
