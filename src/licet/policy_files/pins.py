"""Finds out whether a policy is pinned: its digest is in the `licet.lock` next to it, or in this user's trust list.

Only reads. Every gate refuses a policy if its lock cannot be read, does not list it, or has another digest. A broken
lock is never treated as a missing one. The gate itself compares `Gate(pin=…)`.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from licet.core.origin import Origin, Problem
from licet.core.policy.manifest import Manifest
from licet.policy_files.policy_paths import LOCK_FILE
from licet.policy_files.trust_list import TrustListError, accepted, is_trusted
from licet.regular_files import open_regular, read_most

FORMAT = 1
MOST_BYTES = 16 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class _BadLock(ValueError):
    """A lock that cannot be used. The message says what was found."""


def with_pin(manifest: Manifest, path: str | Path) -> Manifest:
    """The manifest that was loaded from `path`, with `pinned` or `lock_problem` set."""
    locked = False
    for lock, name in _locks(path):
        try:
            digest = _digest_in(lock, name)
        except _BadLock as wrong:
            hint = "every gate refuses this policy until the lock is mended or removed"
            problem = Problem(Origin(str(lock), 1, 1), str(wrong), f"the digest of {name}", hint, "warning")
            return replace(manifest, lock_problem=problem)
        if digest != manifest.digest:
            hint = f"every gate refuses it: review it with `licet diff`, then write {manifest.digest} there"
            found = f"{digest} for {name}, which is now another policy"
            problem = Problem(Origin(str(lock), 1, 1), found, f"the digest of {name}", hint, "warning")
            return replace(manifest, lock_problem=problem)
        locked = True
    if locked:
        return replace(manifest, pinned="licet.lock")
    return replace(manifest, pinned="licet trust") if _is_trusted(path, manifest) else manifest


def _locks(path: str | Path) -> list[tuple[Path, str]]:
    """The locks next to the path of a policy and next to its real path, each with the name of the policy there."""
    places = dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))
    locks = [(Path(os.path.dirname(place), LOCK_FILE), os.path.basename(place)) for place in places]
    return [(lock, name) for lock, name in locks if os.path.lexists(lock)]


def _digest_in(lock: Path, name: str) -> str:
    try:
        with open_regular(lock) as number:
            data = read_most(number, MOST_BYTES + 1)
    except OSError as error:
        raise _BadLock(f"a lock that cannot be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise _BadLock(f"a lock of more than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(data.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise _BadLock("a lock that is no JSON, or has a key twice") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or isinstance(found["format"], bool):
        raise _BadLock(f"a lock that has not format {FORMAT}")
    if unknown := sorted(found.keys() - {"format", "manifests"}):
        raise _BadLock(f"a lock with `{unknown[0]}`, which this licet does not know")
    manifests = found.get("manifests")
    if not isinstance(manifests, dict) or not all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in manifests.values()
    ):
        raise _BadLock("a lock without `manifests`, a digest for each file name")
    if name not in manifests:
        raise _BadLock(f"a lock that does not list {name}")
    digest: str = manifests[name]
    return digest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _is_trusted(path: str | Path, manifest: Manifest) -> bool:
    try:
        # Most policies are not on the list, and a digest takes time.
        return os.path.realpath(path) in accepted() and is_trusted(path, manifest.digest)
    except TrustListError:  # then nothing is trusted, and writes need approval
        return False
