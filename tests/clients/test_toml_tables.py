"""Edits of TOML configurations: only the entries change, however they are written."""

import random
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.written import SERVERS, TomlWriter
from licet.clients.jsonc import BadConfig, apply, checked, swapped, table_of
from licet.clients.toml_tables import Toml

FORM = Toml()
TABLE = ("mcp_servers",)
GATEWAY = {"command": "licet", "args": ["gateway", "/m.yaml"]}


def edited(text: str, names: list[str], new: str = "licet") -> str:
    entries = table_of(FORM.read(text), TABLE)
    spans = FORM.swap(text, TABLE, names, new, GATEWAY)
    return checked(FORM, text, spans, TABLE, swapped(entries, names, new, GATEWAY))


@given(SERVERS, st.randoms(use_true_random=False), st.data())
def test_only_the_entries_change(servers: dict[str, Any], chance: random.Random, data: st.DataObject) -> None:
    writer = TomlWriter(chance)
    text = writer.document(servers)
    assert FORM.read(text)["mcp_servers"] == servers
    names = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    after = edited(text, names)
    spans = FORM.swap(text, TABLE, names, "licet", GATEWAY)
    assert after.startswith(text[: min(span.start for span in spans)])
    assert after.endswith(text[max(span.end for span in spans) :])
    assert [comment for comment in writer.comments if comment not in after] == []
    assert ("\r\n" in text) == ("\r\n" in after)
    assert after.count("\n") == after.count("\r\n") or "\r\n" not in text


@given(SERVERS, st.randoms(use_true_random=False), st.booleans(), st.data())
def test_entries_that_were_taken_out_can_be_put_back(
    servers: dict[str, Any], chance: random.Random, gone: bool, data: st.DataObject
) -> None:
    writer = TomlWriter(chance)
    text = writer.document(servers)
    names = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    originals = FORM.originals(text, TABLE, names)
    after = edited(text, names)
    if gone:
        after = apply(after, FORM.put_back(after, TABLE, "licet", {}))
    back = apply(after, FORM.put_back(after, TABLE, "" if gone else "licet", originals))
    assert FORM.read(back) == FORM.read(text)
    assert [comment for comment in writer.comments if comment not in back] == []


def test_an_edit_looks_as_a_person_would_write_it() -> None:
    before = (
        'model = "m" # kept\n\n# the files\n[mcp_servers.files]\ncommand = "npx"\n# inside\nargs = []\n\n'
        '[mcp_servers.db]\ncommand = "uvx"\n\n[mcp_servers.db.env]\nA = "1"\n\n# the end\n[tui]\n'
    )
    after = (
        'model = "m" # kept\n\n# the files\n[mcp_servers.licet]\ncommand = "licet"\nargs = ["gateway", "/m.yaml"]\n\n'
        "# the end\n[tui]\n"
    )
    assert edited(before, ["files", "db"]) == after


@pytest.mark.parametrize(
    "text",
    [
        "[[a]]\n[mcp_servers.files]\n[[a]]\n[mcp_servers.db]\n[[ 'a' ]]\n",  # an array of tables in three places
        "[mcp_servers.db.env]\n[o]\n[mcp_servers.files]\n[mcp_servers.db]\nx = 1\n[o.p]\n[mcp_servers]\n",
        "x = [\n[1],\n  [2],\n[3]\n]\n[mcp_servers.files]\n[mcp_servers.db]\n[ o . 'p' ]\n",
    ],
)
def test_tables_stay_in_their_order(text: str) -> None:
    new = '[mcp_servers.licet]\ncommand = "licet"\nargs = ["gateway", "/m.yaml"]\n'
    assert edited(text, ["files"]) == text.replace("[mcp_servers.files]\n", new)
    assert edited(text.replace("files", "''"), [""]) == text.replace("[mcp_servers.files]\n", new)  # without a name


def test_an_entry_goes_back_into_a_file_that_was_written_anew() -> None:
    text = '[mcp_servers]\nfiles = {command = "npx"}\n'
    originals = FORM.originals(text, TABLE, ["files"])
    anew = '[mcp_servers.licet]\ncommand = "licet"\nargs = ["gateway", "/m.yaml"]\n'
    back = apply(anew, FORM.put_back(anew, TABLE, "licet", originals))
    assert tomllib.loads(back) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'mcp_servers = {a = {command = "x"}}\n',
            "`mcp_servers` is written as one value: write a table for each server",
        ),
        ("[mcp_servers.a]\n" + "#\n" * (128 << 10), "it is larger than 256 KiB: edit it by hand"),
        ("a = [\n", "it is no TOML: Invalid value"),
        ("[[mcp_servers]]\n", "`mcp_servers` is no table of servers"),
        ("[mcp_servers.a]\n[mcp_servers.a]\n", "it is no TOML: Cannot declare"),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadConfig) as refused:
        edited(text, ["a"])
    assert str(refused.value).startswith(reason)
