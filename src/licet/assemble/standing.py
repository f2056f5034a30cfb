"""Standing approvals of deletes on this machine: what one would cover, and giving, finding and withdrawing them.

Asking the person, and showing the paths, is done by the surfaces.
"""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from licet.assemble.gate import standing_approvals
from licet.assemble.review import Places
from licet.assemble.state import state_directory
from licet.backends.approvals.store import StoredRequest
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.effects import ELEVATED, FILE_DELETES
from licet.core.policy.layer import meet_written_layers
from licet.core.policy.manifest import Manifest
from licet.guard.people import NotStanding
from licet.policy_files.policy_paths import policy_root
from licet.policy_files.user_directories import NoHome


def state_of(path: Path) -> Path:
    """The state directory of a policy file."""
    return state_directory(policy_root(path))


def with_standing(manifest: Manifest, path: Path, state: Path | None = None) -> Manifest:
    """A manifest with the standing approval of its deletes that counts here, or with the reason why none does."""
    try:
        store = standing_approvals(state or state_of(path))
        return replace(manifest, standing=store.find(None, manifest.digest, manifest.approvals))
    except NotStanding as why:
        return replace(manifest, standing_problem=str(why))
    except NoHome:
        return manifest


def deletes_to_approve(manifest: Manifest) -> CapabilitySet:
    """The deletes of files that a standing approval would cover; empty if the policy does not ask for one.

    It covers the most that the policy allows to any tool, since tools may change while the policy stays.
    """
    if manifest.approvals.delete != "manifest" or manifest.max_effect not in ELEVATED:
        return CapabilitySet()
    return meet_written_layers(manifest.layers) & FILE_DELETES


def give_standing(manifest: Manifest, places: Places, state: Path, days: int) -> StoredRequest:
    """Give a standing approval of what `deletes_to_approve` says, or ask for its signatures.

    Only for a person who was shown it at a terminal. Raises `Unavailable` or `LedgerUnavailable`.
    """
    deletes = tuple(map(str, deletes_to_approve(manifest).allow))
    store = standing_approvals(state)
    return asyncio.run(store.give(manifest.digest, manifest.agent, places.workdir, deletes, manifest.approvals, days))


def withdraw_all(path: Path) -> list[str]:
    """Withdraw every standing approval in the state of a policy file; returns their ids."""
    store = standing_approvals(state_of(path))
    return asyncio.run(store.withdraw_all())
