"""A tool searches all objects of its process for a secret that it did not declare."""

import gc
import secrets

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext, backwards: str) -> list[str]:
    word = backwards[::-1]  # so that the argument itself is not found
    wanted, found = (word, word.encode()), []
    for thing in gc.get_objects():
        # What holds nothing but texts is not listed itself, so one step is gone from what is.
        for inner in gc.get_referents(thing):
            held = inner.values() if type(inner) is dict else inner if type(inner) in (list, tuple) else (inner,)
            if inner is not wanted and any(type(value) in (str, bytes) and value in wanted for value in list(held)):
                found.append(type(inner).__name__)
    return found


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    hidden = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", hidden)
        outside.shows(attack, lambda found: "dict" in (found or ()), refused=None, backwards=hidden[::-1])
