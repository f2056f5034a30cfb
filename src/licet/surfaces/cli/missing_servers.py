"""Tools that a manifest admits as if they were a server's, where its workspace has no such server.

Most often the servers are in another workspace: the file in `.licet/`, while the manifest is next to that directory.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from licet.core.decision.admission import call_denials
from licet.core.origin import Problem
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import SERVER_NAME
from licet.policy_files.nodes import Mapping, read_nodes
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE
from licet.policy_files.shapes import did_you_mean
from licet.policy_files.syntax import MOST_BYTES
from licet.regular_files import read_regular

_MOST_NAMED = 5  # tools that one message names
_TOOL = re.compile(rf"({SERVER_NAME})\.[^.].*")


def tools_without_server(manifest: Manifest) -> dict[str, list[str]]:
    """The admitted tools that nothing declares and that are named like those of a server, by that server."""
    known = manifest.tools.keys() | manifest.sources.keys()
    found: dict[str, list[str]] = {}
    for name in manifest.admissions:
        like = _TOOL.fullmatch(name)
        if like and like[1] not in manifest.servers and name not in known and not call_denials(manifest, name):
            found.setdefault(like[1], []).append(name)
    return found


def missing_server_problems(manifest: Manifest, severity: Literal["error", "warning"]) -> Iterator[Problem]:
    """A problem for each server that is missing, with the workspace that probably should be in use."""
    for server, tools in tools_without_server(manifest).items():
        origin = manifest.admissions[tools[0]][0].origin
        listed = ", ".join(f"`{name}`" for name in tools[:_MOST_NAMED]) + (" …" if len(tools) > _MOST_NAMED else "")
        hint = did_you_mean(server, manifest.servers, []) or other_workspace(manifest, [server])
        hint = hint or f"`licet lock --init {server} -- COMMAND` drafts one"
        text = f"{listed}, but no server `{server}` and no such tool in its workspace"
        yield Problem(origin, text, f"`{server}` under `servers:` in the {WORKSPACE_FILE} next to it", hint, severity)


def other_workspace(manifest: Manifest, wanted: Iterable[str] = ()) -> str:
    """Which file near a manifest has servers, and what to do; empty if there is none.

    One that has a `wanted` server comes before others.
    """
    file = Path(manifest.origin.file)
    around = (file.parent, file.parent / "..", Path())
    places = [Path(os.path.normpath(one / name)) for one in around for name in (POLICY_DIRECTORY, "")]
    used = {os.path.realpath(file), os.path.realpath(file.parent / WORKSPACE_FILE)}
    found = {
        place: names
        for place in dict.fromkeys(places)
        if os.path.realpath(place / WORKSPACE_FILE) not in used and (names := _servers(place / WORKSPACE_FILE))
    }
    having = [place for place, names in found.items() if not names.isdisjoint(wanted)]
    for place in (*having, *found):
        where = "this directory" if place == Path() else f"`{place}/`"
        return f"`{place / WORKSPACE_FILE}` has servers: put the manifest into {where}"
    return ""


def _servers(path: Path) -> frozenset[str]:
    """The names below `servers:` in a file; none if it cannot be read."""
    try:
        node, problems = read_nodes(read_regular(path, MOST_BYTES), str(path))
    except (OSError, ValueError):
        return frozenset()
    entry = node.entries.get("servers") if isinstance(node, Mapping) and not problems else None
    return frozenset(entry.node.entries) if entry is not None and isinstance(entry.node, Mapping) else frozenset()
