"""Advice about a server that did not start behind its walls.

It comes from the policy and from what licet saw itself: the command, the pinned packages, and requests that the proxy
refused. What a server writes is shown as its words, and is no ground for advice: it could ask for `fs:read:~/.ssh`. It
only says which file beside the server's own script to look for.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from licet.backends.packages import LaunchError, launch_of
from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import Malformed, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.lock import Resolved
from licet.core.policy.servers import Server

_MOST = 3
LONGEST_LINE = 300  # characters of what a server wrote


def server_wrote(lines: Iterable[str]) -> Iterator[str]:
    """What a server wrote, as its words."""
    for line in lines:
        cut = visible(line[:LONGEST_LINE])
        yield f"it wrote: {cut}{'…' if len(line) > LONGEST_LINE else ''}"


_NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '(\w+)")
_NO_FILE = re.compile(r"Cannot find module '(\.?/[^']+)'")  # of Node: by a path, and not of a package
_ENDINGS = {"python": (".py", "", ".so"), "node": ("", ".js", ".cjs", ".mjs", ".json", ".node")}


def missing_code(lines: Iterable[str], server: Server, command: Sequence[str], workdir: str) -> Iterator[str]:
    """The entry of `code` that is missing, if a script imports a file that lies beside it or below.

    What the server wrote only says where to look: the advice has names of files that are there, and of the policy.
    """
    try:
        launch = launch_of(command)
    except LaunchError:
        return
    if launch.kind != "file":  # a package is pinned as a whole, and `code` is refused for it
        return
    is_module = launch.interpreter[-1:] == ("-m",)
    beside = workdir if is_module else os.path.dirname(os.path.abspath(os.path.join(workdir, launch.program)))
    kinds = [("python", _NO_MODULE), ("node", _NO_FILE)]
    named = [(kind, found[1]) for line in lines for kind, pattern in kinds if (found := pattern.search(line))]
    for kind, name in dict.fromkeys(named):
        path = os.path.normpath(os.path.join(beside, name))
        if not path.startswith(f"{beside}/") or not any(os.path.exists(path + ending) for ending in _ENDINGS[kind]):
            continue
        name = os.path.relpath(path, beside)
        if beside == workdir:
            first = "a server imports nothing from the working directory: move its files into a directory of their own,"
            yield f'{first} and name that one under `servers.{server.name}`: code: ["${{workdir}}/server"]'
        else:
            inside = f"{beside}/".startswith(f"{workdir}/")
            place = f"${{workdir}}{beside[len(workdir) :]}" if inside else beside
            first = f"`{visible(name)}` lies beside the script, and a server imports its own files only from `code`:"
            yield f'{first} add to `servers.{server.name}`: code: ["{visible(place)}"]'
        return


def likely_causes(
    server: Server,
    grant: CapabilitySet,
    arguments: Iterable[str],
    refused: Iterable[str] = (),
    resolved: Resolved | None = None,
) -> Iterator[str]:
    """Lines that say what a server may miss. `arguments` are of its command, `refused` is what its walls refused."""
    if server.kind == "native":
        return
    named = [path for path in (_clean(word.rpartition("=")[2]) for word in arguments) if path.startswith("/")]
    found = [*_refused(refused, server), *_arguments(named, server, grant), *_newer_sdk(resolved)]
    if not found:
        found = [f"if a wall stops it, `servers.{server.name}.grants` has what its process may touch"]
    yield from list(dict.fromkeys(found))[:_MOST]


def _refused(uses: Iterable[str], server: Server) -> Iterator[str]:
    for use in uses:
        yield f"its walls refused `{visible(use)}`: if it needs that, add it to `servers.{server.name}.grants`"


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


def _newer_sdk(resolved: Resolved | None) -> Iterator[str]:
    """Many servers on PyPI ask for `mcp` without an upper bound, and do not start with 2.x."""
    pins = (pin for each in (resolved.integrity.values() if resolved is not None else ()) for pin in each)
    versions = {pin.partition("==")[2] for pin in pins if pin.startswith("mcp==")}
    if any(not version.startswith(("0.", "1.")) for version in versions):
        yield (
            "it runs with `mcp` 2.x: if it was written for 1.x, name that before the package, "
            "`uvx --with 'mcp<2' PACKAGE`"
        )


def _missing(path: str, grant: CapabilitySet) -> Capability | None:
    """The rule that lets a path be read, if the grant does not cover it."""
    try:
        rule = Capability(f"fs:read:{path}")
    except Malformed:
        return None
    return None if CapabilitySet((rule,)) <= grant else rule


def _clean(path: str) -> str:
    return os.path.normpath(path.rstrip("./"))
