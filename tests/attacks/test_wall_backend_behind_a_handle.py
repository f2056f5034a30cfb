"""A tool finds the backend that its handle stands in front of, and uses it without the handle."""

import asyncio
import gc
import secrets

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext) -> str | None:
    for thing in gc.get_objects():
        if type(thing).__name__ == "EnvironmentSecrets":
            return str(asyncio.run(thing.get("LICET_TEST_HIDDEN")))
    return None


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(attack, lambda value: value == word, refused=None)
