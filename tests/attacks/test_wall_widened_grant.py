"""A tool widens the grant that its handles hold."""

import gc
import secrets

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext) -> str | None:
    from licet.core.set import CapabilitySet

    everything = CapabilitySet(["env:read:*"])
    for thing in gc.get_objects():
        if type(thing).__name__ == "Reach":
            object.__setattr__(thing, "grant", everything)
    return ctx.env.get("LICET_TEST_HIDDEN")


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(attack, lambda value: value == word, refused="ENV_NOT_ALLOWED")
