"""What a grant says of files, in the words of the kernel: trees that may be read and written, and what to hide in them.

Landlock knows no deny, so around a deny existing neighbours are granted one by one, or a private root hides it. What
neither can say is left out: a path that is not granted here may still be reached through the handles of the call.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from licet.guard.held_paths import HeldPaths, held_paths
from licet.guard.holding import Holding
from licet.guard.links import changeable, followed
from licet.guard.ports import SandboxUnavailable
from licet.sandbox import landlock
from licet.values import dataclass

_MOST_RULES = 20_000
NEVER = ("/proc", "/sys", "/dev")  # windows into the kernel and other processes: no grant of files means these
Identity = tuple[int, int]


class KernelRule(NamedTuple):
    """A Landlock rule, for the very file or directory that was looked at; None where nobody could exchange it."""

    path: str
    access: int
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class KernelPaths:
    """The files of one call: what a private root holds of them, and the Landlock rules inside or instead of it."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    hide: tuple[str, ...]
    rules: tuple[KernelRule, ...]


def kernel_paths(holding: Holding, *, private_root: bool, execute: bool = False) -> KernelPaths:
    """What of a call's files the kernel can grant; with a private root, denied files are hidden rather than avoided."""
    held, effect = held_paths(holding.reach.grant), holding.reach.effect
    reads = _roots(holding, held, "read")
    writes = _roots(holding, held, "write") if effect not in (None, "read_only") else {}
    # The class asks before each delete, and the kernel cannot ask; of a destructive call a person has agreed to all.
    deletes = _roots(holding, held, "delete") if effect == "destructive" else {}
    unread, unwritten = held.denied("read"), held.denied("write")
    undeleted = tuple({*unwritten, *held.denied("delete"), *unread})
    hide = tuple(path for path in unread if path != "/" and os.path.lexists(path)) if private_root else ()
    # A mount over a path needs something there: what is not there yet is kept from being made.
    avoided = unwritten if not private_root else tuple(path for path in unwritten if not os.path.lexists(path))
    readable = landlock.READ | (landlock.EXECUTE if execute else 0)
    rules = (
        *_rules(reads.values(), readable, () if private_root else unread),
        *_rules(writes.values(), landlock.WRITE, avoided, (*unwritten, *unread)),
        *_rules(deletes.values(), landlock.DELETE, undeleted),
    )
    kept = tuple(path for path in unwritten if path not in unread and os.path.lexists(path) and inside(path, writes))
    return KernelPaths((*reads, *kept), tuple(dict.fromkeys((*writes, *deletes))), hide, rules)


def _roots(holding: Holding, held: HeldPaths, action: str) -> Mapping[str, str]:
    """The outermost paths of an action that are there and lead where the manifest's author saw them lead, and where."""
    found: dict[str, str] = {}
    allowed = held.allowed(action)
    if "/" in allowed:
        allowed = tuple(os.path.join("/", name) for name in sorted(os.listdir("/")))
    for path in allowed:
        if not inside(path, NEVER) and not inside(path, found) and (real := _led(holding, path)):
            found[path] = real
    # A link to the root itself would bring the windows back in.
    return {path: real for path, real in found.items() if real != "/" and not inside(real, NEVER)}


def _led(holding: Holding, path: str) -> str | None:
    """Where a path leads, or None: nowhere, to what is denied, or through a link that a tool could have put there."""
    try:
        real, links = followed(path)
    except OSError:
        return None
    if not os.path.exists(real) or any(changeable(link, holding.reach.manifest.ceiling) for link in links):
        return None
    denied = held_paths(holding.reach.grant).denied("read")
    return None if any(inside(real, (path,)) for path in denied) else real


def inside(path: str, trees: Iterable[str]) -> bool:
    """Whether a path is one of some trees or lies in it."""
    return any(path == tree or path.startswith(tree.rstrip("/") + "/") for tree in trees)


def _rules(
    roots: Iterable[str], access: int, denied: Sequence[str], left_out: Sequence[str] = ()
) -> Iterator[KernelRule]:
    """Rules for the parts of trees that hold nothing denied, and that are not themselves to be left out."""
    count = 0
    denied, left_out = [os.path.realpath(path) for path in denied], [os.path.realpath(path) for path in left_out]
    for root in roots:
        for path in around(root, denied):
            if inside(path, left_out):
                continue
            count += 1
            if count > _MOST_RULES:
                raise SandboxUnavailable(f"{root} holds denied paths among more neighbours than can be granted")
            with suppress(OSError):
                yield KernelRule(path, access, identity(path))


def around(root: str, denied: Sequence[str]) -> Iterator[str]:
    """A tree, or the parts of it that hold nothing denied. Links are left out: what they lead to has its own rule."""
    inner = [path for path in denied if inside(path, (root,)) or inside(root, (path,))]
    if not inner:
        yield root
    elif not any(inside(root, (path,)) for path in inner):
        try:
            names = sorted(os.listdir(root))
        except OSError:
            return
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                yield from around(path, inner)


def identity(path: str) -> Identity:
    """Which file or directory a path is, without following any link; `OSError` if it has one, or is neither.

    Step by step: a directory on the way could become a link after somebody has looked at it.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    try:
        for step in filter(None, path.split("/")):
            inner = os.open(step, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        found = os.fstat(fd)
    finally:
        os.close(fd)
    # Only what can be read and written like a file: a socket or a device in a granted tree is no file of the grant.
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.ELOOP, "neither a file nor a directory", path)
    return found.st_dev, found.st_ino
