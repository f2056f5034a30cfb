"""Says what git does not say when it failed behind walls: why it misses its repository, and why `git stash` is silent.

`git stash` is the one command of git that ends without a word where it may not write its index.
"""

import os
from collections.abc import Iterator, Sequence

from licet.assemble.repository_grant import repository_of, with_repository
from licet.cli.run_hints import closed_because
from licet.core.algebra.rules import use_of_path
from licet.core.algebra.scope import visible
from licet.core.decision.reach import Reach
from licet.policy_files.linked_repository import NotFollowed

_MISSED = "not a git repository"


def git_hints(words: Sequence[str], said: str, reach: Reach, workdir: str) -> Iterator[str]:
    """The lines for a command that failed; `said` is the last of its output, as far as it was seen."""
    typed = " ".join(words).replace("/", " ").replace(";", " ").split()  # a line of a shell is one word of these
    if "git" not in typed and _MISSED not in said:
        return
    try:
        repository = repository_of(reach, workdir)
    except NotFollowed as error:
        yield f"git has no repository here: {error}"
        return
    path = os.path.join(workdir, ".git") if repository is None else repository.own
    if "stash" not in typed or not os.path.isdir(path):
        return
    use = use_of_path("write", os.path.join(path, "index.lock"))
    held = with_repository(reach, workdir)
    if not held.grant.has(use):
        why = closed_because(held, use, "fs_reach.write", workdir)
        yield f"`git stash` writes to its repository, and `{visible(path)}` may not be written: {why}"
