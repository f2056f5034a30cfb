"""The stores of these tests lie in memory."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(store_path: Path) -> Path:
    return store_path
