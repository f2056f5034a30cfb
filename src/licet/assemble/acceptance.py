"""Puts policies and their locks on the trust list of this user, and finds what changed since they were accepted.

Asking the user, and showing the policy, is done by the surfaces.

Standing approvals of deletes on this machine: what one would cover, and giving, finding and withdrawing them.

Asking the person, and showing the paths, is done by the surfaces.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.gate import standing_approvals
from licet.assemble.review import Places, state_directory
from licet.assemble.states import Place
from licet.backends.approvals.requests import StoredRequest
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import ELEVATED, FILE_DELETES, meet_written_layers
from licet.core.policy.lock import FORMAT, BadLock, Lock, lock_digest, read_lock, write_lock
from licet.core.policy.lock_changes import lock_changes
from licet.core.policy.manifest import Manifest, document
from licet.core.review.changes import Changes
from licet.core.review.diff import diff
from licet.errors import LicetError
from licet.guard.ports import NotStanding
from licet.own_files import read_regular
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import load_own_manifest
from licet.policy_files.policy_paths import LOCK_FILE, NoHome, policy_root
from licet.policy_files.trust import Accepted, accept, acceptance, accepted, accepted_files, accepted_lock, lock_state

# Keys of a digest's document whose name differs from the word in policy files.
_IN_FILES = {
    "layers": "what its `capabilities`, personality or workspace allow and deny",
    "tools": "the admitted tools, or the entries of `tools` and `bundles` about them",
    "declared": "what its tools declare",
    "sources": "`from` of its tools",
    "native": "the tools under `native`",
    "connectors": "the connectors that it allows and denies",
    "allow_degraded": "`allow_degraded`",
}


class PolicyMoved(LicetError):
    """A policy changed while it was read, or its files are in several directories."""


class _Before(Struct, frozen=True):
    """The policy that was accepted last at a path, and the prefix of file names in its origins."""

    manifest: Manifest
    prefix: str


def accept_policy(path: Path, manifest: Manifest) -> Accepted:
    """Put a reviewed policy and its lock on the trust list; raises `PolicyMoved` if its files have changed meanwhile.

    The lock is the one that was loaded with the policy: that is what was shown, whatever is in the file now.
    """
    texts = _texts(manifest)
    with tempfile.TemporaryDirectory() as folder:
        if _load(texts, path.name, folder).digest != manifest.digest:
            raise PolicyMoved(f"{path} changed while it was read: try again")
    text = "" if manifest.lock is None else write_lock(manifest.lock).decode()
    return accept(path, manifest.digest, texts, datetime.now(UTC), lock=lock_state(manifest), lock_text=text)


def accept_written_lock(path: Path, manifest: Manifest, old: Lock | None, new: Lock, *, shown_whole: bool) -> bool:
    """Put the lock that `licet lock` wrote on the trust list; False if the policy is not on it as it was until now.

    Running `licet lock` on an accepted policy is the acceptance of what it wrote. A change of a lock was shown before
    it was written; of a first lock only the counts are printed. What was pulled is never accepted by the way: the lock
    before this one, or that there was none, must be accepted, unless the new one was `shown_whole`.
    """
    found = acceptance(path, manifest.digest, None if shown_whole else lock_digest(old))
    if found.answer != "accepted" or found.entry is None or found.entry.lock is None:
        return False
    accept_policy(path, replace(manifest, lock=new, lock_problem=None))
    return True


class Review(Struct, frozen=True):
    """What a user is shown before a policy is accepted: what changed since the last time, or all of it."""

    changes: Changes | None  # None: it was not accepted before, so all of it is shown
    further: tuple[str, ...]
    prefix: str  # of file names in the accepted policy
    is_same: bool  # whether the policy itself is as it was accepted
    lock: tuple[str, ...]  # what the lock says now and did not when it was accepted

    def document(self) -> dict[str, object]:
        """The same as JSON data."""
        changes = None if self.changes is None else {**self.changes.document(), "further": list(self.further)}
        return {"changes": changes, "lock_changes": list(self.lock)}


def review_of(path: Path, manifest: Manifest) -> Review:
    """What is new about a policy and its lock since they were accepted."""
    before = _accepted_before(path, manifest, Places.here())
    lock = tuple(lock_changes(_lock_before(path), manifest.lock or Lock(format=FORMAT)))
    if before is None:
        return Review(None, (), "", False, lock)
    is_same = before.manifest.digest == manifest.digest
    further = () if is_same else tuple(_further_changes(before.manifest, manifest))
    return Review(diff(before.manifest, manifest), further, before.prefix, is_same, lock)


def _lock_before(path: Path) -> Lock:
    """The lock that was accepted last at a path; an empty one if there was none, or it cannot be read any more."""
    try:
        return read_lock(accepted_lock(path).encode())
    except BadLock:
        return Lock(format=FORMAT)


def _accepted_before(path: Path, current: Manifest, places: Places) -> _Before | None:
    """Return the policy that was accepted last at a path, with tools as they are declared now; None for none."""
    entry, texts = accepted().get(os.path.realpath(path)), accepted_files(path)
    if entry is None or path.name not in texts:
        return None
    with tempfile.TemporaryDirectory() as folder:
        if lock := accepted_lock(path):  # it declares the tools of servers
            Path(folder, LOCK_FILE).write_bytes(lock.encode())
        try:
            manifest = _load(texts, path.name, folder)
            # A tool from other code is compared by its code of today: `_further_changes` reports a changed `from`.
            declared = manifest.declare(spec for name, spec in current.tools.items() if name in manifest.sources)
            shown = declared.expand(places.workdir, places.home)
        # written by another version of licet, or it names a home directory that is gone
        except (LicetError, Malformed):
            return None
    return _Before(shown, f"{folder}/") if manifest.digest == entry.digest else None


def _further_changes(before: Manifest, after: Manifest) -> list[str]:
    """Report changes of the digest that `diff` does not show: ceilings that no tool needs, and other sources.

    A user who accepts a policy accepts these too, because the code of a tool may need more tomorrow.
    """
    changes = []
    for sign, one, other in (("+", after, before), ("−", before, after)):
        more = meet_written_layers(one.layers) - meet_written_layers(other.layers)
        # An admitted tool is a line of its own already, and may call itself and the others.
        changes += [f"{sign} allowed in all: {piece}" for piece in more if not _is_admitted(piece.rule, one)]
    for name in sorted(before.sources.keys() | after.sources.keys()):
        old, new = (one.sources.get(name, ("nothing",))[0] for one in (before, after))
        if old != new:
            changes.append(f"~ {name}: from {old} → {new}")
    old_document, new_document = (document(one.loaded or one) for one in (before, after))
    differing = [
        key
        for key in sorted(old_document.keys() | new_document.keys())
        if old_document.get(key) != new_document.get(key)
    ]
    return [*changes, f"~ differs in: {', '.join(_IN_FILES.get(key, f'`{key}`') for key in differing)}"]


def _is_admitted(rule: Capability, manifest: Manifest) -> bool:
    return rule.domain == "tool" and rule.key in manifest.admissions


def _texts(manifest: Manifest) -> dict[str, str]:
    directories = {os.path.dirname(file) for file in manifest.files}
    if len(directories) > 1:
        raise PolicyMoved(f"the files of a trusted policy lie in one directory; found {', '.join(manifest.files)}")
    try:
        return {os.path.basename(file): read_regular(file, MOST_BYTES).decode() for file in manifest.files}
    except (OSError, ValueError) as error:
        raise PolicyMoved(f"{', '.join(manifest.files)} cannot be read again: {error}") from None


def _load(texts: Mapping[str, str], name: str, folder: str) -> Manifest:
    for file, text in texts.items():
        Path(folder, os.path.basename(file)).write_bytes(text.encode())
    return load_own_manifest(Path(folder, name))


def state_of(path: Path) -> Path:
    """The state directory of a policy file."""
    return state_directory(policy_root(path))


def with_standing(manifest: Manifest, path: Path, state: Place | None = None) -> Manifest:
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


def give_standing(manifest: Manifest, places: Places, state: Place, days: int) -> StoredRequest:
    """Give a standing approval of what `deletes_to_approve` says, or ask for its signatures.

    Only for a person who was shown it at a terminal. Raises `Unavailable` or `LedgerUnavailable`.
    """
    deletes = tuple(map(str, deletes_to_approve(manifest).allow))
    store = standing_approvals(state)
    return asyncio.run(store.give(manifest.digest, manifest.agent, places.workdir, deletes, manifest.approvals, days))


def withdraw_all(path: Path, state: Place | None = None) -> list[str]:
    """Withdraw every standing approval in the state of a policy file; returns their ids."""
    store = standing_approvals(state or state_of(path))
    return asyncio.run(store.withdraw_all())
