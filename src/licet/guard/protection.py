"""Protected paths: data about paths that no tool may write, and the layer of denies that is made from them.

`assemble.never_writable` lists the paths. Handles, workers and programs all use the same grant, so one layer of denies
protects a path from each of them.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from licet.core.algebra.capability import capability
from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.scope import path_ancestors
from licet.core.origin import Origin
from licet.core.policy.layer import EVERY_DOMAIN, SECOND_CODE, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.declare import Tool

KEPT = "licet keeps its state or its secrets there, and no tool reads or writes them"


class ProtectedPath(Struct, frozen=True):
    """One protected path: a file, or a directory with everything below it. It need not exist."""

    path: str
    why: str  # a sentence for the operator: "the interpreter is never writable"
    readable: bool = True


# Lists the protected paths of a gate; called when the gate is built, and when it is reloaded.
Protect = Callable[[Manifest, Sequence[Tool]], Sequence[ProtectedPath]]


def kept_private(paths: Iterable[str]) -> tuple[ProtectedPath, ...]:
    """Protect paths where backends keep their own files: no tool reads or writes them."""
    return tuple(ProtectedPath(path, KEPT, readable=False) for path in paths)


def protection_layer(paths: Iterable[ProtectedPath], origin: Origin) -> Layer:
    """The denies for protected paths: writes and deletes, and reads of a path that is not readable either."""
    atoms = DOMAINS["fs"].actions
    rules = [
        # Not parsed from text: a real path may have characters that a written rule cannot.
        Rule(capability("fs", atoms[action], "" if closed.path == "/" else closed.path, None), origin, closed.why)
        for closed in paths
        for action in (("write", "delete") if closed.readable else ("read", "write", "delete"))
    ]
    return Layer("protected paths", "licet itself", origin, denies=tuple(rules), silent=EVERY_DOMAIN)


def outermost(paths: Iterable[ProtectedPath]) -> tuple[ProtectedPath, ...]:
    """Leave out paths that lie inside another one and are not stricter."""
    kept: dict[str, ProtectedPath] = {}
    strict: set[str] = set()  # paths in `kept` that are not readable either
    for closed in sorted(dict.fromkeys(paths), key=lambda one: (one.path, one.readable, one.why == SECOND_CODE)):
        around = _around(closed.path)
        if strict.isdisjoint(around) and (not closed.readable or kept.keys().isdisjoint(around)):
            kept[closed.path] = closed
            if not closed.readable:
                strict.add(closed.path)
    return tuple(kept.values())


def _around(path: str) -> set[str]:
    """A path and every directory that it lies in."""
    return {key or "/" for key in path_ancestors("" if path == "/" else path)}
