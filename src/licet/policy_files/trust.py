"""The trust list: the policies that this user has accepted, by real path, with the digests of policy and lock.

One file for all workspaces. A command that found a policy by itself uses it only if it is on this list. Next to the
list there is a copy of each accepted policy and its lock, so that a new version can be compared with it.

Finds out whether a policy is pinned: its digest is in the `licet.lock` next to it, or in this user's trust list.

Only reads. Every gate refuses a policy if its lock cannot be read, does not list it, or has another digest. A broken
lock is never treated as a missing one. The gate itself compares `Gate(pin=…)`.

Finds and reads `licet.lock` next to a policy. `core/policy/lock.py` has its content.
"""

import hashlib
import json
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.policy.lock import BadLock, Lock, lock_digest, read_lock
from licet.core.policy.manifest import Manifest
from licet.core.values import Origin, Problem, canonical_json
from licet.errors import LicetError
from licet.own_files import is_there, open_regular, read_most, replace_file
from licet.policy_files.policy_paths import LOCK_FILE, NoHome, state_root

_FORMAT = 2  # 1 had no digests of locks
_LIST, _LOCK, _COPIES = "trust", "trust.lock", "trusted"
_MOST_BYTES = 64 << 20  # a copy has a lock of up to 16 MiB as text in JSON


class TrustListError(LicetError):
    """The list cannot be used. Nothing is trusted until it is repaired."""


class Accepted(Struct, frozen=True):
    """A policy on the list: its real path, its digest, that of its lock, and when both were accepted."""

    path: str
    digest: str
    when: str
    lock: str | None = ""  # empty: there was no lock; None: it was accepted by an older licet, which did not look


class Acceptance(Struct, frozen=True):
    """The answer whether a policy is accepted. For any other than `accepted`: why, and what there is to review."""

    answer: Literal["accepted", "unknown", "changed"]
    why: str = ""
    to_review: str = ""
    entry: Accepted | None = None


def acceptance(path: str | Path, digest: str, lock: str | None = "") -> Acceptance:
    """Whether this user has accepted a policy at this path with these digests; `TrustListError` if nobody can tell.

    `lock` is the digest of its lock, empty if there is none; with None only the policy counts.
    """
    entry = accepted().get(os.path.realpath(path))
    if entry is None:
        return Acceptance("unknown", f"{path} has not been accepted", "it")
    if entry.digest != digest:
        return Acceptance("changed", f"{path} has changed since it was accepted", "the change", entry)
    if lock in (None, entry.lock):
        return Acceptance("accepted", entry=entry)
    name, file = os.path.basename(path), os.path.join(os.path.dirname(path), LOCK_FILE)
    if entry.lock is None:
        why = f"{path} was accepted by an older licet, which did not look at {LOCK_FILE}"
    elif not lock:
        why = f"{file} was accepted together with {name}, and is not there any more"
    elif not entry.lock:
        why = f"{file} was not there when {name} was accepted"
    else:
        why = f"{file} has changed since it was accepted"
    return Acceptance("changed", why, "what it says now", entry)


def unaccepted(path: str | Path, manifest: Manifest, *, by_hand: bool, lock: bool = True) -> str:
    """Why a policy that must be accepted is not used, and what to do; empty if this user accepted it as it is now.

    `by_hand` says whether a person named it. Without `lock` only the policy counts.
    """
    real = os.path.realpath(path)
    how = f"`licet trust {shlex.quote(str(path))}`" if by_hand else "`licet trust`"
    if real != os.path.abspath(path):
        # Otherwise the author of the link could apply a policy to a directory for which it was not accepted.
        instead = "--accepted needs the real path" if by_hand else "such a policy is used only if you name it"
        return f"{path} is reached through a link, to {real}: {instead}"
    try:
        found = acceptance(path, manifest.digest, lock_state(manifest) if lock else None)
    except TrustListError as error:
        return f"{path} {'must be accepted' if by_hand else 'was found, not named'}, and {error}"
    if found.answer == "accepted":
        return ""
    or_name_it = ", or name it" if found.answer == "unknown" and not by_hand else ""
    return f"{found.why}: review and accept {found.to_review} with {how}{or_name_it}"


def is_accepted(path: str | Path, manifest: Manifest) -> bool:
    """Whether a loaded policy and its lock are accepted as they are; False if the list cannot be used."""
    try:
        # Most policies are not on the list, and a digest takes time.
        if os.path.realpath(path) not in accepted():
            return False
        return acceptance(path, manifest.digest, lock_state(manifest)).answer == "accepted"
    except TrustListError:  # then nothing is trusted
        return False


def accepted() -> dict[str, Accepted]:
    """All entries by real path; none if there is no list yet, or the user has no home directory."""
    try:
        return _read(_root() / _LIST)
    except (FileNotFoundError, NoHome):
        return {}


def list_file() -> str:
    """The path of the list, which need not exist; empty if this user has no home directory."""
    try:
        return str(_root() / _LIST)
    except NoHome:
        return ""


def trusted_paths() -> tuple[str, ...]:
    """The real paths of all accepted policies; none if the list cannot be used, since then nothing is trusted."""
    try:
        return tuple(accepted())
    except TrustListError:
        return ()


def accept(
    path: str | Path, digest: str, files: Mapping[str, str], now: datetime, *, lock: str = "", lock_text: str = ""
) -> Accepted:
    """Add a policy to the list, or replace its entry, and store a copy of its files (name -> text) and its lock.

    `lock` is the digest of the lock, empty if there is none.
    """
    entry = Accepted(os.path.realpath(path), digest, now.isoformat(timespec="seconds"), lock)
    with _locked_list() as entries:
        # The copy is written first, since an entry without a copy could not be compared.
        copy = {"format": _FORMAT, "path": entry.path, "digest": digest, "files": dict(files), "lock": lock_text}
        (folder := _root() / _COPIES).mkdir(mode=0o700, exist_ok=True)
        replace_file(folder / _copy_name(entry.path), canonical_json(copy))
        entries[entry.path] = entry
    return entry


def forget(path: str | Path) -> bool:
    """Remove a policy from the list; False if it was not on it."""
    real = os.path.realpath(path)
    with _locked_list() as entries:
        found = entries.pop(real, None)
        (_root() / _COPIES / _copy_name(real)).unlink(missing_ok=True)
    return found is not None


def accepted_files(path: str | Path) -> Mapping[str, str]:
    """The files (name -> text) of the policy that was last accepted at a path; empty if there is no readable copy."""
    files = _accepted_copy(path).get("files")
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        return {}
    return files


def accepted_lock(path: str | Path) -> str:
    """The text of the lock that was last accepted at a path; empty if there was none, or there is no readable copy."""
    text = _accepted_copy(path).get("lock")
    return text if isinstance(text, str) else ""


def _accepted_copy(path: str | Path) -> dict[str, Any]:
    real = os.path.realpath(path)
    entry = accepted().get(real)
    try:
        copy = _json(_root() / _COPIES / _copy_name(real)) if entry is not None else {}
    except (OSError, TrustListError):
        return {}
    return copy if entry is not None and (copy.get("path"), copy.get("digest")) == (real, entry.digest) else {}


@contextmanager
def _locked_list() -> Iterator[dict[str, Accepted]]:
    """Lock the list, yield its entries to be changed, and write them at the end."""
    import fcntl  # not available on every system, and only needed here

    folder = _root()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            entries = accepted()
            yield entries
            content = {
                entry.path: {"digest": entry.digest, "when": entry.when}
                | ({} if entry.lock is None else {"lock": entry.lock})
                for entry in entries.values()
            }
            replace_file(folder / _LIST, canonical_json({"format": _FORMAT, "accepted": content}))
        finally:
            os.close(number)
    except OSError as error:
        raise TrustListError(f"the list of trusted policies in {folder} cannot be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, Accepted]:
    found = _json(path)
    fix = f"move {path} away, and accept policies again with `licet trust`"
    number = found.get("format")
    if isinstance(number, int) and number > _FORMAT:
        raise TrustListError(f"the list of trusted policies {path} has format {number}: upgrade licet, or {fix}")
    entries = found.get("accepted")
    if number not in (1, _FORMAT) or isinstance(number, bool) or not isinstance(entries, dict):
        raise TrustListError(f"{path} is not a list of trusted policies: {fix}")
    read = {}
    for name, entry in entries.items():
        texts = [entry.get(key) for key in ("digest", "when")] if isinstance(entry, dict) else []
        lock = entry.get("lock") if isinstance(entry, dict) else None
        sound = texts and all(isinstance(text, str) for text in texts) and isinstance(lock, str | None)
        if not name.startswith("/") or not sound:
            raise TrustListError(f"{path} is not a list of trusted policies: {fix}")
        read[name] = Accepted(name, str(texts[0]), str(texts[1]), lock)
    return read


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. `TrustListError` unless this user owns it and no one else can write to it."""
    if not hasattr(os, "geteuid") and path.exists():
        raise TrustListError(f"{path} cannot be used: this system does not tell who owns a file")
    try:
        with open_regular(path, links=False) as number:
            about, folder = os.fstat(number), os.stat(path.parent)
            if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise TrustListError(f"{path} can be changed by others: run `chmod 600 {path}` as its owner")
            if folder.st_uid != os.geteuid() or folder.st_mode & stat.S_IWOTH:
                raise TrustListError(f"{path.parent} can be changed by others: run `chmod 700 {path.parent}`")
            data = read_most(number, _MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TrustListError(f"{path} cannot be read: {error.strerror}") from None
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        fix = "move it away, and accept policies again with `licet trust`"
        raise TrustListError(f"{path} is damaged: {fix}")
    return found


def _root() -> Path:
    root = state_root()
    if not root:
        raise NoHome
    return Path(root)


def _copy_name(path: str) -> str:
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"


MOST_BYTES = 16 << 20


def locks_of(path: str | Path) -> list[tuple[Path, str]]:
    """The locks next to the path of a policy and next to its real path, each with the name of the policy there."""
    places = dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))
    locks = [(Path(os.path.dirname(place), LOCK_FILE), os.path.basename(place)) for place in places]
    return [(lock, name) for lock, name in locks if is_there(lock)]


def load_lock(path: Path) -> Lock:
    """Read a lock; `BadLock` if there is none that can be used."""
    try:
        with open_regular(path) as number:
            data = read_most(number, MOST_BYTES + 1)
    except OSError as error:
        raise BadLock(f"a lock that cannot be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise BadLock(f"a lock of more than {MOST_BYTES >> 20} MiB")
    return read_lock(data)


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
    return replace(manifest, pinned="licet trust") if is_accepted(path, manifest) else manifest


def lock_state(manifest: Manifest) -> str:
    """What the trust list has about the lock of a loaded policy: its digest, or that there is none.

    A lock that cannot be read is `UNUSABLE`, and never the same as none; every gate refuses its policy.
    """
    return UNUSABLE if manifest.lock is None and manifest.lock_problem is not None else lock_digest(manifest.lock)
