"""Which files a worker may open by itself: rules for the kernel, from libraries, source files and the grant of a call.

What of a grant the kernel can say at all is worked out in `kernel_paths`, for workers and programs alike.
"""

import os
import sys

from licet.core.set import CapabilitySet
from licet.guard.held_paths import held_paths
from licet.guard.holding import Holding
from licet.sandbox import landlock
from licet.sandbox.kernel_paths import Identity, inside, kernel_paths
from licet.sandbox.tool_source import Source, libraries

# A path, what may be done there, and the very file that was looked at, where somebody could exchange it.
Rules = list[tuple[str, int, Identity | None]]

# Shared libraries, time zones, certificates, and what Python itself opens: the same on every machine, and no secrets.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/usr/share/ca-certificates", "/dev/urandom", "/dev/random", "/dev/zero"),
)


def base_rules(source: Source) -> Rules:
    """What every worker reads: the interpreter, libraries, and the files of its own tool one by one."""
    # A private interpreter keeps its shared library beside its modules.
    own = os.path.join(os.path.realpath(sys.base_prefix), "lib")
    trees: list[str] = []
    for path in sorted({os.path.realpath(path) for path in (*libraries(), own, *_SYSTEM) if os.path.exists(path)}):
        if not inside(path, trees):  # in order: what contains comes before what it contains
            trees.append(path)
    rules: Rules = [(path, landlock.READ, None) for path in trees]
    rules += [(path, landlock.READ_FILE, None) for path in source.files]
    rules.append(("/dev/null", landlock.READ_FILE | landlock.WRITE, None))
    return rules


def denied_among(rules: Rules, grant: CapabilitySet) -> str:
    """A path that nothing may read and that lies in what every worker reads; empty if there is none."""
    denied = [os.path.realpath(path) for path in held_paths(grant).denied("read")]
    for path in denied:
        for allowed, _, _ in rules:
            if path.startswith(f"{allowed}/"):
                return path
    return ""


def grant_rules(holding: Holding) -> Rules:
    """What a grant lets a worker open by itself, as things are now: around a deny, what exists beside it."""
    return list(kernel_paths(holding, private_root=False).rules)
