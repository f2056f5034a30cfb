"""Which files a worker may open by itself: rules for the kernel, from libraries, source files and the grant of a call.

Landlock has no deny. Around one, what lies beside it is allowed thing by thing, as far as it exists now; the directory
itself is then not allowed, and new names in it go through the handles.
"""

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from licet.core.effects import EffectClass
from licet.core.set import CapabilitySet
from licet.guard.held_paths import HeldPaths, held_paths
from licet.guard.ports import SandboxUnavailable
from licet.sandbox import landlock
from licet.sandbox.tool_source import Source, libraries

Rules = list[tuple[str, int]]

# Shared libraries, time zones, certificates, and what Python itself opens: the same on every machine, and no secrets.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/usr/share/ca-certificates", "/dev/urandom", "/dev/random", "/dev/zero"),
)
_MOST_RULES = 5000
_NEVER = ("/proc", "/sys", "/dev")  # windows into the kernel and other processes: no grant of files means these


class _Place(NamedTuple):
    named: str  # as rules name it
    real: str


def base_rules(source: Source) -> Rules:
    """What every worker reads: the interpreter, libraries, and the files of its own tool one by one."""
    # A private interpreter keeps its shared library beside its modules.
    own = os.path.join(os.path.realpath(sys.base_prefix), "lib")
    rules = [(path, landlock.READ) for path in dict.fromkeys((*libraries(), own, *_SYSTEM))]
    rules += [(path, landlock.READ_FILE) for path in source.files]
    rules.append(("/dev/null", landlock.READ_FILE | landlock.WRITE))
    return rules


def denied_among(rules: Rules, grant: CapabilitySet) -> str:
    """A path that nothing may read and that lies in what every worker reads; empty if there is none."""
    denied = [os.path.realpath(path) for path in held_paths(grant).denied("read")]
    for path in denied:
        for allowed, _ in rules:
            if path.startswith(f"{allowed}/") and allowed not in _SYSTEM:
                return path
    return ""


def grant_rules(grant: CapabilitySet, effect: EffectClass | None) -> Rules:
    """What a grant lets a worker open by itself. Deletes only where the call itself was asked about."""
    held = held_paths(grant)
    wanted = [("read", landlock.READ), ("write", landlock.WRITE)]
    if effect == "destructive":
        wanted.append(("delete", landlock.DELETE))
    found: dict[str, int] = {}
    for action, access in wanted:
        denied = [os.path.realpath(path) for path in held.denied(action)]
        for root in _roots(grant):
            for path in _split(held, action, _Place(root, os.path.realpath(root)), denied):
                found[path] = found.get(path, 0) | access
                if len(found) > _MOST_RULES:
                    raise SandboxUnavailable(
                        f"what lies around the denies of this grant is more than {_MOST_RULES} things: "
                        "deny a whole directory instead, or use level `restricted`"
                    )
    return sorted(found.items())


def is_split(grant: CapabilitySet) -> bool:
    """Whether rules depend on what exists now, so that they are looked up anew for each worker."""
    held = held_paths(grant)
    return any(held.denied(action) for action in ("read", "write"))


def _roots(grant: CapabilitySet) -> list[str]:
    return sorted({rule.key or "/" for rule in grant.allow if rule.domain == "fs" and rule.key is not None})


def _split(held: HeldPaths, action: str, place: _Place, denied: list[str]) -> Iterator[str]:
    named, real = place
    if real in _NEVER or any(_within(real, path) for path in (*denied, *_NEVER)):
        return
    inner = any(_within(path, real) for path in (*denied, *_NEVER))
    if not inner and held.covers_tree(action, named):
        yield real
        return
    if not held.overlaps(action, named):
        return
    try:
        entries = [entry for entry in os.scandir(real) if not entry.is_symlink()]
    except OSError:
        return
    for entry in entries:
        below = _Place(os.path.join(named, entry.name), os.path.join(real, entry.name))
        yield from _split(held, action, below, denied)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
