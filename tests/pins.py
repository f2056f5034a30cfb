"""Policies that are pinned, for tests of something else: unpinned, a file approves no writes by itself."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from licet import Manifest, load_manifest
from licet.assemble.acceptance import accept_policy, state_of
from licet.assemble.gate import standing_approvals, stored_approvals
from licet.backends.approvals.standing import standing_request, this_machine


def pinned(manifest: Manifest) -> Manifest:
    """A manifest as a gate has it that was given its digest with `pin=`; unlike there, it can be reloaded."""
    return replace(manifest, pinned="a test")


STANDING = "a-0000000000aa"


def give_standing(policy: Path, deletes: list[str], state: Path | None = None, *, days: int = 30) -> str:
    """Give a standing approval of deletes, as `licet trust` does at a terminal, under an id that tests know."""
    manifest, state = load_manifest(policy), state or state_of(policy)
    store, standing = stored_approvals(state), standing_approvals(state)
    place = str(policy.absolute().parent)
    asked = standing_request(manifest.digest, manifest.agent, place, deletes, store.now(), days, this_machine())

    async def give() -> None:
        await standing.confirm(await store.offer_standing(replace(asked, id=STANDING), manifest.approvals))

    asyncio.run(give())
    return STANDING


def trust(policy: Path, state_home: Path | None = None) -> None:
    """Accept a policy, as `licet trust` does, for commands that have this `$XDG_STATE_HOME`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state_home or os.environ["XDG_STATE_HOME"]))
        accept_policy(policy, load_manifest(policy))
