"""A tool replaces the check of its grant by one that never refuses."""

import secrets

from attacks.behind_walls import Outside
from licet import SyncContext


def attack(ctx: SyncContext) -> str | None:
    import licet.guard.holding

    licet.guard.holding.Holding.check = lambda self, use: None  # type: ignore[method-assign]
    return ctx.env.get("LICET_TEST_HIDDEN")


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    word = secrets.token_hex(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_HIDDEN", word)
        outside.shows(attack, lambda value: value == word, refused="ENV_NOT_ALLOWED")
