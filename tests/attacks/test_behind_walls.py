"""The yardstick itself: an attack that works behind walls, or works nowhere, does not pass."""

from collections.abc import Callable
from typing import Any

import pytest

from attacks.behind_walls import NO_WALLS, Outside


def harmless(granted: str) -> str:
    return "canary-outside-of-the-walls" if granted else ""


def hopeless() -> str:
    raise PermissionError(1, "nobody may")


def mistaken() -> str:
    raise TypeError("a mistake in the attack itself")


def quiet() -> str:
    return "nothing"


PASSES: dict[Callable[..., Any], tuple[bool, bool]] = {
    harmless: (True, False),
    hopeless: (False, True),
    mistaken: (False, False),
    quiet: (False, False),
}


@pytest.mark.parametrize("attack", PASSES, ids=lambda attack: attack.__name__)
def test_what_is_no_attack_does_not_pass(outside: Outside, attack: Callable[..., Any]) -> None:
    if PASSES[attack][outside.walls != NO_WALLS]:
        outside.shows(attack)
    else:
        with pytest.raises(AssertionError):
            outside.shows(attack)
