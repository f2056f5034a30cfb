"""Guesses from what a server wrote why it did not start behind its walls, and which entry would help.

These are guesses for a person: servers word their errors as they like.
"""

import os
import re
from collections.abc import Iterable, Iterator

from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.servers import Server

_MOST = 3
_FILE = re.compile(
    r"(?i)(?:EACCES|ENOENT|EPERM|EROFS|permission ?error|permission denied|operation not permitted|no such file|"
    r"does not exist|filenotfound|read-only file system|unable to open|cannot (?:open|read|access))"
)
_WRITES = re.compile(r"(?i)EROFS|read-only file system|mkdir|cannot create|unable to write|cannot write")
_PATH = re.compile(r"(?<![\w.:/-])(/(?:[^\s'\"`,;:()<>\[\]]|:(?=\S))+)")
_NETWORK = re.compile(
    r"(?i)ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|getaddrinfo|name or service not known|name resolution|"
    r"network is unreachable|failed to resolve|connection refused|connect(?:ion)? ?error|fetch failed"
)
_HOST = re.compile(
    r"https?://([A-Za-z0-9.-]+)|(?:ENOTFOUND|EAI_AGAIN|host=['\"]?) ?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"
)
_VARIABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b[^.]{0,60}?\b(?:required|set|missing|provided|defined|found)\b|"
    r"(?i:missing|required|set)[^.]{0,40}?\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
)


def likely_causes(
    lines: Iterable[str], server: Server, grant: CapabilitySet, arguments: Iterable[str]
) -> Iterator[str]:
    """Lines that say which grant, variable or secret the server probably misses; `arguments` are of its command."""
    if server.kind == "native":
        return
    text = [line for line in lines if line.strip()]
    found = [*_paths(text, server, grant), *_hosts(text, server), *_variables(text, server)]
    found += _arguments(arguments, server, grant)
    if not found and text:
        found = [f"if a wall stops it, `servers.{server.name}.grants` has what its process may touch"]
    yield from list(dict.fromkeys(found))[:_MOST]


def _arguments(arguments: Iterable[str], server: Server, grant: CapabilitySet) -> Iterator[str]:
    """Paths that the command names and the grants do not."""
    for path in (_clean(word.rpartition("=")[2]) for word in arguments):
        if path.startswith("/") and os.path.isdir(os.path.dirname(path)) and (rule := _missing(path, grant)):
            yield f"probably a wall: its command names {path}: add `{rule}` to `servers.{server.name}.grants`"


def _missing(path: str, grant: CapabilitySet) -> Capability | None:
    """The rule that lets a path be read, if the grant does not cover it."""
    try:
        rule = Capability(f"fs:read:{path}")
    except Malformed:
        return None
    return None if CapabilitySet((rule,)) <= grant else rule


def _paths(lines: Iterable[str], server: Server, grant: CapabilitySet) -> Iterator[str]:
    for line in lines:
        if not _FILE.search(line):
            continue
        for path in map(_clean, _PATH.findall(line)):
            if not os.path.lexists(path):
                continue
            if rule := _missing(path, grant):
                yield f"probably a wall: add `{rule}` to `servers.{server.name}.grants`"
            elif _WRITES.search(line):
                yield f"probably a wall: it writes to {path} when it starts, and servers are locked without writing"


def _clean(path: str) -> str:
    return os.path.normpath(path.rstrip("./"))


def _hosts(lines: Iterable[str], server: Server) -> Iterator[str]:
    for line in lines:
        if _NETWORK.search(line):
            found = _HOST.search(line)
            host = (found[1] or found[2]) if found else "HOST"
            yield f"probably a wall: add `network:https:get@{host}` to `servers.{server.name}.grants`"


def _variables(lines: Iterable[str], server: Server) -> Iterator[str]:
    for line in lines:
        found = _VARIABLE.search(line)
        name = (found[1] or found[2]) if found else ""
        if name and name not in server.env and name not in server.secrets:
            yield f"probably a variable: add `{name}` to `env` or `secrets` of `servers.{server.name}`"
