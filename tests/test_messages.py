"""The tables of expected messages: each sentence is expected by some test."""

import re
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parent
TABLES = sorted(TESTS.rglob("messages.yaml"))


@pytest.mark.parametrize("table", TABLES, ids=[table.parent.name for table in TABLES])
def test_each_sentence_is_expected_by_a_test(table: Path) -> None:
    known = {f"{group}.{name}" for group, texts in yaml.safe_load(table.read_text("utf-8")).items() for name in texts}
    sources = "".join(path.read_text("utf-8") for path in table.parent.rglob("test_*.py"))
    assert known == set(re.findall(r'\bmessage\(\s*"([^"/]+\.[^"/]+)"', sources))
