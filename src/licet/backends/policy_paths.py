"""Where policy lies: the paths that no grant may ever write, and the directory that a policy file speaks for.

Nothing is parsed beyond what it takes to tell policy from other files; see `policy_look`.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from licet.backends.policy_look import Look
from licet.core.scope import Malformed, path_key

WORKSPACE_FILE = "licet.yaml"
LOCK_FILE = "licet.lock"
POLICY_DIRECTORY = ".licet"
SUFFIXES = (".yaml", ".yml", ".json")

MOST_LOOKED_AT = 1_000  # files in one directory that may be policy; if there are more, all of them count as policy
MOST_LISTED = 10_000  # files in one directory that are closed one by one; if there are more, the directory is closed


def policy_root(path: Path) -> Path:
    """The directory that a policy file speaks for: its own, or the parent if its own is called `.licet`.

    It is the root for `from:` and the base of the workspace id.
    """
    return workspace_root(path.parent)


def workspace_root(directory: Path) -> Path:
    """A directory itself, or its parent if it is called `.licet`."""
    if directory.name in ("", ".."):  # `.`, or a path that ends in `..`: only the real path has a name
        inside = os.path.basename(os.path.realpath(directory)) == POLICY_DIRECTORY
        return directory / ".." if inside else directory
    return directory.parent if directory.name == POLICY_DIRECTORY else directory


def policy_paths(files: Iterable[str | Path], trusted: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """Every path that no grant may write because policy lies there or would be found there.

    `files` are the policy files in use, `trusted` those that this user has accepted. Next to each file in use that is
    `licet.yaml`, `licet.lock` and `.licet`, whether they exist or not, and every file that looks like policy. A
    directory called `.licet` that holds policy is closed as a whole. Paths are absolute; where links are involved, the
    link and what it leads to are both listed. A trusted file counts, whether it exists or not, as long as the directory
    that it speaks for does. Names that no rule can express are left out: no policy is loaded from
    such a file.
    """
    found: dict[str, None] = {}
    directories: dict[str, None] = {}
    for file in files:
        spellings = _spellings(file)
        found.update(dict.fromkeys(spellings))
        directories.update(dict.fromkeys(os.path.dirname(path) for path in spellings))
    look = Look()
    for directory in directories:
        found.update(dict.fromkeys(_of_directory(directory, look)))
    for file in trusted:
        # A project that is gone closes nothing: a name that cannot be made would keep programs from making others.
        if not os.path.isdir(policy_root(Path(os.path.abspath(file)))):
            continue
        for path in _spellings(file):
            found[path] = None
            if _is_policy_directory(directory := os.path.dirname(path)):
                found[directory] = None
    return tuple(path for path in found if _can_be_named(path))


def _spellings(path: str | Path) -> tuple[str, ...]:
    """The path as it was named, with the links of its directory resolved, and with all links resolved."""
    named = os.path.abspath(path)
    directory, name = os.path.split(named)
    return tuple(dict.fromkeys((named, os.path.join(os.path.realpath(directory), name), os.path.realpath(named))))


def _of_directory(directory: str, look: Look) -> Iterator[str]:
    if not _is_policy_directory(directory):
        for name in (WORKSPACE_FILE, LOCK_FILE, POLICY_DIRECTORY):
            yield from _spellings(os.path.join(directory, name))
        yield from _looking_like_policy(directory, look)
        return
    yield directory
    # A link in there may lead to a file elsewhere. And policy at the top level of the project keeps working: what
    # exists there is closed too, while new names stay free for programs.
    yield from _looking_like_policy(directory, look)
    parent = os.path.dirname(directory)
    for name in (WORKSPACE_FILE, LOCK_FILE):
        if os.path.lexists(path := os.path.join(parent, name)):
            yield from _spellings(path)
    yield from _looking_like_policy(parent, look)


def _is_policy_directory(directory: str) -> bool:
    return os.path.basename(directory) == POLICY_DIRECTORY


def _looking_like_policy(directory: str, look: Look) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            candidates = sorted(entry.path for entry in entries if entry.name.lower().endswith(SUFFIXES))
    except FileNotFoundError:
        return
    except OSError:  # nobody can tell what is in it
        yield directory
        return
    if len(candidates) > MOST_LISTED:
        yield directory
        return
    for path in candidates:
        if len(candidates) > MOST_LOOKED_AT or look.is_policy(path):
            yield from _spellings(path)


def _can_be_named(path: str) -> bool:
    try:
        return path_key(path) == path
    except Malformed:
        return False
