"""The tools of a manifest on this machine: those of a server whose package the lock does not pin for it are withheld.

This is known before any server starts. The gateway does not list such a tool, and `check` and `surface` say why.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from licet.core.policy.lock import LockedServer
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import tool_parts


def pinned_here(manifest: Manifest) -> Manifest:
    """The manifest without the tools of servers that the lock does not pin for this platform."""
    unpinned = set(_unpinned(manifest))
    if not unpinned:
        return manifest
    whose = {name: parts[0] for name in manifest.tools if (parts := tool_parts(name, manifest.servers)) is not None}
    withheld = {
        name: f"licet.lock does not have the server `{server}` for this platform: run `licet lock --update` here"
        for name, server in whose.items()
        if server in unpinned
    }
    return replace(
        manifest,
        tools={name: spec for name, spec in manifest.tools.items() if name not in withheld},
        withheld={**manifest.withheld, **withheld},
        loaded=manifest.loaded or manifest,
    )


def _unpinned(manifest: Manifest) -> Iterator[str]:
    for name, locked in (manifest.lock.servers if manifest.lock is not None else {}).items():
        if name in manifest.servers and locked.command and not is_pinned(locked):
            yield name


def is_pinned(locked: LockedServer) -> bool:
    """Whether a lock says what a server starts on this platform."""
    from licet.backends.packages import PackageError, is_pinned_here  # not needed by policies without servers

    try:
        return locked.resolved is not None and is_pinned_here(locked.resolved)
    except PackageError:
        return False
