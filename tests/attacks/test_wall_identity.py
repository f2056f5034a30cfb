"""Another user, more privileges, another name towards the host."""

import ctypes
import os
import struct
from pathlib import Path
from typing import Any

from attacks.behind_walls import Outside, raw
from licet import SyncContext


def become_another_user() -> int:
    """A tool of root becomes another user, whose files it then has."""
    os.setresuid(65534, 65534, 65534)
    return os.getuid()


def test_become_another_user(outside: Outside) -> None:
    outside.shows(become_another_user, lambda user: user == 65534, root=True)


VERSION = 0x20080522


def capabilities_again() -> int:
    """A tool takes back capabilities that its process gave up."""
    header, sets = struct.pack("=Ii", VERSION, 0), ctypes.create_string_buffer(24)
    raw("capget", header, sets)
    _, permitted, _, *_ = struct.unpack("=6I", sets.raw)
    raw("capset", header, struct.pack("=6I", permitted or 1, permitted or 1, 0, 0, 0, 0))
    return int(permitted)


def test_capabilities_again(outside: Outside) -> None:
    outside.shows(capabilities_again, lambda held: held, root=True, rare=True)


def forged_identity(ctx: SyncContext, secret: str) -> str:
    """A tool asks the host in the name of another tool, session and agent, with a grant of its own making."""
    inside: Any = ctx
    try:
        host = inside._target._host
    except AttributeError:  # without walls there is nobody to ask
        return Path(secret).read_text()
    claims = {"tool": "another", "agent": "root", "session_id": "s2", "grant": ["fs:*:*"], "level": "native"}
    return str(host.ask_now("fs.read", path=secret, limit=None, **claims).blob)


def test_forged_identity(outside: Outside) -> None:
    outside.shows(forged_identity, refused="PATH_NOT_REACHABLE")
