"""The files that programs are made of: the system's, the program itself, and the libraries that lie beside it.

Nobody grants these one by one, so nothing that a tool may write has a say in which they are.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from licet.core.algebra.scope import inside
from licet.core.algebra.use import Use
from licet.core.decision.reach import Reach
from licet.guard.execution import Command, SandboxUnavailable
from licet.guard.handles.files import held_paths
from licet.guard.links import FoundProgram, changeable
from licet.sandbox.grant_paths import NEVER, Identity, identity

# What programs are made of, and what they need to start. None of it belongs to anybody: of /etc/ssl not the keys.
SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates", "/etc/pki/tls/certs",
)  # fmt: skip
_BY_A_LINK = (
    "its name leads through a link that a tool may have put there, to a file that is not granted: name that file "
    "itself in `process.allowed_binaries`, or keep tools from writing where the link is"
)


def of_binary(command: Command, reach: Reach) -> Mapping[str, Identity]:
    """The file itself, and the libraries that were installed beside it, where that is not the system's place.

    Each as it is now: whoever puts something else in its place gains nothing. Nothing is taken from where a tool may
    write, neither a link nor a neighbour: the program, or one before it, would say by it what it wants to read.
    """
    binary, ceiling = command.binary, reach.manifest.ceiling
    # Where nobody has told the way, none is trusted.
    sure = isinstance(binary, FoundProgram) and not any(changeable(link, ceiling) for link in binary.links)
    covered = inside(binary, SYSTEM) or held_paths(reach.grant).covers("read", binary)
    if not sure and not covered and not reach.grant.has(Use(f"process:exec:{binary}")):
        raise SandboxUnavailable(_BY_A_LINK)
    try:
        own = {str(binary): identity(binary)}
    except FileNotFoundError:
        raise
    except OSError as wrong:
        raise SandboxUnavailable("the program has become another file since it was found") from wrong
    for path in _beside(binary, {str(binary), command.argv[0]} if sure else {str(binary)}, reach):
        if not inside(path, NEVER) and not changeable(path, ceiling):
            with suppress(OSError):  # a link, or not there: another place than the one beside the program
                own[path] = identity(path)
    return own


def _beside(binary: str, names: set[str], reach: Reach) -> Iterator[str]:
    """Where libraries lie beside a program, if a manifest names it.

    Where `*` allows all, whoever picks a program would pick what can be read.
    """
    rules = [rule.capability for layer in reach.layers for rule in layer.allows]
    above, folder = os.path.split(os.path.dirname(binary))
    if (
        any(rule.domain == "process" and rule.key in names for rule in rules)
        and folder == "bin"
        and above.count("/") >= 2
        and above != os.path.expanduser("~")
    ):
        for name in ("lib", "lib64", "libexec"):
            yield os.path.join(above, name)
