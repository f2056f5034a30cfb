"""Finds the files of a project that hold secrets by custom, such as `.env.local` and `key.pem`, in a bounded search.

What programs must read to work, such as `.npmrc`, is not among them, and no link: what it leads to has its own name.
"""

import os
import re
from collections import deque
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from licet.core.review.sensitive import TRUSTED, is_secret_file
from licet.policy_files.limits import MOST_LOOKED_THROUGH, MOST_SECRET_FILES

_PLAIN = re.compile(r"[\w/.+@, -]+")  # in a rule, other signs may have a meaning of their own
_NOT_SEARCHED = frozenset({".git", ".hg", ".jj", "node_modules", ".venv", "venv", ".tox", ".nox"})
_READ_BY_PROGRAMS = frozenset(os.path.basename(trusted.path) for trusted in TRUSTED)


class SecretFiles(Struct, frozen=True):
    """Paths relative to the project, and whether they are all."""

    paths: tuple[str, ...]
    is_whole: bool


def secret_files(project: str) -> SecretFiles:
    """Search a project from its top down."""
    found: list[str] = []
    folders, left, is_whole = deque([project]), MOST_LOOKED_THROUGH, True
    while folders:
        folder = folders.popleft()
        if left <= 0:
            return SecretFiles(tuple(found), False)
        with suppress(OSError), os.scandir(folder) as entries:  # what cannot be read is closed to the agent, too
            seen = sorted(islice(entries, left + 1), key=lambda entry: entry.name)
            left -= len(seen)
            for entry in seen:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _NOT_SEARCHED:
                        folders.append(entry.path)
                elif _is_secret(entry):
                    path = os.path.relpath(entry.path, project)
                    if len(found) == MOST_SECRET_FILES or not _PLAIN.fullmatch(path):
                        is_whole = False
                    else:
                        found.append(path)
    return SecretFiles(tuple(found), is_whole and left >= 0)


def _is_secret(entry: os.DirEntry[str]) -> bool:
    is_named_so = is_secret_file(entry.name) and entry.name not in _READ_BY_PROGRAMS
    return is_named_so and entry.is_file(follow_symlinks=False)
