"""Files of the operator that a program sees with a stand-in in place of a key: how they are read, and all their names.

The copy is mounted over the file. A second name of the same file, by a hard link or by a directory that is mounted
twice, would show the key: such names are hidden.

A copy covers a path. A program that moves the file, or a directory around it, would show the key at another path to the
next program: no program of the agent moves them, whether it has the key or not.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.guard.import_path import changeable, followed
from licet.own_files import open_regular, read_most
from licet.sandbox.grant_paths import on_the_way
from licet.sandbox.limits import LARGEST_KEY_FILE
from licet.sandbox.second_names import second_names


def read_key_file(path: str, ceiling: CapabilitySet) -> bytes:
    """The contents of a file. Raises `OSError`, and `ValueError` if it is too large, or if a tool chose which it is.

    A tool that may write a link on the way could show itself any file of the operator.
    """
    real, links = followed(path)
    if any(changeable(link, ceiling) for link in links):
        raise ValueError(f"`{path}` leads through a link that a tool may have made")
    with open_regular(real, links=False) as file:
        text = read_most(file, LARGEST_KEY_FILE + 1)
    if len(text) > LARGEST_KEY_FILE:
        raise ValueError(f"`{path}` has more than {LARGEST_KEY_FILE} bytes")
    return text


def other_names(path: str, granted: Sequence[str], mounts: str = "/proc/self/mountinfo") -> tuple[str, ...]:
    """More names of a file in directories that are granted. `mounts` is the table of mounted file systems.

    Only the operator links a file into the directories of the system, so those are not searched. Raises
    `SandboxUnavailable` if the file has a hard link and too many files are granted to search for it.
    """
    granted = tuple(dict.fromkeys((*granted, *map(os.path.realpath, granted))))
    found = dict.fromkeys(_mounted_elsewhere(path, mounts))
    if os.stat(path).st_nlink > 1:
        found |= dict.fromkeys(second_names(granted, (path,)))
        for one in tuple(found):
            found |= dict.fromkeys(_mounted_elsewhere(one, mounts))
    return tuple(name for name in found if name != path and inside(name, granted))


def mounted_names(path: str, mounts: str = "/proc/self/mountinfo") -> tuple[str, ...]:
    """The names of a file in directories that are mounted twice."""
    return tuple(_mounted_elsewhere(path, mounts))


def kept_in_place(files: Iterable[str], writable: Sequence[str]) -> tuple[str, ...]:
    """These real paths of files, their other names, and the directories around them, where a program may write.

    Raises `SandboxUnavailable` as `other_names` does.
    """
    roots = tuple(dict.fromkeys((*writable, *map(os.path.realpath, writable))))
    names: dict[str, None] = {}
    for path in files:
        names[path] = None
        with suppress(OSError):  # the file is missing, and its directories stay in place all the same
            names |= dict.fromkeys(other_names(path, writable))
    return (*on_the_way(roots, names), *(path for path in names if inside(path, roots) and os.path.isfile(path)))


def _mounted_elsewhere(path: str, mounts: str) -> Iterator[str]:
    """The names of a file through other mounts of its file system."""
    try:
        about = os.stat(path)
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            table = [(words[2], _plain(words[3]), _plain(words[4])) for words in map(str.split, file) if len(words) > 4]
    except OSError:
        return
    own = max((one for one in reversed(table) if inside(path, (one[2],))), key=lambda one: len(one[2]), default=None)
    if own is None:
        return
    device, root, point = own
    within = os.path.normpath(os.path.join(root, os.path.relpath(path, point)))  # the path in the file system itself
    for other, other_root, other_point in table:
        if other != device or (other_root, other_point) == (root, point) or not inside(within, (other_root,)):
            continue
        name = os.path.normpath(os.path.join(other_point, os.path.relpath(within, other_root)))
        try:
            same = os.path.samestat(os.stat(name), about)
        except OSError:
            continue
        if same and name != path:
            yield name


def _plain(word: str) -> str:
    """A path of the table of mounts, which writes spaces and some other characters as octal numbers."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, letter)
    return word
