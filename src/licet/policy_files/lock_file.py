"""Finds and reads `licet.lock` next to a policy. `core/policy/lock.py` has its content."""

import os
from pathlib import Path

from licet.core.policy.lock import BadLock, Lock, read_lock
from licet.policy_files.policy_paths import LOCK_FILE
from licet.regular_files import is_there, open_regular, read_most

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
