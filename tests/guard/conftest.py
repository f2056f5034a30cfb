"""Fixtures that several tests of the guard use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.guard.ports import Budgets


@pytest.fixture(params=["memory", "sqlite"])
def budgets(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Budgets]:
    """A store of budgets of each kind."""
    if request.param == "memory":
        yield MemoryBudgets()
        return
    kept = SqliteBudgets(tmp_path / "budgets.sqlite")
    yield kept
    kept.close()
