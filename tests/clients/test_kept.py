"""Undo of an edit: the same bytes if nobody touched the file, else only the entries."""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.written import SERVERS, JsoncWriter, TomlWriter
from licet.clients.known import CODEX, CURSOR, Client, Unusable, read_own, replace_own
from licet.clients.undo import EditedTable, Keeper, undo

GATEWAY = {"command": "licet", "args": ["gateway", "/m.yaml"]}
TEXT = '{\n  "mcpServers": {\n    "a": {"command": "x"}, // one\n    "b": {"command": "y"}\n  }\n}\n'


def edit(keeper: Keeper, client: Client, path: Path, names: list[str]) -> None:
    from licet.clients.jsonc import apply

    seen = read_own(path, path.parent)
    assert seen is not None
    originals = client.form.originals(seen.text, client.table, names)
    after = apply(seen.text, client.form.swap(seen.text, client.table, names, "licet", GATEWAY)).encode()
    keeper.keep(client, seen, path.parent, after, (EditedTable(client.table, "licet", GATEWAY, originals),))
    replace_own(seen, after, path.parent)


@given(SERVERS, st.sampled_from([CURSOR, CODEX]), st.randoms(use_true_random=False), st.data())
def test_undo_of_an_edit_is_the_identity(
    servers: dict[str, Any], client: Client, chance: random.Random, data: st.DataObject
) -> None:
    writer = TomlWriter(chance) if client is CODEX else JsoncWriter(chance, strict=False)
    text = writer.document(servers) if isinstance(writer, TomlWriter) else writer.document(1, servers, 2)
    names = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    with tempfile.TemporaryDirectory() as folder:
        path, keeper = Path(folder, "config"), Keeper(Path(folder, "state"))
        path.write_bytes(text.encode())
        edit(keeper, client, path, names)
        assert path.read_bytes() != text.encode()
        ((kept, found),) = keeper.edits()
        assert undo(found).exact
        keeper.forget(kept)
        assert path.read_bytes() == text.encode()
        assert keeper.edits() == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path / "state")


def test_what_is_kept_is_private(path: Path, keeper: Keeper, tmp_path: Path) -> None:
    edit(keeper, CURSOR, path, ["a"])
    ((kept, _),) = keeper.edits()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_changed_gets_its_entries_back_and_nothing_else(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a", "b"])
    path.write_text(
        path.read_text().replace('"mcpServers": {', '"theme": 1, "mcpServers": {\n    "new": {"command": "z"},')
    )
    ((_, found),) = keeper.edits()
    undone = undo(found)
    assert (undone.exact, undone.put_back, undone.skipped) == (False, ("a", "b"), ())
    text = path.read_text()
    assert '"a": {"command": "x"},\n    "b": {"command": "y"} // one' in text
    data = {"theme": 1, "mcpServers": {"new": {"command": "z"}, "a": {"command": "x"}, "b": {"command": "y"}}}
    assert json.loads(text.replace("// one", "")) == data


def test_an_entry_that_somebody_wrote_meanwhile_stays(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a", "b"])
    path.write_text(path.read_text().replace('"mcpServers": {', '"mcpServers": {"a": {"command": "mine"},'))
    ((_, found),) = keeper.edits()
    assert undo(found).skipped == ("a",)
    assert CURSOR.form.read(path.read_text())["mcpServers"] == {"a": {"command": "mine"}, "b": {"command": "y"}}


def test_a_gateway_that_the_client_wrote_anew_is_found(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a", "b"])
    path.write_text(json.dumps({"mcpServers": {"licet": {"type": "stdio", **GATEWAY, "env": {}}}}))
    ((_, found),) = keeper.edits()
    undo(found)
    assert CURSOR.form.read(path.read_text())["mcpServers"] == {"a": {"command": "x"}, "b": {"command": "y"}}


def test_an_entry_of_that_name_that_is_no_gateway_is_left(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a", "b"])
    path.write_text(json.dumps({"mcpServers": {"licet": {"command": "mine"}}}))
    ((_, found),) = keeper.edits()
    undo(found)
    servers = CURSOR.form.read(path.read_text())["mcpServers"]
    assert servers == {"licet": {"command": "mine"}, "a": {"command": "x"}, "b": {"command": "y"}}


def test_two_edits_are_undone_one_after_the_other(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a"])
    middle = path.read_bytes()
    edit(keeper, CURSOR, path, ["b"])
    (_, last), (_, first) = keeper.edits()
    assert undo(last).exact
    assert path.read_bytes() == middle
    assert undo(first).exact
    assert path.read_text() == TEXT


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is not there any more"),
        ("{}", "cannot be put back: there is no `mcpServers`"),
        ('{"mcpServers": ', "cannot be put back: line 1"),
    ],
)
def test_what_cannot_be_undone_says_why(path: Path, keeper: Keeper, content: str | None, reason: str) -> None:
    edit(keeper, CURSOR, path, ["a"])
    path.unlink() if content is None else path.write_text(content)
    ((_, found),) = keeper.edits()
    with pytest.raises(Unusable, match=reason):
        undo(found)
    assert content is None or path.read_text() == content


def test_a_damaged_copy_is_refused(path: Path, keeper: Keeper) -> None:
    edit(keeper, CURSOR, path, ["a"])
    ((kept, found),) = keeper.edits()
    kept.write_text(kept.read_text().replace(found.before, "e30="))
    ((_, changed),) = keeper.edits()
    with pytest.raises(Unusable, match="is damaged"):
        undo(changed)
    kept.write_text("{")
    with pytest.raises(Unusable, match="is damaged"):
        keeper.edits()
