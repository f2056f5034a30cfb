"""Edits of JSON configurations: only the entries change, and every reader still reads the file."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.written import SERVERS, TEXTS, JsoncWriter
from licet.clients.jsonc import BadConfig, Jsonc, apply, checked, swapped, table_of

FORM = Jsonc()
TABLE = ("mcpServers",)
GATEWAY = {"command": "licet", "args": ["gateway", "/m.yaml"]}


def edited(text: str, names: list[str], new: str = "licet") -> str:
    entries = table_of(FORM.read(text), TABLE)
    spans = FORM.swap(text, TABLE, names, new, GATEWAY)
    return checked(FORM, text, spans, TABLE, swapped(entries, names, new, GATEWAY))


def is_strict(text: str) -> bool:
    try:
        json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        return False
    return True


@given(SERVERS, TEXTS, st.randoms(use_true_random=False), st.booleans(), st.data())
def test_only_the_entries_change(
    servers: dict[str, Any], other: str, chance: random.Random, strict: bool, data: st.DataObject
) -> None:
    writer = JsoncWriter(chance, strict=strict)
    text = writer.document({"x": other, "mcpServers": {"a": 1}}, servers, other)
    names = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    assert FORM.read(text) == {"first": {"x": other, "mcpServers": {"a": 1}}, "mcpServers": servers, "last": other}
    after = edited(text, names)
    expected = swapped(servers, names, "licet", GATEWAY)
    assert list(table_of(FORM.read(after), TABLE).items()) == list(expected.items())
    assert is_strict(after) or not is_strict(text)
    assert [comment for comment in writer.comments if comment not in after] == []
    # Everything before the first removed entry and after the last one is the same, byte for byte.
    spans = FORM.swap(text, TABLE, names, "licet", GATEWAY)
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])


@given(SERVERS, st.randoms(use_true_random=False), st.booleans(), st.booleans(), st.data())
def test_entries_that_were_taken_out_can_be_put_back(
    servers: dict[str, Any], chance: random.Random, strict: bool, gone: bool, data: st.DataObject
) -> None:
    writer = JsoncWriter(chance, strict=strict)
    text = writer.document(1, servers, 2)
    names = data.draw(st.lists(st.sampled_from(sorted(servers)), min_size=1, unique=True))
    originals = FORM.originals(text, TABLE, names)
    after = edited(text, names)
    if gone:  # somebody has taken the gateway out meanwhile
        after = apply(after, FORM.put_back(after, TABLE, "licet", {}))
    back = apply(after, FORM.put_back(after, TABLE, "" if gone else "licet", originals))
    assert FORM.read(back) == FORM.read(text)
    assert is_strict(back) or not is_strict(text)
    assert [comment for comment in writer.comments if comment not in back] == []


CASES = {
    "one of several": (
        '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    },\n    "b": {"command": "y"}\n  }\n}\n',
        ["a"],
        ('{\n  "mcpServers": {\n    "licet": {\n      "command": "licet",\n      "args": [\n        "gateway",\n'
        '        "/m.yaml"\n      ]\n    },\n    "b": {"command": "y"}\n  }\n}\n'),
    ),
    "the last ones, without a comma left over": (
        '{"mcpServers": {"a": {}, "b": {}, "c": {}}}',
        ["b", "c"],
        '{"mcpServers": {"a": {}, "licet": {"command": "licet", "args": ["gateway", "/m.yaml"]}}}',
    ),
    "lines that are gone leave no blank ones, and comments stay": (
        '{"mcpServers": {\r\n\t"a": {}, // one\r\n\t// two\r\n\t"b": {},\r\n\t"c": {} // three\r\n}}',
        ["a", "b", "c"],
        ('{"mcpServers": {\r\n\t"licet": {"command": "licet", "args": ["gateway", "/m.yaml"]} // one\r\n\t// two'
        '\r\n\t// three\r\n}}'),
    ),
    "a comment at the end of a line does not swallow what follows": (
        '{"mcpServers": {"a": {}, // one\n"b": {}, "c": {}}}',
        ["a", "b"],
        '{"mcpServers": {"licet": {"command": "licet", "args": ["gateway", "/m.yaml"]}, // one\n"c": {}}}',
    ),
    "a comment before a comma": (
        '{"mcpServers": {"a": {}, "b": {} /* b */ , "c": {},}}',
        ["a", "b"],
        '{"mcpServers": {"licet": {"command": "licet", "args": ["gateway", "/m.yaml"]}, /* b */  "c": {},}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "names", "after"), CASES.values(), ids=CASES)
def test_edits_look_as_a_person_would_write_them(before: str, names: list[str], after: str) -> None:
    assert edited(before, names) == after


def test_a_gateway_that_is_there_already_stays() -> None:
    text = '{"mcpServers": {"licet": {"command": "licet", "args": ["gateway", "/m.yaml"]}, "new": {}}}'
    assert edited(text, ["new"]) == '{"mcpServers": {"licet": {"command": "licet", "args": ["gateway", "/m.yaml"]}}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', 'line 1: the key "a" is there twice'),
        ('{"a": {"b": 1,\n"b": 2}}', 'line 2: the key "b" is there twice'),
        ('{"a": 1,, "b": 2}', "line 1: found `,`, expected a key in double quotes, or `}`"),
        ('{"a" 1}', "line 1: found `1`, expected `:`"),
        ('{"a": NaN}', "line 1: found a word that is no JSON"),
        ('{"a": "open', "line 1: found a character that is no JSON"),
        ('{"a": 1} {"b": 2}', "line 1: found `{`, expected nothing more"),
        ('{"a": /* open', "line 1: found a character that is no JSON"),
        ("[1]", "it is no JSON object"),
        ("[" * 200, "line 1: nested more than 100 deep"),
        ('{"mcpServers": []}', "`mcpServers` is no table of servers"),
    ],
)
def test_a_file_that_clients_may_read_differently_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadConfig) as refused:
        table_of(FORM.read(text), TABLE)
    assert str(refused.value) == reason


def test_a_message_contains_no_value() -> None:
    with pytest.raises(BadConfig) as refused:
        FORM.read('{"token": ghp_secret}')
    assert "ghp" not in str(refused.value)


def test_an_edit_that_would_change_more_is_refused() -> None:
    text = '{"a": 1, "mcpServers": {"x": {}}}'
    spans = [
        *FORM.swap(text, TABLE, ["x"], "licet", GATEWAY),
        type(FORM.swap(text, TABLE, ["x"], "l", {})[0])(6, 7, "2"),
    ]
    with pytest.raises(BadConfig, match="would change more"):
        checked(FORM, text, spans, TABLE, {"licet": GATEWAY})
