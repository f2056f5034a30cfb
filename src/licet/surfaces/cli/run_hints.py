"""Names the walls that a failed command of `licet run` hit, from what the command itself said.

Only the program learns that the kernel refused it something. So a wall is named only if the last output of the command
names a path with an error that walls cause, and the policy closes that path. Output to a terminal is not seen.
"""

import os
import re
from collections.abc import Iterable, Iterator

from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use, use_of_path
from licet.core.decision.reach import Reach
from licet.core.origin import COMMAND_LINE
from licet.core.policy.layer import POLICY
from licet.guard.held_paths import held_paths
from licet.sandbox.grant_paths import NEVER
from licet.sandbox.programs.files import MADE_FILES, SYSTEM
from licet.surfaces.cli.output import show

MOST_SHOWN = 10
_MOST_LINES, _MOST_LINE = 200, 4096
_ACROSS = ("cross-device", "exdev", "resource busy", "ebusy")  # what a directory that is kept in place answers
_READ_ONLY = ("read-only", "erofs")
_REFUSED = re.compile(
    r"operation not permitted|permission denied|read-only file system|invalid cross-device link|device or resource busy"
    r"|\b(?:EPERM|EACCES|EROFS|EXDEV|EBUSY)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""['"`‘“]([^'"`‘’“”]+)['"`’”]""")
_BEFORE = re.compile(r"(\S+?)['\")]*:\s*(?:\[Errno \d+\]\s*)?$")
_TEMPORARY = ("/tmp", "/var/tmp", "/run/scratch", *NEVER)  # noqa: S108 - may be scratch, which is the program's own


def hints(said: str, reach: Reach | None, workdir: str, held: Iterable[str], *, degraded: bool) -> list[str]:
    """The walls that the output of a command shows it hit, each with the rule that explains it."""
    if reach is None:
        return []
    found: dict[str, None] = {}
    for path, error in _named(said):
        why = _wall(reach, os.path.normpath(os.path.join(workdir, path)), error, tuple(held), degraded=degraded)
        if why:
            found[why] = None
    return list(found)[:MOST_SHOWN]


def show_hints(lines: Iterable[str]) -> None:
    """Print the hints on stderr."""
    for number, line in enumerate(lines):
        if not number:
            show("licet: the command met walls of its policy:", err=True)
        show(f"  - {line}", err=True)


def _named(said: str) -> Iterator[tuple[str, str]]:
    """The paths that stand in the output next to an error of a wall, with that error."""
    for line in said.splitlines()[-_MOST_LINES:]:
        for error in _REFUSED.finditer(line[:_MOST_LINE]):
            before = _BEFORE.search(line[: error.start()])
            words = [*_QUOTED.findall(line[:_MOST_LINE]), *([before[1].lstrip("'\"`(")] if before else [])]
            yield from ((word, error[0].lower()) for word in words if word and "\0" not in word)


def _wall(reach: Reach, path: str, error: str, held: tuple[str, ...], *, degraded: bool) -> str:
    """The wall at a path, or an empty text if the policy closes nothing there."""
    granted = held_paths(reach.grant)
    if inside(path, _TEMPORARY) and not granted.overlaps("read", path) and not granted.overlaps("write", path):
        return ""
    try:
        read, write = use_of_path("read", path), use_of_path("write", path)
    except InvalidUse:
        return ""
    shown = f"`{visible(path)}`"
    if any(mark in error for mark in _ACROSS):
        kept = [place for place in held if inside(path, (place,))]
        return f"a closed file lies in `{visible(kept[0])}`: nothing is moved or linked across it" if kept else ""
    if not reach.grant.has(read) and os.path.lexists(path) and not inside(path, (*SYSTEM, *MADE_FILES)):
        return f"{shown} may not be read: {_because(reach, read, 'fs_reach.read')}"
    # What may not be written is mounted read-only; without a private root, Landlock says that it is not permitted.
    if degraded or any(mark in error for mark in _READ_ONLY):
        if reach.effect in (None, "read_only"):
            return f"{shown} may not be written: the class of the policy is read_only ({reach.manifest.origin})"
        if not reach.grant.has(write):
            return f"{shown} may not be written: {_because(reach, write, 'fs_reach.write')}"
    if reach.effect in (None, "read_only") or not reach.grant.has(write):
        return ""
    if not os.path.lexists(path):
        return _without_new_names(reach, os.path.dirname(path), degraded=degraded)
    return _not_deleted(reach, path)


def _because(reach: Reach, use: Use, key: str) -> str:
    """The rule that denies a use, or how to allow it."""
    for layer in reach.layers:
        for rule in layer.denies:
            if CapabilitySet([rule.capability]).has(use):
                return rule.key if layer.kind == "protected paths" else f"`{rule.capability}` is denied ({rule.origin})"
    return f"no rule allows it; to allow it, add the path under `{key}` ({reach.manifest.origin})"


def _not_deleted(reach: Reach, path: str) -> str:
    """That nothing is renamed or deleted where a file is, if that is so."""
    if reach.effect == "destructive" or held_paths(reach.free_deletes).covers("delete", path):
        return ""
    if reach.effect != "full":
        why = f"the class is {reach.effect}; it takes full, and `approvals.delete: session` or `manifest`"
    elif reach.free_deletes:
        why = "it is not inside `fs_reach.write`, or deletes there are denied"
    else:
        why = f"it takes `approvals.delete: session` or `manifest` ({reach.delete_origin})"
    return f"`{visible(path)}` may be written, and not renamed or deleted: {why}"


def _without_new_names(reach: Reach, directory: str, *, degraded: bool) -> str:
    """That no name can be made in a directory, if that is so."""
    rules = (rule for layer in reach.layers if layer.kind == "protected paths" for rule in layer.denies)
    # With a private root, a closed name that exists is covered by a mount.
    missing = {rule.capability.key for rule in rules if rule.key == POLICY and not os.path.lexists(rule.capability.key)}
    if directory not in held_paths(reach.grant).directories_with_closed_names():
        return ""
    if not degraded and (reach.manifest.origin.file == COMMAND_LINE or directory not in map(os.path.dirname, missing)):
        return ""
    why = "without namespaces, and with closed names in it" if degraded else "for policy could be planted in it"
    way = "write below it, or through a tool with `ctx.fs`" if degraded else "keep policy in .licet/ to change that"
    return f"no new names can be made directly in `{visible(directory)}`, {why}: {way}"
