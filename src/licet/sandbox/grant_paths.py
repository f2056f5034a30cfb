"""Turns the file rules of a grant into kernel rules: paths to read and write, and paths to hide in them.

Landlock has no deny. So the existing files around a denied path are granted one by one, or a private root hides the
path. What neither can express is left out: the handles of the call still reach it.

`kernel_paths` does this for programs, `base_rules` and `grant_rules` for workers.

A kernel rule applies to a file, not to its name: a closed file is closed by its second names too (`second_names`).

The kernel rules around a worker or a program as text, for its receipt.
"""

import errno
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach
from licet.core.policy.addresses import common_ranges
from licet.core.policy.layer import SECOND_CODE, Level, Rule
from licet.core.policy.terms import private_of
from licet.guard.execution import SandboxUnavailable
from licet.guard.grant import Access, Grant, access
from licet.guard.held_paths import HeldPaths, held_paths
from licet.guard.import_path import changeable, followed
from licet.guard.real_paths import RealPaths
from licet.sandbox.kernel import landlock
from licet.sandbox.limits import MOST_RULES
from licet.sandbox.second_names import second_names
from licet.sandbox.workers.tool_source import ToolSource, libraries

NEVER = ("/proc", "/sys", "/dev")  # interfaces of the kernel and other processes: no grant of files includes them
Identity = tuple[int, int]


class KernelRule(NamedTuple):
    """A Landlock rule, with the identity of the file that was checked; None if no tool can replace the file."""

    path: str
    access: int
    identity: Identity | None = None


class ClosedTree(NamedTuple):
    """Rights below some roots, but for closed paths in them; all are real paths."""

    rights: int
    roots: tuple[str, ...]
    closed: tuple[str, ...]


class KernelPaths(Struct, frozen=True):
    """The files of one call: paths for a private root, and Landlock rules inside or instead of it."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    hide: tuple[str, ...]
    hold: tuple[str, ...]  # directories on the way to a closed path: a private root keeps them from being moved
    rules: tuple[KernelRule, ...]
    absent: tuple[str, ...] = ()  # closed paths that are missing where the call only reads: somebody may make them
    trees: tuple[ClosedTree, ...] = ()  # without a private root, the roots that have closed paths in them


def kernel_paths(
    grant: Grant,
    *,
    private_root: bool,
    program: bool = False,
    missing: Collection[str] = (),
    real: RealPaths | None = None,
    judged: bool = False,
) -> KernelPaths:
    """The part of a call's files that the kernel can grant; a private root mounts over closed files.

    A `program` may execute what it may read, since an interpreter or the loader would run it anyway, and may make
    FIFOs and unix sockets where it may write. A worker does neither.

    A mount cannot be renamed, removed or written through, nor can a directory that is mounted onto itself. Without a
    private root, or if a closed path does not exist, the directories around it get no rule: so `closed_names` are made
    first; those that could not be are `missing`. A link cannot be a mount point: if one leads to a closed path, nothing
    in its directory can be removed or renamed.

    `real` has the paths that the caller has resolved for the same walls. `judged` gives the right to remove also where
    nobody has approved deletes: another process then judges each removal, and every rename needs that right.
    """
    reach, real = grant.reach, RealPaths() if real is None else real
    granted = _granted(reach, judged=judged)
    reads, writes, deletes = granted.reads, granted.writes, granted.deletes
    unread, unwritten = granted.unread, granted.unwritten
    undeleted = tuple({*unwritten, *granted.undeleted, *unread})
    links = _links_to(undeleted, real) if deletes else []
    readable = landlock.READ | (landlock.EXECUTE if program else 0)
    writable = landlock.WRITE | (landlock.SPECIAL if program else 0)
    if not private_root:
        rules = (
            *_rules(real, reads.values(), readable, unread),
            *_rules(real, writes.values(), writable, unwritten, (*unwritten, *unread)),
            *_rules(real, deletes.values(), landlock.DELETE, undeleted, links=links),
        )
        trees = _trees(
            real,
            (readable, reads, unread),
            (writable, writes, (*unwritten, *unread)),
            (landlock.DELETE, deletes, (*undeleted, *links)),
        )
        changed_roots = tuple(dict.fromkeys((*writes, *deletes)))
        return KernelPaths((*reads,), changed_roots, (), (), rules, trees=trees if program else ())
    hide = tuple(path for path in unread if path != "/" and os.path.lexists(path))
    changed = {**writes, **deletes}
    everywhere = (*changed, *changed.values())  # by the names in the grant, and by the real ones
    there = (path for path in unwritten if path not in unread and os.path.lexists(path))
    kept = tuple(path for path in there if inside(path, everywhere))
    plantable = _plantable(reach, unwritten, missing)
    lasting = [path for path in granted.undeleted if path not in unwritten and path not in hide]
    rules = (
        *_rules(real, reads.values(), readable, ()),
        *_rules(real, writes.values(), writable, plantable, (*unwritten, *unread)),
        *_rules(real, deletes.values(), landlock.DELETE, lasting, (*unwritten, *unread), links),
    )
    hold = tuple(on_the_way(everywhere, (*hide, *kept, *plantable, *links)))
    # What is mounted to be read cannot be written: where writes are granted too, it is there already.
    also = {path for path, led in reads.items() if inside(path, everywhere) and inside(led, changed.values())}
    only_read = tuple(path for path in reads if path not in also)
    shown = (*reads, *reads.values())
    missing_names = dict.fromkeys(real.of(path) for path in unread if path not in hide)
    absent = (path for path in missing_names if inside(path, shown) and not inside(path, everywhere))
    return KernelPaths((*only_read, *kept), tuple(changed), hide, hold, rules, tuple(absent))


def _trees(real: RealPaths, *given: tuple[int, Mapping[str, str], Sequence[str]]) -> tuple[ClosedTree, ...]:
    """Each of some rights with its roots and the closed paths in them; nothing if no root has one."""
    trees = []
    for rights, named, closed in given:
        roots = tuple(dict.fromkeys(named.values()))
        inner = dict.fromkeys(way for path in closed for way in (path, real.of(path)) if inside(way, roots))
        trees.append(ClosedTree(rights, roots, tuple(inner)))
    return tuple(trees) if any(tree.closed for tree in trees) else ()


def _links_to(paths: Iterable[str], real: RealPaths) -> list[str]:
    """The links on the way to some paths: replacing one changes what the path means."""
    found: dict[str, None] = {}
    for path in paths:
        with suppress(OSError):  # circular links
            found.update(dict.fromkeys(real.links_to(path)))
    return list(found)


class _Granted(Struct, frozen=True):
    """The roots of a grant, each with its real path, and the closed paths, with their second names."""

    reads: Mapping[str, str]
    writes: Mapping[str, str]
    deletes: Mapping[str, str]
    unread: tuple[str, ...]
    unwritten: tuple[str, ...]
    undeleted: tuple[str, ...]


def _granted(reach: Reach, *, judged: bool = False) -> _Granted:
    held, effect = held_paths(reach.grant), reach.effect
    reads = _roots(reach, held, "read")
    writes = _roots(reach, held, "write") if effect not in (None, "read_only") else {}
    # Any other delete asks an approver when it happens, which the kernel cannot do.
    free = reach.judged_deletes if judged else reach.free_deletes
    deletable = held if effect == "destructive" else held_paths(free)
    deletes = _roots(reach, deletable, "delete")
    unread = _with_second_names(reads, held.denied("read"))
    unwritten = _with_second_names({**writes, **deletes}, held.denied("write"))
    return _Granted(reads, writes, deletes, unread, unwritten, deletable.denied("delete"))


def search_ahead(reach: Reach) -> None:
    """Search a grant for second names in advance, so that no call does it in an event loop; the result is cached."""
    with suppress(SandboxUnavailable):  # the call that needs the result reports it
        _granted(reach)


def _with_second_names(roots: Mapping[str, str], closed: tuple[str, ...]) -> tuple[str, ...]:
    """Closed paths, and other names of their files below some roots."""
    return (*closed, *second_names(tuple(roots.values()), closed)) if roots else closed


def closed_names(grant: Grant, *, judged: bool = False) -> list[str]:
    """The closed paths that a program could make, were they missing, and for which something empty stands meanwhile."""
    granted = _granted(grant.reach, judged=judged)
    roots = (*granted.writes.values(), *granted.deletes.values())
    unused = _unused(_protecting_rules(grant.reach))
    closed = dict.fromkeys((*granted.unwritten, *granted.unread))
    return [path for path in closed if path not in unused and path not in roots and inside(path, roots)]


def _plantable(reach: Reach, unwritten: Sequence[str], missing: Collection[str]) -> list[str]:
    """The closed paths that do not exist yet, and where a file that a program creates would be used.

    Not those next to the code of a tool: a second file for a module is refused when it is loaded, and compiled files
    are not read where a grant may write.
    """
    unused = _unused(_protecting_rules(reach))
    return [path for path in unwritten if path not in unused and (path in missing or not os.path.lexists(path))]


def _protecting_rules(reach: Reach) -> list[Rule]:
    layers = [layer for layer in reach.manifest.layers if layer.kind == "protected paths"]
    return [rule for layer in layers for rule in layer.denies]


def _unused(rules: Sequence[Rule]) -> set[str]:
    unused = {rule.capability.key for rule in rules if rule.key == SECOND_CODE}
    return unused - {rule.capability.key for rule in rules if rule.key != SECOND_CODE}


def on_the_way(roots: Sequence[str], closed: Iterable[str]) -> Iterator[str]:
    """The directories between a writable root and a closed path in it, outer ones first."""
    found: set[str] = set()
    for path in closed:
        above = os.path.dirname(path)
        while above not in roots and inside(above, roots):
            if os.path.isdir(above):
                found.add(above)
            above = os.path.dirname(above)
    yield from sorted(found)


def _roots(reach: Reach, held: HeldPaths, action: str) -> Mapping[str, str]:
    """The outermost existing paths of an action, with their real paths; without links that a tool could have made."""
    found: dict[str, str] = {}
    allowed = held.allowed(action)
    if "/" in allowed:
        allowed = tuple(os.path.join("/", name) for name in sorted(os.listdir("/")))
    for path in allowed:
        if not inside(path, NEVER) and not inside(path, found) and (real := _led(reach, held, path, action)):
            found[path] = real
    # A link to `/` would include the interfaces of the kernel.
    return {path: real for path, real in found.items() if real != "/" and not inside(real, NEVER)}


def _led(reach: Reach, held: HeldPaths, path: str, action: str) -> str | None:
    """The real path; None if it is missing or denied, or if a tool could have made a link on the way."""
    try:
        real, links = followed(path)
    except OSError:
        return None
    if not os.path.exists(real) or any(changeable(link, reach.manifest.ceiling) for link in links):
        return None
    closed = (*held_paths(reach.grant).denied("read"), *held.denied(action))
    return None if inside(real, closed) else real


def _rules(
    real: RealPaths,
    roots: Iterable[str],
    access: int,
    denied: Sequence[str],
    left_out: Sequence[str] = (),
    links: Sequence[str] = (),
) -> Iterator[KernelRule]:
    """Rules for the parts of trees without denied paths, these links, and the paths in `left_out`."""
    count = 0
    denied, left_out = [real.of(path) for path in denied], [real.of(path) for path in left_out]
    with _Identities() as identities:
        for root in roots:
            for path in around(root, (*denied, *links)):
                if inside(path, left_out):
                    continue
                count += 1
                if count > MOST_RULES:
                    raise _too_many(root)
                with suppress(OSError):
                    yield KernelRule(path, access, identities.of(path))


def _too_many(directory: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"{directory} holds a denied or closed path among more than {MOST_RULES} neighbours, which would each need a "
        "kernel rule: grant the subdirectories that are needed, or move the path elsewhere"
    )


def around(root: str, denied: Sequence[str]) -> Iterator[str]:
    """A tree, or its parts without denied paths. Links are left out: their targets have rules of their own."""
    inner = [path for path in denied if inside(path, (root,)) or inside(root, (path,))]
    if not inner:
        yield root
    elif not any(inside(root, (path,)) for path in inner):
        try:
            names = sorted(os.listdir(root))
        except OSError:
            return
        if len(names) > MOST_RULES:
            raise _too_many(root)
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                yield from around(path, inner)


def identity(path: str) -> Identity:
    """Device and inode of a path. Raises `OSError` if a link is on the way, or it is not a file or directory."""
    with _Identities() as identities:
        return identities.of(path)


class _Identities:
    """Identities of paths. The directory of the last one stays open, because the next is often in it too."""

    def __init__(self) -> None:
        self._directory, self._fd = "", -1

    def __enter__(self) -> "_Identities":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def of(self, path: str) -> Identity:
        """Device and inode of a path; see `identity`."""
        directory, name = os.path.split(path)
        if self._fd == -1 or directory != self._directory:
            self._close()
            self._fd, self._directory = open_without_links(directory), directory
        found = os.stat(name, dir_fd=self._fd, follow_symlinks=False) if name else os.fstat(self._fd)
        # A socket or device in a granted tree is not part of the grant.
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise OSError(errno.ELOOP, "neither a file nor a directory", path)
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        if self._fd != -1:
            os.close(self._fd)
            self._fd = -1


def open_without_links(directory: str) -> int:
    """Open a directory step by step without links: a directory on the way could be replaced by a link."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    try:
        for step in filter(None, directory.split("/")):
            inner = os.open(step, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return fd


# Path, rights, and the identity of the checked file if a tool could replace it.
Rules = list[tuple[str, int, Identity | None]]

# Shared libraries, time zones, certificates, and what Python itself opens: the same on every machine, no secrets.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/usr/share/ca-certificates", "/dev/urandom", "/dev/random", "/dev/zero"),
)


def base_rules(source: ToolSource) -> Rules:
    """The rules of every worker: it reads the interpreter, libraries, and the files of its own tool."""
    # Some interpreters have their shared library next to their modules.
    own = os.path.join(os.path.realpath(sys.base_prefix), "lib")
    trees: list[str] = []
    for path in sorted({os.path.realpath(path) for path in (*libraries(), own, *_SYSTEM) if os.path.exists(path)}):
        if not inside(path, trees):  # sorted: a tree comes before what is in it
            trees.append(path)
    rules: Rules = [(path, landlock.READ, None) for path in trees]
    rules += [(path, landlock.READ_FILE, None) for path in source.files]
    rules.append(("/dev/null", landlock.READ_FILE | landlock.WRITE, None))
    return rules


def denied_among(rules: Rules, grant: CapabilitySet) -> str:
    """A denied path inside a tree that every worker reads; empty if there is none."""
    denied = [os.path.realpath(path) for path in held_paths(grant).denied("read")]
    for path in denied:
        for allowed, _, _ in rules:
            if path != allowed and inside(path, (allowed,)):
                return path
    return ""


def grant_rules(grant: Grant) -> Rules:
    """The rules of a grant for a worker, for the files that exist now."""
    return list(kernel_paths(grant, private_root=False).rules)


REACHED = frozenset(("fs", "network", "process", "socket"))  # domains that a process uses without a handle
_WORDS = (
    ("read", landlock.READ),
    ("write", landlock.WRITE | landlock.SPECIAL),
    ("delete", landlock.DELETE),
    ("execute", landlock.EXECUTE & ~landlock.READ),
)
_SCRATCH = "${scratch}"  # another directory for each process
_Rules = Iterable[tuple[str, int, object]]  # path, access, and which file it was


def worker_access(level: Level, reach: Reach, own: _Rules, given: Iterable[str], granted: _Rules) -> Access:
    """The rules around a worker. At `restricted` none comes from the grant: the tool uses it through handles.

    `given` are the variables that a WASM tool finds in its environment.
    """
    grant = reach.grant if level == "isolated" else CapabilitySet()
    network = any(rule.domain == "network" for rule in grant.allow)
    connects = "connect through the host alone, as granted" if network else "connect nowhere"
    runtime = (f"read+write+delete {_SCRATCH}", *_worded(own))
    variables = (f"variable {name}" for name in given)
    return access(*_texts(grant), (*_worded(granted), *variables, connects), runtime)


def program_access(reach: Reach, orders: Mapping[str, Any], granted: _Rules, own: _Rules) -> Access:
    """The rules around a program, without hidden paths that it could not see anyway."""
    mounts, private = orders["mounts"], common_ranges(private_of(reach.manifest, reach.bundles))
    shown = (*mounts["read"], *mounts["write"])
    texts = [f"hide {path}" for path in mounts["hide"] if inside(path, shown)]
    texts += (f"read-only {path}" for path in mounts["read"] if inside(path, mounts["write"]))
    texts += (f"keep in place {path}" for path in mounts["hold"])
    texts += _worded(granted)
    if orders.get("removals") is not None:
        texts.append("of what may be deleted: scratch, and what was made since the program or its session began")
    if orders["network"] and any(rule.domain == "network" for rule in reach.grant.allow):
        texts += ["connect through the egress proxy alone, as granted", *(f"private {cidr}" for cidr in private)]
    elif orders["supervised"]:
        texts.append("connect to its own listeners alone")
    else:
        texts.append("connect inside its own network alone" if orders["namespaces"] else "connect nowhere")
    return access(*_texts(reach.grant), texts, _worded(own, scratch=orders["scratch"][0]))


@lru_cache(128)
def _texts(grant: CapabilitySet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules of a grant that a process uses without a handle, and the denies in them."""
    allowed = [rule for rule in grant.allow if rule.domain in REACHED]
    denied = [rule for rule in grant.deny if any(rule.meet(other) for other in allowed)]
    return tuple(map(str, allowed)), tuple(map(str, denied))


def _worded(rules: _Rules, scratch: Sequence[str] = ()) -> Iterator[str]:
    for path, allowed, _ in rules:
        words = "+".join(word for word, bits in _WORDS if allowed & bits)
        yield f"{words} {_SCRATCH if path in scratch else path}"
