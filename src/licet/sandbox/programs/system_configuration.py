"""The configuration of installed programs in /etc that every program may read.

Distributions keep the configuration of a program in /etc, and lead to it by links in the program's own tree below /usr.
What these links lead to is shown, and the paths of a short table, for programs that name /etc themselves. Of both, only
what every user of the machine may read: no passwords, no keys of the host, no rights of users. Not shown are links
where a tool may write, because it could choose with one what the next program reads.

The links are searched once. They are searched again when a directory of `_WATCHED` has changed: these change with each
package that is installed.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.guard.held_paths import held_paths
from licet.own_files import read_regular, replace_file
from licet.policy_files.policy_paths import cache_root
from licet.sandbox.limits import LARGEST_LINK_CACHE, MOST_CONFIGURATION, MOST_LINK_ENTRIES
from licet.sandbox.programs.program_files import SYSTEM

# Programs that name /etc in their own code, without a link that leads there.
TABLE = (
    "/etc/chromium", "/etc/chromium.d", "/etc/opt/chrome", "/etc/gdb", "/etc/inputrc", "/etc/bash.bashrc", "/etc/magic",
    "/etc/screenrc", "/etc/lsb-release", "/etc/redhat-release", "/etc/alpine-release",
)  # fmt: skip
# Variables of every session, which may be keys: a program gets those that its policy names.
_HELD_BACK = ("/etc/environment",)

# Where programs lie as trees, and how many levels below are searched. A search of all of /usr takes seconds.
_TREES = (("/usr/share", 1), ("/usr/lib", 1), ("/usr/lib64", 1), ("/usr/lib/jvm", 8), ("/usr/lib64/jvm", 8))
# The trees, and the databases of dpkg, rpm, pacman and apk.
_WATCHED = (
    *(tree for tree, _ in _TREES), "/etc", "/var/lib/dpkg", "/var/lib/rpm", "/usr/lib/sysimage/rpm",
    "/var/lib/pacman/local", "/lib/apk/db",
)  # fmt: skip
_FORMAT = 1

Links = tuple[tuple[str, str], ...]  # a link below /usr, and what it leads to in /etc
Changes = tuple[tuple[int, int] | None, ...]


def configuration(ceiling: CapabilitySet | None = None) -> tuple[str, ...]:
    """The paths in /etc that programs may read; with what some tool may do at most, without the links it may make."""
    written = held_paths(ceiling) if ceiling is not None else None
    trees = [tree for tree, _ in _TREES if written is None or not written.overlaps("write", tree)]
    linked = (target for link, target in _links(_changes()) if inside(link, trees))
    shown: set[str] = set()
    for path in dict.fromkeys((*TABLE, *linked)):
        if not inside(path, (*SYSTEM, *_HELD_BACK)):
            shown |= set(public_parts(path))
    return tuple(sorted(_gathered(shown)))


def public_parts(path: str) -> Iterator[str]:
    """A path in /etc if every user may read all of it; otherwise the parts of it that every user may read."""
    real = os.path.realpath(path)  # a link in /etc may lead anywhere
    folders = [real[:end] for end, letter in enumerate(real) if letter == "/" and end]
    with suppress(OSError):
        if inside(real, ("/etc",)) and all(_is_public(os.lstat(folder)) for folder in folders):
            yield from _parts(real, [MOST_CONFIGURATION])[1]


def _parts(path: str, left: list[int]) -> tuple[bool, list[str]]:
    """Whether all of a path is public, and its public parts; not more than are left to look at."""
    left[0] -= 1
    about = os.lstat(path)
    if left[0] < 0 or not _is_public(about):
        return False, []
    if not stat.S_ISDIR(about.st_mode):
        return True, [path]
    with os.scandir(path) as entries:  # a link in it shows nothing but its name
        names = sorted(entry.path for entry in entries if not entry.is_symlink())
    looked = [_parts(name, left) for name in names]
    if all(whole for whole, _ in looked):
        return True, [path]
    return False, [part for _, parts in looked for part in parts]


def _is_public(about: os.stat_result) -> bool:
    if stat.S_ISDIR(about.st_mode):
        return about.st_mode & 0o5 == 0o5
    return stat.S_ISREG(about.st_mode) and bool(about.st_mode & stat.S_IROTH)


def _gathered(paths: set[str]) -> set[str]:
    """The same paths, with a directory in place of its entries where all of them are shown: each takes a mount."""
    shown, folders = set(paths), {os.path.dirname(path) for path in paths} - {"/etc"}
    while folders:
        folder = max(folders, key=len)
        folders.remove(folder)
        with suppress(OSError):
            entries = {os.path.join(folder, name) for name in os.listdir(folder)}
            if entries <= shown and _is_public(os.lstat(folder)):
                shown = (shown - entries) | {folder}
                folders |= {os.path.dirname(folder)} - {"/etc"}
    return {path for path in shown if not inside(os.path.dirname(path), shown)}


# The links ------------------------------------------------------------------------------------------------------------


def _changes() -> Changes:
    """When what is searched last changed."""
    return tuple(map(_change, _WATCHED))


def _change(directory: str) -> tuple[int, int] | None:
    try:
        about = os.stat(directory)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


@lru_cache(2)
def _links(changes: Changes) -> Links:
    """The links, from the search before this one if nothing has changed since."""
    root = cache_root()
    file = os.path.join(root, "links-to-etc.json") if root else ""
    links = _remembered(file, changes) if file else None
    if links is None:
        links = tuple(search(_TREES))
        if file:
            with suppress(OSError):  # it is searched again next time
                os.makedirs(root, 0o700, exist_ok=True)
                replace_file(file, json.dumps([_FORMAT, changes, links]).encode())
    return links


def _remembered(file: str, changes: Changes) -> Links | None:
    """What was found before; None if something has changed, or another version of licet wrote it."""
    try:
        version, before, links = json.loads(read_regular(file, LARGEST_LINK_CACHE, links=False))
        if version != _FORMAT or before != json.loads(json.dumps(changes)):
            return None
        return tuple((str(link), str(target)) for link, target in links)
    except (OSError, ValueError, TypeError):
        return None


def search(trees: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Each link in these trees that leads to /etc, with what it leads to."""
    left = MOST_LINK_ENTRIES
    folders = [(tree, depth) for tree, depth in trees if not os.path.islink(tree)]
    for folder, depth in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return
                if entry.is_symlink():
                    target = os.path.normpath(os.path.join(folder, os.readlink(entry.path)))
                    # What Debian's alternatives choose is shown anyway.
                    if inside(target, ("/etc",)) and not inside(target, ("/etc/alternatives",)):
                        yield entry.path, target
                elif depth and entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth - 1))
