"""What a run with flags alone has left that the person's own git would act on, and that nothing could close before.

A commit writes the index, so the index is open: a program can make a repository in any directory and add it. From then
on `git status` at the top runs what the configuration of that repository names. So its `.git` is renamed when the run
has ended, and a person is told. The same goes for a rebase that it has left under way, which stays as it is.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

from licet.core.algebra.scope import inside, visible
from licet.own_files import renamed_aside
from licet.policy_files.git_index import UnreadIndex, gitlinks
from licet.policy_files.trusted_paths import REBASE, Repository, rebase_under_way

_GIT = ".git"


def settle(repositories: Mapping[str, Repository], written: tuple[str, ...]) -> list[str]:
    """Rename what the index of a repository names since the run began. Returns what a person is told."""
    told = []
    for directory, before in repositories.items():
        if inside(directory, written) and rebase_under_way(directory) not in (b"", before.rebase):
            file = visible(os.path.join(directory, REBASE))
            why = "`git rebase --continue` runs what it names"
            told.append(f"the command has left a rebase under way: read {file}, since {why}, or `git rebase --abort`")
        try:
            new = sorted({*gitlinks(directory)} - {*before.gitlinks})
        except UnreadIndex:
            told.append(f"the index in {visible(directory)} cannot be read: look at it before you use git there")
            continue
        for name in new:
            path = os.path.join(before.tree, name, _GIT)
            if inside(path, written) and (text := _renamed(before.tree, path)):
                told.append(text)
    return told


def _renamed(tree: str, path: str) -> str:
    """What is told of a repository that was added; empty if there is none, or git does not enter it."""
    about = f"{visible(os.path.dirname(path))} is a repository that the command added to yours"
    try:
        moved = renamed_aside(tree, path, _is_missing)
    except NotADirectoryError:  # a link on the way, which git does not follow either
        return ""
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return ""
        return f"{about}, and its .git cannot be renamed ({error.strerror}): git here runs what its configuration names"
    if not moved:
        return ""
    why = "git here would run what its configuration names"
    return (
        f"{about}: its .git is {visible(os.path.basename(moved))} now, since {why}; read that, then rename it yourself"
    )


def _is_missing(folder: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        os.lstat(name, dir_fd=folder)
        return False
    return True
