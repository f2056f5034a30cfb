"""Where a process that runs for long has its policy from, and whether the files still say what it was loaded with.

A resident and a gateway decide calls for days. Before each call they look at the identity of every file that decides
what the policy is, or whether it is accepted: a few calls of `stat`. If one has changed, the policy is loaded again by
the rules of a start. The code of tools, and what a server is started from, are compared elsewhere.
"""

import os
import time
from pathlib import Path
from typing import Self

from msgspec import Struct

from licet.core.policy.lock import lock_digest
from licet.core.policy.manifest import Manifest
from licet.errors import LicetError
from licet.policy_files.limits import SETTLED_SECONDS
from licet.policy_files.load import load_manifest
from licet.policy_files.organisation import machine_file
from licet.policy_files.policy_paths import LOCK_FILE, WORKSPACE_FILE
from licet.policy_files.trust import list_file, unaccepted

_SETTLED = int(SETTLED_SECONDS * 1e9)

Version = tuple[int, ...] | None  # None: there is no such file, or it cannot be looked at


class SeenFiles(Struct, frozen=True):
    """The files that decide a policy, as they were at one look. Look before they are read, never after."""

    files: tuple[str, ...]
    versions: tuple[Version, ...]
    is_settled: bool  # False: one was so new that another change of it could have had the same time

    @classmethod
    def of(cls, policy: str | Path, *others: str | Path | None) -> Self:
        """Look at the files of a policy; `others` are those that were named besides it, if any."""
        path, real = os.path.abspath(policy), os.path.realpath(policy)
        folders = dict.fromkeys((os.path.dirname(path), os.path.dirname(real)))
        named = (path, os.path.join(os.path.dirname(path), WORKSPACE_FILE), *map(str, filter(None, others)))
        locks = (os.path.join(folder, LOCK_FILE) for folder in folders)
        files = tuple(dict.fromkeys((*named, *locks, list_file(), machine_file())))
        versions = tuple(map(_version, files))
        now = time.time_ns()
        return cls(files, versions, not any(abs(now - one[-1]) < _SETTLED for one in versions if one))

    def are_same(self) -> bool:
        """Whether none of them has changed since. A few microseconds."""
        return self.is_settled and all(map(_is_version, self.files, self.versions))


def _version(path: str) -> Version:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _is_version(path: str, version: Version) -> bool:
    return _version(path) == version


def meaning(manifest: Manifest) -> tuple[object, ...]:
    """What decides calls under a loaded policy: if this is the same, files changed in comments or dates alone."""
    closed = [layer for layer in manifest.layers if layer.kind == "protected paths"]
    protected = frozenset(str(rule.capability) for layer in closed for rule in layer.denies)
    lock = "" if manifest.lock is None else lock_digest(manifest.lock)
    return manifest.digest, lock, str(manifest.lock_problem), manifest.pinned, manifest.organisations, protected


class PolicyRefused(LicetError):
    """The files of a policy are not what a start would take. `fix` is what a person does, if the text does not say."""

    def __init__(self, why: str, fix: str, manifest: Manifest | None = None) -> None:
        super().__init__(why)
        self.fix = fix
        self.manifest = manifest  # what the files say; None if they cannot be read


class PolicySource:
    """The files that a running command was started with, and what its start demands of them."""

    def __init__(
        self,
        path: Path,
        workspace: Path | None = None,
        personality: Path | None = None,
        organisation: Path | None = None,
        *,
        must_be_accepted: bool,
        by_hand: bool = True,
        as_locked: bool = True,
    ) -> None:
        self.path = path
        self._named = workspace, personality, organisation
        self._must_be_accepted, self._by_hand, self._as_locked = must_be_accepted, by_hand, as_locked
        self._seen = self._look()

    def _look(self) -> SeenFiles:
        return SeenFiles.of(self.path, *self._named)

    def has_changed(self) -> bool:
        """Whether a file that decides is not as it was when the policy was loaded last, or may not be."""
        return not self._seen.are_same()

    def load(self) -> Manifest:
        """Load the policy as a start does. Raises `PolicyRefused`, whatever is wrong; the files count as loaded."""
        self._seen = self._look()
        workspace, personality, organisation = self._named
        try:
            manifest = load_manifest(self.path, workspace, personality, organisation=organisation)
        except (LicetError, OSError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PolicyRefused(f"the policy cannot be read: {why}", f"correct it: `licet check {self.path}`") from None
        if manifest.lock_problem is not None and self._as_locked:
            differs = str(manifest.lock_problem).replace(": warning: ", ": ", 1)  # for a start of this kind it is none
            raise PolicyRefused(differs, "", manifest)  # it says what to do
        if self._must_be_accepted and (why := unaccepted(self.path, manifest, by_hand=self._by_hand)):
            raise PolicyRefused(why, "", manifest)
        return manifest
