"""Finds out whether a policy is pinned: its digest is in the `licet.lock` next to it, or in this user's trust list.

Only reads. Every gate refuses a policy if its lock cannot be read, does not list it, or has another digest. A broken
lock is never treated as a missing one. The gate itself compares `Gate(pin=…)`.
"""

import os
from pathlib import Path

from msgspec.structs import replace

from licet.core.origin import Origin, Problem
from licet.core.policy.lock import BadLock, lock_digest
from licet.core.policy.manifest import Manifest
from licet.policy_files.lock_file import load_lock, locks_of
from licet.policy_files.trust_list import TrustListError, accepted, is_trusted

UNUSABLE = "unusable"  # the state of a lock that cannot be read


def with_pin(manifest: Manifest, path: str | Path) -> Manifest:
    """The manifest that was loaded from `path`, with `lock`, and with `pinned` or `lock_problem` set."""
    lock = None
    for place, name in locks_of(path):
        found, digest = "", None
        try:
            lock = load_lock(place)
            digest = lock.manifests.get(name)
            found = f"a lock that does not list {name}" if digest is None else ""
        except BadLock as wrong:
            lock, found = None, str(wrong)
        if found:
            hint = "every gate refuses this policy until `licet lock` has written it again, or it is removed"
            problem = Problem(Origin(str(place), 1, 1), found, f"the digest of {name}", hint, "warning")
            return replace(manifest, lock_problem=problem, lock=lock)
        if digest != manifest.digest:
            hint = "every gate refuses it: review it with `licet diff`, then take it with `licet lock --update`"
            found = f"{digest} for {name}, which is now another policy"
            problem = Problem(Origin(str(place), 1, 1), found, f"{manifest.digest}", hint, "warning")
            # Reviews of the change still know the definitions of servers. Gates look at `lock_problem` first.
            return replace(manifest, lock_problem=problem, lock=lock)
    if lock is not None:
        return replace(manifest, pinned="licet.lock", lock=lock)
    return replace(manifest, pinned="licet trust") if _is_trusted(path, manifest) else manifest


def _is_trusted(path: str | Path, manifest: Manifest) -> bool:
    try:
        # Most policies are not on the list, and a digest takes time.
        return os.path.realpath(path) in accepted() and is_trusted(path, manifest.digest, "")
    except TrustListError:  # then nothing is trusted, and writes need approval
        return False


def lock_state(manifest: Manifest) -> str:
    """What the trust list has about the lock of a loaded policy: its digest, or that there is none.

    A lock that cannot be read is `UNUSABLE`, and never the same as none; every gate refuses its policy.
    """
    return UNUSABLE if manifest.lock is None and manifest.lock_problem is not None else lock_digest(manifest.lock)
