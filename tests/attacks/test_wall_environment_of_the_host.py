"""A tool reads the variables of the host."""

import os

from attacks.behind_walls import CANARY, Outside


def attack() -> dict[str, str]:
    return dict(os.environ)


def test_the_walls_stop_it(outside: Outside) -> None:
    import pytest

    from licet.sandbox.workers import close_workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_SECRET", CANARY)
        close_workers()
        outside.shows(attack, refused=None)
