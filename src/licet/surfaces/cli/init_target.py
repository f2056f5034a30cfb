"""Where `licet init` writes a policy: its obstacles, its schema, its agent, and its place on the trust list."""

import re
from pathlib import Path

from msgspec.structs import replace

from licet.assemble.trust import PolicyMoved, accept_policy
from licet.core.origin import Origin, Problem
from licet.errors import LicetError
from licet.policy_files.load import load_own_manifest
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root
from licet.policy_files.syntax import MOST_BYTES
from licet.regular_files import is_there, read_regular
from licet.surfaces.cli.output import is_special, make_way_for, write_file
from licet.surfaces.cli.schema import not_ours, write_schema


def agent_name(folder: Path) -> str:
    """The name of a directory as the name of an agent."""
    words = re.findall(r"[A-Za-z0-9_.-]+", folder.resolve().name)
    return "-".join(words)[:128] or "agent"


def obstacles(target: Path, force: bool) -> list[Problem]:
    """The reasons why the policy, or the schema next to it, cannot be written."""
    return _file_obstacles(target, force) or _schema_obstacles(_schema_folder(target))


def write_policy(target: Path, text: str, *, replaces: bool = False) -> list[Problem]:
    """Write a policy and the schema next to it, and accept it; warns if it could not be accepted."""
    write_schema("manifest", _schema_folder(target))
    write_file(target, text, replace=replaces)
    return _accept_written(target, text)


def _file_obstacles(target: Path, force: bool) -> list[Problem]:
    origin = Origin(str(target), 1, 1)
    workspace = target.parent / WORKSPACE_FILE
    inside = target.parent.name == POLICY_DIRECTORY  # it is made if it does not exist
    if not (policy_root(target) if inside else target.parent).is_dir():
        return [Problem(origin, f"no directory {target.parent}", "one that exists", "make it first")]
    if is_special(target):  # the schema would be written to /dev as well
        return [Problem(origin, "something that is not a file", "a new file", "-o - only prints")]
    try:
        make_way_for(target)
    except OSError as wrong:
        return [Problem(origin, "a placeholder for a closed name", "a new file", wrong.strerror or "")]
    if target.exists() and not force:
        return [Problem(origin, "a file that is there already", "a new one", "--force replaces it; -o - only prints")]
    above = policy_root(target) / WORKSPACE_FILE
    if inside and target.name == WORKSPACE_FILE and is_there(above):
        expected = f"none, since commands would find {target} instead"
        hint = f"move it there, or replace it with -o {above} --force; -o - only prints"
        return [Problem(Origin(str(above), 1, 1), "a file that is there already", expected, hint)]
    if target.name != WORKSPACE_FILE and is_there(workspace):
        hint = f"write to {workspace}, or into another directory"
        return [Problem(origin, f"a {WORKSPACE_FILE} next to it, which would be its workspace", "none", hint)]
    return []


def _schema_folder(target: Path) -> Path:
    """The directory of the schema for editors."""
    return policy_root(target) / POLICY_DIRECTORY


def schema_path(target: Path) -> str:
    """The path of the schema, relative to a policy file."""
    name = "manifest.schema.json"
    return name if target.parent.name == POLICY_DIRECTORY else f"{POLICY_DIRECTORY}/{name}"


def _schema_obstacles(folder: Path) -> list[Problem]:
    """The reasons why the schema cannot be written: a project from elsewhere may contain a link in its place."""
    hint = "move it out of the way; -o - only prints the manifest"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        found = "a link" if folder.is_symlink() else "something that is no directory"
        return [Problem(Origin(str(folder), 1, 1), found, "a directory for the schema, or none", hint)]
    foreign = not_ours("manifest", folder)
    return [replace(foreign, hint=hint)] if foreign else []


def _accept_written(target: Path, text: str) -> list[Problem]:
    """Accept the policy that was just written, since its author has seen it; warn if that cannot be stored."""
    try:
        manifest = load_own_manifest(target)
        if read_regular(target, MOST_BYTES) != text.encode():
            raise PolicyMoved("it was changed at once")
        accept_policy(target, manifest)
    except (LicetError, OSError) as wrong:
        hint = "commands use it where it is named, or once `licet trust` has accepted it"
        return [
            Problem(
                Origin(str(target), 1, 1),
                f"a policy that could not be accepted ({wrong})",
                "one that is",
                hint,
                "warning",
            )
        ]
    return []
