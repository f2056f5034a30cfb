"""Keeps git, in a program, from adding the empty files that stand for closed names while the program runs.

`git add -A` would commit them. So the program sees them listed in `.git/info/exclude` of the repository that they are
in, which a worktree has elsewhere; that file of the host stays as it is. A repository without that file is left out.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from licet.core.algebra.scope import inside
from licet.core.late_pattern import late_pattern
from licet.guard.held_paths import HeldPaths
from licet.own_files import is_placeholder, read_most, read_regular
from licet.sandbox.limits import MOST_UNSEEN
from licet.sandbox.programs.program_files import Shown

_LIST = "info/exclude"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MARKS = late_pattern(r"([\\*?\[\] ])")


def with_unseen(shown: Shown, files: Iterable[str], held: HeldPaths) -> Shown:
    """What a program sees, with these files unseen by git. A list that it may not read stays as it is."""
    for root, names in _by_repository(files).items():
        path = _list_of(root)
        if path in shown.paths or not inside(path, held.allowed("read")) or inside(path, held.denied("read")):
            continue
        with suppress(OSError):  # there is none
            if (text := _text(path)) is not None:
                more = b"".join(b"/%s\n" % os.fsencode(_MARKS.sub(r"\\\1", name)) for name in names)
                shown = shown.with_copy(path, text + b"\n" + more)
    return shown


def _by_repository(files: Iterable[str]) -> dict[str, list[str]]:
    """Files by the root of the repository that they are in, by their names there."""
    found: dict[str, list[str]] = {}
    for path in files:
        root = os.path.dirname(path)
        while root != "/" and not _is_repository(root):
            root = os.path.dirname(root)
        name = os.path.relpath(path, root)
        if name.split("/")[0] != ".git" and "\n" not in name:
            found.setdefault(root, []).append(name)
    return found


def _is_repository(root: str) -> bool:
    """Whether a directory has a `.git`, and not one that stands for a closed name itself."""
    with suppress(OSError):
        return not is_placeholder(os.lstat(os.path.join(root, ".git")))
    return False


def _list_of(root: str) -> str:
    """Where a repository lists what it does not see. The `.git` of a worktree or submodule is a file that leads on."""
    directory = os.path.join(root, ".git")
    with suppress(OSError, ValueError):
        led = _first_line(directory).removeprefix("gitdir: ")
        directory = os.path.realpath(os.path.join(root, led))
        directory = os.path.realpath(os.path.join(directory, _first_line(os.path.join(directory, "commondir"))))
    return os.path.join(directory, _LIST)


def _first_line(path: str) -> str:
    return read_regular(path, MOST_UNSEEN, links=False).decode().partition("\n")[0]


def _text(path: str) -> bytes | None:
    """The list of a repository; None if it may be a file of somebody else, to which a program has led."""
    fd = os.open(path, _READ)
    try:
        about = os.fstat(fd)
        is_own = stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and os.readlink(f"/proc/self/fd/{fd}") == path
        text = read_most(fd, MOST_UNSEEN + 1) if is_own else None
        return text if text is not None and len(text) <= MOST_UNSEEN else None
    finally:
        os.close(fd)
