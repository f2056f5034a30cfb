"""Values go into the secrets file in a spelling that reads back, and none that is there is changed."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.backends.secrets import FileSecrets, parse
from licet.clients.entries import add_secrets, known_secrets, secret_line
from licet.clients.known import Unusable


@given(st.text(max_size=20))
def test_a_line_reads_back_as_the_value(value: str) -> None:
    line = secret_line("mcp/a/B", value)
    if line is not None:
        assert parse("", line.encode()) == {"mcp/a/B": value}


@pytest.mark.parametrize("value", ["x", "a b", "a'b", 'a"b', "a$b", "a#b", "a\nb", "a\\b", "`", "é", "='", "p@ss=w0rd"])
def test_ordinary_values_have_a_line(value: str) -> None:
    assert secret_line("mcp/a/B", value)


@pytest.mark.parametrize("value", ["", "'$", "\0", "\ud800"])
def test_a_value_without_a_spelling_has_none(value: str) -> None:
    assert secret_line("mcp/a/B", value) is None


def test_values_are_added_and_found(tmp_path: Path) -> None:
    file = tmp_path / "state" / "s.env"
    assert add_secrets(file, {"mcp/a/TOKEN": "one two"}) == ("mcp/a/TOKEN",)
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("a") as more:
        more.write("# mine\nOWN=1")
    assert add_secrets(file, {"mcp/a/TOKEN": "other", "mcp/b/K": "2"}) == ("mcp/b/K",)
    assert file.read_text() == "mcp/a/TOKEN='one two'\n# mine\nOWN=1\nmcp/b/K=2\n"
    assert asyncio.run(FileSecrets(file).get("mcp/a/TOKEN")) == "one two"


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.env"
    file.write_text("A=1\n")
    file.chmod(0o644)
    with pytest.raises(Unusable, match="has mode 0644"):
        known_secrets(file)
    with pytest.raises(Unusable, match="has mode 0644"):
        add_secrets(file, {"B": "2"})
    assert file.read_text() == "A=1\n"
