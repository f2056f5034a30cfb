"""Makes the directories that a policy names under `fs_reach.output`, before a program starts.

The kernel grants what is there: a program that may write `dist` alone could never make it, since a new name is a write
to the directory around it. Only a directory that the grant may write is made, only its last name, and never through a
link, which an earlier program could have left.
"""

import os
from contextlib import suppress

from licet.core.decision.reach import Reach
from licet.core.policy.layer import OUTPUT
from licet.guard.held_paths import held_paths
from licet.sandbox.grant_paths import open_without_links


def make_output_directories(reach: Reach) -> None:
    """Make what is missing. What cannot be made stays missing, and the program is refused what it writes there."""
    if reach.effect in (None, "read_only"):
        return
    held = held_paths(reach.grant)
    for layer in reach.layers:
        for rule in layer.allows:
            path = rule.capability.key
            if rule.key.endswith(OUTPUT) and held.covers("write", path) and not os.path.lexists(path):
                with suppress(OSError):
                    _make(path)


def _make(path: str) -> None:
    above, name = os.path.split(path)
    directory = open_without_links(above)
    try:
        os.mkdir(name, dir_fd=directory)
    finally:
        os.close(directory)
