"""Decides whether `licet diff` may go on without the links, submodules and large files of a git revision.

Without a policy file an agent would look gone, and without a workspace or a lock it would look smaller. So such a file
is an error, and so is a directory around it. Other files are listed in a note.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import click

from licet.backends.git_tree import LeftOut
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.policy_files.policy_paths import LOCK_FILE, POLICY_DIRECTORY, SUFFIXES, WORKSPACE_FILE, workspace_root
from licet.policy_files.source.find import source_candidates
from licet.surfaces.cli.output import show

_MOST_LISTED = 5  # paths that one message names


def note_left_out(revision: str, left_out: Iterable[LeftOut]) -> None:
    """List the left-out files that look like policy or source."""
    named = [visible(one.path) for one in left_out if one.path.lower().endswith((*SUFFIXES, ".py", ".wasm"))]
    if named:
        listed = ", ".join(named[:_MOST_LISTED]) + (" …" if named[_MOST_LISTED:] else "")
        show(f"licet: links and large files of {revision} are left out: {listed}", err=True, colour="yellow")


def refuse_left_out(revision: str, left_out: Iterable[LeftOut], needed: set[str], folder: str | None) -> None:
    """End the command if something was left out that the policies of either version need.

    `needed` has paths inside the repository. `folder` is the directory whose manifests are compared, if it is one.
    """
    around = {str(above) for path in needed for above in PurePosixPath(path).parents}
    wrong = [one for one in left_out if one.path in needed or one.path in around or _may_be_manifest(one, folder)]
    if wrong:
        lines = [f"{revision}:{visible(one.path)} {one.why}" for one in wrong[:_MOST_LISTED]]
        more = [f"and {len(wrong) - _MOST_LISTED} more"] if wrong[_MOST_LISTED:] else []
        why = "what the policies of that revision allow is not known without it"
        hint = "; name one MANIFEST if it is no part of one" if folder is not None else ""
        raise click.ClickException("\n".join((*lines, *more, why + hint)))


def needed_at(path: PurePosixPath, manifest: Manifest | None = None) -> Iterator[str]:
    """The files that a policy file consists of, and where its tools are found; paths inside the repository."""
    root = PurePosixPath(workspace_root(Path(path.parent)))
    yield str(path)
    for place in (root, root / POLICY_DIRECTORY):
        yield from (str(place / name) for name in (WORKSPACE_FILE, LOCK_FILE))
    for reference, _ in manifest.sources.values() if manifest is not None else ():
        yield from (str(PurePosixPath(one)) for one in source_candidates(reference, Path(root)))


def _may_be_manifest(one: LeftOut, folder: str | None) -> bool:
    if folder is None or not one.may_be_policy or not one.path.lower().endswith(SUFFIXES):
        return False
    return str(PurePosixPath(one.path).parent) in (folder, str(PurePosixPath(folder, POLICY_DIRECTORY)))
