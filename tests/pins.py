"""Policies that are pinned, for tests of something else: unpinned, a file approves no writes by itself."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from licet import Manifest, load_manifest
from licet.assemble.trust import accept_policy


def pinned(manifest: Manifest) -> Manifest:
    """A manifest as a gate has it that was given its digest with `pin=`; unlike there, it can be reloaded."""
    return replace(manifest, pinned="a test")


def trust(policy: Path, state_home: Path | None = None) -> None:
    """Accept a policy, as `licet trust` does, for commands that have this `$XDG_STATE_HOME`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state_home or os.environ["XDG_STATE_HOME"]))
        accept_policy(policy, load_manifest(policy))
