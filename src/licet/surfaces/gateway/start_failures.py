"""Guesses from what a server wrote why it did not start behind its walls, and which entry would help.

These are guesses for a person: servers word their errors as they like.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from licet.backends.packages import LaunchError, launch_of
from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import Malformed, visible
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
# Many servers on PyPI ask for `mcp` without an upper bound, and do not start with 2.x.
_OLD_SDK = re.compile(
    r"'(?:Server|FastMCP)' object has no attribute|No module named 'mcp[.']|cannot import name .* from 'mcp[.']"
)


_NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '(\w+)")


def missing_code(lines: Iterable[str], server: Server, command: Sequence[str], workdir: str) -> Iterator[str]:
    """The entry of `code` that is missing, if a Python script imports a module that lies beside it.

    What the server wrote only says where to look: the advice has names of files that are there, and of the policy.
    """
    try:
        launch = launch_of(command)
    except LaunchError:
        return
    is_module = launch.interpreter[-1:] == ("-m",)
    beside = workdir if is_module else os.path.dirname(os.path.abspath(os.path.join(workdir, launch.program)))
    for name in dict.fromkeys(found[1] for line in lines if (found := _NO_MODULE.search(line))):
        if not any(os.path.exists(os.path.join(beside, f"{name}{ending}")) for ending in (".py", "", ".so")):
            continue
        if beside == workdir:
            first = "a server imports nothing from the working directory: move its files into a directory of their own,"
            yield f'{first} and name that one under `servers.{server.name}`: code: ["${{workdir}}/server"]'
        else:
            inside = f"{beside}/".startswith(f"{workdir}/")
            place = f"${{workdir}}{beside[len(workdir) :]}" if inside else beside
            first = f"`{name}` lies beside the script, and a server imports its own files only from `code`:"
            yield f'{first} add to `servers.{server.name}`: code: ["{visible(place)}"]'
        return


def likely_causes(
    lines: Iterable[str], server: Server, grant: CapabilitySet, arguments: Iterable[str]
) -> Iterator[str]:
    """Lines that say which grant, variable or secret the server probably misses; `arguments` are of its command."""
    if server.kind == "native":
        return
    text = [line for line in lines if line.strip()]
    named = [path for path in (_clean(word.rpartition("=")[2]) for word in arguments) if path.startswith("/")]
    found = [*_arguments(named, server, grant), *_paths(text, server, grant, named)]
    found += [*_hosts(text, server), *_variables(text, server)]
    if any(_OLD_SDK.search(line) for line in text):
        found.insert(0, "probably written for `mcp` 1.x: name that before the package, `uvx --with 'mcp<2' PACKAGE`")
    if not found and text:
        found = [f"if a wall stops it, `servers.{server.name}.grants` has what its process may touch"]
    yield from list(dict.fromkeys(found))[:_MOST]


def _arguments(named: Iterable[str], server: Server, grant: CapabilitySet) -> Iterator[str]:
    """Advice about each path in the command that the grant does not cover, or that does not exist yet."""
    for path in named:
        above = os.path.dirname(path)
        if not os.path.isdir(above):
            continue
        if os.path.lexists(path):
            if rule := _missing(path, grant):
                yield f"probably a wall: its command names {path}: add `{rule}` to `servers.{server.name}.grants`"
        else:
            rule = _missing(above, grant)
            granted = f", and add `{rule}` to `servers.{server.name}.grants`" if rule else ""
            yield f"its command names {path}, which does not exist: make it first{granted}"


def _missing(path: str, grant: CapabilitySet) -> Capability | None:
    """The rule that lets a path be read, if the grant does not cover it."""
    try:
        rule = Capability(f"fs:read:{path}")
    except Malformed:
        return None
    return None if CapabilitySet((rule,)) <= grant else rule


def _paths(lines: Iterable[str], server: Server, grant: CapabilitySet, named: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not _FILE.search(line):
            continue
        for path in map(_clean, _PATH.findall(line)):
            if not os.path.lexists(path) or any(word.startswith(f"{path}/") for word in named):
                continue  # it is not there, or only on the way to a path of the command
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
