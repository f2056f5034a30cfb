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
    uses = re.compile(rf"^from (?:\.|{table.parent.name}\.)messages import message$", re.MULTILINE)
    texts = {path: path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    sources = "".join(text for path, text in texts.items() if path.is_relative_to(table.parent) or uses.search(text))
    assert known == set(re.findall(r'\bmessage\(\s*"([^"/]+\.[^"/]+)"', sources))
