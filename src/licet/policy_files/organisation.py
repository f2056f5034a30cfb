"""Reads the organisation file of this machine and narrows manifests by it, for every command, gateway and `Gate`.

The path is a constant: no option, working directory or policy file moves it or skips it. The file counts only if nobody
but its owner, root, can have written it. If it is there and cannot be used, `ManifestError` is raised, and all is
refused. It binds agents and policies. It does not bind a user who controls the interpreter (`PYTHONPATH`), mounts over
the file in a namespace of their own, or begins another state (`--state`, `XDG_STATE_HOME`, another name of an agent),
where budgets of a day are counted anew.

A second file may be named, to try it out; it narrows further, and may belong to anyone.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from licet.core.values import Origin, Problem
from licet.errors import ManifestError
from licet.policy_files.limits import MOST_STEPS

# Every command looks for the file, and most machines have none: what reads it is imported when it is there.
if TYPE_CHECKING:
    from licet.core.policy.manifest import Manifest
    from licet.core.policy.manifest_fields import Organisation

__all__ = ["machine_organisation", "read_organisation_file", "under_organisation"]

_WHAT = "an organisation file"


class Place(Struct, frozen=True):
    """Where the organisation file of a machine is, and who must own it and the directories from `top` down to it."""

    file: str
    owner: int
    top: str = "/"


MACHINE = Place("/etc/licet/organisation.yaml", 0)  # only tests put another one here, in their own process


def machine_file() -> str:
    """The path of the organisation file of this machine, which need not exist."""
    return MACHINE.file


def under_organisation(manifest: "Manifest", second: str | Path | None = None) -> "Manifest":
    """The manifest narrowed by the organisation of this machine, and by a `second` file if one is named.

    `ManifestError` if a file is there and cannot be used. Its digest stays, and no grant writes these files.
    """
    own = machine_organisation()
    above = [one for one in (own, None if second is None else read_organisation_file(second)) if one is not None]
    new = [one for one in above if one not in manifest.organisations]
    if not new:
        return manifest
    from licet.core.policy.layer import POLICY  # only machines that have such a file need these
    from licet.policy_files.manifest_reader import with_protected_paths
    from licet.policy_files.policy_paths import policy_paths

    files = [one.origin.file for one in new]
    # The whole directory, so that nothing takes the place of the file of the machine.
    folders = [os.path.dirname(way) for way in (MACHINE.file, os.path.realpath(MACHINE.file))] if own in new else []
    closed = dict.fromkeys((*policy_paths(files), *folders), POLICY)
    return with_protected_paths(manifest.under(*new), closed)


def machine_organisation() -> "Organisation | None":
    """The organisation of this machine; None if there is no file. `ManifestError` if it cannot be used."""
    try:
        os.lstat(os.path.dirname(MACHINE.file))
    except FileNotFoundError:
        return None  # one look is all that a machine without the file pays
    except OSError as error:
        raise _refused(f"a directory that cannot be looked at ({_why(error)})") from None
    try:
        return read_organisation_file(_checked_path(MACHINE), place=MACHINE)
    except _Missing:
        return None


def read_organisation_file(path: str | Path, *, place: Place | None = None) -> "Organisation":
    """Read one organisation file, or raise `ManifestError` with all its errors. `place` says who must own it."""
    organisation, problems = organisation_and_problems(path, place=place)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or organisation is None:
        raise ManifestError(errors)
    return organisation


def organisation_and_problems(
    path: str | Path, *, place: Place | None = None
) -> tuple["Organisation | None", tuple[Problem, ...]]:
    """Read one organisation file, with its errors and warnings; None if it cannot be read at all."""
    from licet.policy_files.checks import suffix_problems
    from licet.policy_files.manifest_reader import NewerFormat, checked_document, read_organisation, refuse_newer
    from licet.policy_files.nodes import read_nodes

    name = place.file if place is not None else os.path.abspath(path)  # a link on the way does not change its name
    node, found = read_nodes(_read(Path(path), name, place), name)
    problems = list(found)
    try:
        refuse_newer(node)
    except NewerFormat as newer:
        return None, (newer.problem,)
    content = checked_document(Origin(name, 1, 1), node, problems, "organisation").content
    problems += suffix_problems(content)
    organisation = read_organisation(content, problems) if content is not None else None
    return organisation, tuple(dict.fromkeys(problems))


def _read(path: Path, name: str, place: Place | None) -> bytes:
    from licet.own_files import open_regular, read_most
    from licet.policy_files.limits import MOST_BYTES

    try:
        with open_regular(path) as fd:
            if place is not None:
                _refuse_shared(name, os.fstat(fd), place)
            return read_most(fd, MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no file there" if missing else f"a file that cannot be read ({_why(error)})"
        raise ManifestError([Problem(Origin(name, 1, 1), found, _WHAT)]) from None


class _Missing(Exception):
    """There is no organisation file."""


def _checked_path(place: Place) -> str:
    """The real path of the file, after every directory and link on the way to it was looked at."""
    last = ""
    for path, status in _way(place):
        last = path
        if path == place.top or path.startswith(place.top.rstrip("/") + "/"):
            _refuse_shared(path, status, place)
    return last


def _way(place: Place) -> Iterator[tuple[str, os.stat_result]]:
    """Every directory on the way to the file, then the file; links are followed, and so is the way to their targets."""
    here, waiting, linked = "/", place.file.split("/"), False
    for _ in range(MOST_STEPS):
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            if linked:  # a link to nothing is no missing file: what it names may be on a disk that is not there yet
                raise _refused("a link that leads nowhere") from None
            raise _Missing from None
        except OSError as error:
            raise _refused(f"a file that cannot be looked at ({_why(error)})") from None
        if stat.S_ISLNK(status.st_mode):
            target, linked = os.readlink(here), True
            waiting = [*target.split("/"), *waiting]
            here = "/" if target.startswith("/") else os.path.dirname(here)
            continue
        yield here, status
        while waiting and waiting[0] in ("", "."):
            waiting.pop(0)
        if not waiting:
            return
        part = waiting.pop(0)
        here = os.path.dirname(here) if part == ".." else os.path.join(here, part)
    raise _refused("too many links on the way to it")


def _refuse_shared(path: str, status: os.stat_result, place: Place) -> None:
    """Refuse a file or directory of somebody else, or one that others may write.

    An access list that lets another user write shows as the write bit of the group.
    """
    owner = "root" if place.owner == 0 else f"user {place.owner}"
    if status.st_uid != place.owner:
        raise _refused(f"{path}, which belongs to user {status.st_uid}", f"one that belongs to {owner}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        raise _refused(f"{path}, which others than {owner} may write (mode {mode})", f"one that only {owner} may write")


def _refused(found: str, expected: str = _WHAT) -> ManifestError:
    hint = "everything is refused until who administers this machine has repaired it"
    return ManifestError([Problem(Origin(MACHINE.file, 1, 1), found, expected, hint)])


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or "an unreadable path").lower()
