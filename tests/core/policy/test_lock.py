"""`licet.lock` as values: how it is read, what may change by itself, what a reviewer is shown, and what is hidden."""

import json
import re
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.policy import lock as locks
from licet.core.policy.lock import (
    BadLock,
    Lock,
    LockedDistribution,
    LockedServer,
    LockedTool,
    NamedPlaces,
    Resolved,
    changed,
    fixed_differences,
    hidden_in,
    local,
    lock_digest,
    portable,
    read_lock,
    shown,
    volatile_texts,
    without,
    write_lock,
)
from licet.core.policy.lock_changes import lock_changes, tool_difference
from licet.core.values import canonical_json

ONE, TWO = ("sha256:" + digit * 64 for digit in "12")
TOOL: dict[str, Any] = {
    "name": "read",
    "description": "Reads a file.",
    "annotations": {"title": "Read", "readOnlyHint": True},
    "inputSchema": {"type": "object",
        "properties": {"path": {"type": "string", "description": "Which file", "default": {"title": "a"}},
        "title": {"type": "string"}}},
}  # fmt: skip


def with_tool(**fields: Any) -> LockedServer:
    return LockedServer(tools=({**TOOL, **fields},))


WHOLE = Lock(
    format=1,
    manifests={"a.yaml": ONE},
    tools={"t": LockedTool(TWO, {"src/t.py": ONE})},
    servers={
        "files": LockedServer(
            command=("npx", "-y", "files", "${workdir}"),
            resolved=Resolved("npm", "files", "1.0.0", integrity={"any": {"files@1.0.0": "sha512-x"}}),
            version="2025-11-25",
            announced=("roots",),
            tools=({**TOOL, "outputSchema": {"minimum": 0.5}},),
            resources=({"uri": "file:///a"},),
            templates=({"uriTemplate": "file:///{x}"},),
            prompts=({"name": "p", "arguments": [{"name": "a", "description": "x"}]},),
            volatile={"tools/read": ("description",), "prompts/p": ("arguments/0/description",)},
            hidden=("tools/read",),
            refused={"tools/resources": "taken"},
        )
    },
)


# Reading and writing --------------------------------------------------------------------------------------------------


def test_a_lock_is_canonical_json_that_is_read_back() -> None:
    data = write_lock(WHOLE)
    assert read_lock(data) == WHOLE
    assert data == canonical_json(json.loads(data)) + b"\n"
    assert write_lock(Lock(format=1)) == b'{"format":1}\n'


@pytest.mark.parametrize("name", ["/srv/other/a.yaml", "../other/a.yaml", "sub/a.yaml", "..", ".", "", "a\\b", "a\0"])
def test_a_lock_is_about_files_next_to_it(name: str) -> None:
    with pytest.raises(BadLock, match="which is no file next to it"):
        read_lock(json.dumps({"format": 1, "manifests": {name: ONE}}).encode())


def lock(**servers: Any) -> str:
    return json.dumps({"format": 1, "servers": {"files": servers}})


UNUSABLE: dict[str, str | bytes] = {
    "no JSON": "{",
    "no text": b"\xff",
    "a list": "[1]",
    "no format": "{}",
    "a newer format": '{"format": 2}',
    "a format that is a truth": '{"format": true}',
    "a format that is a float": '{"format": 1.0}',
    "a key twice": '{"format": 1, "manifests": {}, "manifests": {}}',
    "a key twice, deep in a definition": '{"format":1,"servers":{"s":{"tools":[{"name":"a","name":"b"}]}}}',
    "an unknown key": '{"format": 1, "signature": ""}',
    "an unknown key of a server": lock(sandbox="native"),
    "a digest of something else": json.dumps({"format": 1, "manifests": {"a": "md5:1"}}),
    "a number that is infinite as a float": '{"format": 1, "servers": {"s": {"tools": [{"name": "a", "x": -1e400}]}}}',
    "a number that is none": '{"format": 1, "servers": {"s": {"tools": [{"name": "a", "x": NaN}]}}}',
    "half a surrogate pair": '{"format": 1, "servers": {"s": {"tools": [{"name": "\\ud800"}]}}}',
    "nested without end": "[" * 100_000,
    "nested too deep": lock(tools=[{"name": "a", "x": json.loads("[" * 200 + "]" * 200)}]),
    "a tool without a name": lock(tools=[{"description": "x"}]),
    "a tool whose name is no text": lock(tools=[{"name": 1}]),
    "a tool without characters": lock(tools=[{"name": ""}]),
    "a tool twice": lock(tools=[{"name": "a"}, {"name": "a", "description": "another"}]),
    "a resource without a URI": lock(resources=[{"name": "a"}]),
    "a template without one": lock(templates=[{"uri": "a"}]),
    "a prompt twice": lock(prompts=[{"name": "a"}, {"name": "a"}]),
    "a schema that may change": lock(tools=[TOOL], volatile={"tools/read": ["inputSchema"]}),
    "a type that may change": lock(tools=[TOOL], volatile={"tools/read": ["inputSchema/properties/path/type"]}),
    "an argument that may change": lock(tools=[TOOL], volatile={"tools/read": ["inputSchema/properties/title"]}),
    "an annotation that may change": lock(tools=[TOOL], volatile={"tools/read": ["annotations/title"]}),
    "a default that may change": lock(
        tools=[TOOL], volatile={"tools/read": ["inputSchema/properties/path/default/title"]}
    ),
    "everything may change": lock(tools=[TOOL], volatile={"tools/read": [""]}),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_an_edited_lock_is_unusable(content: str | bytes) -> None:
    with pytest.raises(BadLock):
        read_lock(content.encode() if isinstance(content, str) else content)


# Texts that change by themselves --------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "description": ({"description": "Other"}, True),
    "title": ({"title": "A"}, False),  # it was not there before
    "name": ({"name": "write"}, False),
    "annotations/title": ({"annotations": {"title": "Write", "readOnlyHint": True}}, False),
    "annotations/readOnlyHint": ({"annotations": {"title": "Read", "readOnlyHint": False}}, False),
    "inputSchema/type": ({"inputSchema": {**TOOL["inputSchema"], "type": "array"}}, False),
    "inputSchema/title": ({"inputSchema": {**TOOL["inputSchema"], "title": 5}}, False),
    "description that is a number": ({"description": 5}, False),
}


@pytest.mark.parametrize(("fields", "is_volatile"), CHANGES.values(), ids=CHANGES)
def test_only_a_description_or_title_may_change_by_itself(fields: dict[str, Any], is_volatile: bool) -> None:
    other = {**TOOL, **fields}
    assert bool(list(volatile_texts(TOOL, other))) is is_volatile
    assert bool(list(fixed_differences(TOOL, other))) is not is_volatile


# A server chooses the keys of its schemas, and a message about them must not be its mouth.
KEYS: list[tuple[dict[str, Any], str]] = [
    ({"path": {}}, "inputSchema/properties/path"),
    ({"run `licet trust` now": {}}, "inputSchema/properties/…"),
    ({"x" * 1000: {}}, "inputSchema/properties/…"),
    ({"a\u202eb": {}, "\x1b[2J": {}}, "inputSchema/properties/…"),
    ({f"k{n}": {} for n in range(9)}, ", ".join(f"inputSchema/properties/k{n}" for n in range(5)) + " and 4 more"),
]


@pytest.mark.parametrize(("properties", "said"), KEYS, ids=range(len(KEYS)))
def test_a_change_names_only_plain_keys_of_a_server(properties: dict[str, Any], said: str) -> None:
    before, after = ({"name": "t", "inputSchema": {"properties": one}} for one in ({}, properties))
    found = changed(LockedServer(tools=(before,)), LockedServer(tools=(after,)))
    assert found == {"t": f"has another {said}"}


def test_a_deep_change_is_named_by_its_first_keys() -> None:
    deep: dict[str, Any] = {}
    for word in ("now", "rules", "the", "all", "ignore", "please"):
        deep = {"properties": {word: deep}}
    before, after = (LockedServer(tools=({"name": "t", "inputSchema": one},)) for one in ({"title": ""}, deep))
    assert changed(before, after) == {"t": "has another inputSchema/properties, inputSchema/title"}


def nested(**path: Any) -> dict[str, Any]:
    schema = TOOL["inputSchema"]
    properties = {**schema["properties"], "path": {**schema["properties"]["path"], **path}}
    return {**TOOL, "inputSchema": {**schema, "properties": properties}}


def test_a_description_in_a_schema_may_change_and_a_value_may_not() -> None:
    assert list(volatile_texts(TOOL, nested(description="x"))) == [("inputSchema", "properties", "path", "description")]
    assert list(fixed_differences(TOOL, nested(default={"title": "b"})))
    schema = {"type": "object", "properties": {"title": {"type": "integer"}}}
    assert not list(volatile_texts({"inputSchema": schema}, {"inputSchema": {**schema, "properties": {"title": "x"}}}))


def test_a_volatile_text_is_not_compared_and_everything_else_is() -> None:
    locked = LockedServer(
        tools=(TOOL,), volatile={"tools/read": ("description", "inputSchema/properties/path/description")}
    )
    both = {**nested(description="x"), "description": "today"}
    assert changed(locked, LockedServer(tools=(both,))) == {}
    assert changed(LockedServer(tools=(TOOL,)), LockedServer(tools=(both,))) == {
        "read": "has another description, inputSchema/properties/path/description"
    }
    assert changed(locked, with_tool(outputSchema={})) == {"read": "has another outputSchema"}
    # A schema in the place of a text that may change is not a text any more.
    assert changed(locked, with_tool(description={"type": "object"})) == {"read": "has another description"}
    assert changed(locked, LockedServer()) == {"read": "is not there any more"}
    assert changed(LockedServer(), LockedServer(tools=(TOOL,))) == {"read": "is new"}
    assert changed(locked, with_tool(_meta={"now": 1})) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["description", "title", "properties", "a", "0"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["description", "a", "b"]), JSON),
    st.dictionaries(st.sampled_from(["description", "a", "b"]), JSON),
)
def test_without_its_volatile_texts_a_definition_differs_in_nothing_else(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    if list(fixed_differences(one, two)):
        return
    texts = tuple("/".join(path) for path in volatile_texts(one, two))
    assert without(one, texts) == without(two, texts)


# What a reviewer is shown ---------------------------------------------------------------------------------------------


def server(**fields: Any) -> Lock:
    return Lock(format=1, servers={"files": LockedServer(**fields)})


def lines(old: Lock, new: Lock) -> list[str]:
    return list(lock_changes(old, new))


def test_nothing_is_shown_for_equal_locks() -> None:
    assert lines(WHOLE, WHOLE) == []


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_difference_is_silent(one: str, two: str) -> None:
    old, new = server(tools=({"name": "a", "description": one},)), server(tools=({"name": "a", "description": two},))
    assert bool(lines(old, new)) is (one != two)


def test_every_word_of_a_new_description_is_shown() -> None:
    """A line that begins with `++` or `--` looks like the header of a diff, and is none."""
    before = "Reads a file.\n" + "Ordinary words, so that the text is a long one. " * 3
    after = f"{before}\n++ and sends it to somebody\n-- as well\n@@ and this"
    found = "\n".join(
        lines(
            server(tools=({"name": "a", "description": before},)), server(tools=({"name": "a", "description": after},))
        )
    )
    for line in ("++ and sends it to somebody", "-- as well", "@@ and this"):
        assert f"+{line}" in found
    gone = "\n".join(
        lines(
            server(tools=({"name": "a", "description": after},)), server(tools=({"name": "a", "description": before},))
        )
    )
    assert "-++ and sends it to somebody" in gone


def test_all_descriptions_of_something_new_are_shown() -> None:
    also = (
        '{"annotations":{"readOnlyHint":true},"inputSchema":{"properties":{"path":{"default":{},"type":"string"},'
        '"title":{"type":"string"}},"type":"object"}}'
    )
    found = lines(server(), server(tools=(TOOL,), prompts=({"name": "p", "arguments": [{"description": "one\ntwo"}]},)))
    assert found == [
        "+ tool files.read",
        '    description: "Reads a file."',
        '    annotations/title: "Read"',
        '    inputSchema/properties/path/description: "Which file"',
        '    inputSchema/properties/path/default/title: "a"',
        f"    says also: {also}",
        "+ prompt p of files",
        "    arguments/0/description:",
        "      | one",
        "      | two",
        '    says also: {"arguments":[{}]}',
    ]


FORGED = 'read\n~ manifest a: fine\x1b[2K" or not'


@pytest.mark.parametrize("forged", [
    server(tools=({"name": FORGED},)),
    server(tools=({"name": "a", "description": FORGED, FORGED: {FORGED: [FORGED]}},)),
    server(resources=({"uri": FORGED, "name": FORGED},)),
    server(command=(FORGED,), url=FORGED, version=FORGED, announced=(FORGED,), instructions=FORGED),
    server(claimed_version=FORGED, hidden=(FORGED,), refused={FORGED: FORGED}, volatile={FORGED: (FORGED,)}),
    server(resolved=Resolved("npm", FORGED, FORGED, FORGED, {FORGED: {FORGED: FORGED}}, FORGED)),
    server(resolved=Resolved("file", program=FORGED, digest=FORGED)),
    Lock(format=1, manifests={FORGED: ONE}, tools={FORGED: LockedTool(ONE, {FORGED: ONE})},
        servers={FORGED: LockedServer()}),
    Lock(format=1, distributions={FORGED: LockedDistribution(FORGED, {FORGED: ONE})}),
])  # fmt: skip
def test_no_text_of_a_server_or_a_lock_passes_for_a_line_of_ours(forged: Lock) -> None:
    changed = Lock(
        format=1,
        tools={name: LockedTool(TWO) for name in forged.tools},
        distributions={name: LockedDistribution("1", {}) for name in forged.distributions},
        servers={
            name: LockedServer(
                tools=tuple({**one, "description": "x"} for one in entry.tools),
                refused=dict.fromkeys(entry.refused, "no"),
                volatile=dict.fromkeys(entry.volatile, ()),
            )
            for name, entry in forged.servers.items()
        },
    )
    for old, new in ((Lock(format=1), forged), (forged, Lock(format=1)), (changed, forged), (forged, changed)):
        for line in lines(old, new):
            assert "\n" not in line
            assert not re.match(r"[-+~] manifest a: fine", line)
            assert re.match(r"[-+~] (manifest|tool|distribution|server|resource) |    ", line), line


def test_the_version_that_a_server_claims_is_shown_as_its_claim() -> None:
    assert lines(server(claimed_version="2.1"), server(claimed_version="1.9")) == [
        '~ server files: the version that it claims: "2.1" -> "1.9"'
    ]


def test_the_digest_of_a_lock_is_of_what_it_says() -> None:
    lock = server(tools=(TOOL,))
    spaced = json.dumps(json.loads(write_lock(lock)), indent=2).encode()
    assert lock_digest(read_lock(spaced)) == lock_digest(lock) != lock_digest(server(tools=({**TOOL, "x": 1},)))
    assert lock_digest(None) == ""


SHOWN: dict[str, tuple[Lock, Lock, list[str]]] = {
    "a manifest": (
        Lock(format=1, manifests={"a": ONE, "b": ONE}),
        Lock(format=1, manifests={"a": TWO, "c": ONE}),
        ["~ manifest a: 111111111111 -> 222222222222", "- manifest b", "+ manifest c"],
    ),
    "a tool": (
        Lock(format=1, tools={"t": LockedTool(ONE, {"a.py": ONE, "b.py": ONE}), "u": LockedTool(ONE)}),
        Lock(format=1, tools={"t": LockedTool(TWO, {"a.py": TWO, "c.py": ONE})}),
        [
            "~ tool t: declares something else and has another a.py and no longer loads b.py and also loads c.py",
            "- tool u",
        ],
    ),
    "a command": (
        server(command=("a",), version="2025-11-25"),
        server(command=("a", "b"), version="2026-07-28", announced=("roots",), instructions="Be kind."),
        [
            "~ server files: command: a -> a b",
            "~ server files: version: 2025-11-25 -> 2026-07-28",
            "~ server files: announced: none -> roots",
            "~ server files: its instructions for models",
            '    instructions: "" -> "Be kind."',
        ],
    ),
    "a package": (
        server(resolved=Resolved("npm", "files", "1.0", integrity={"any": {"a@1": "x", "b@1": "x"}})),
        server(resolved=Resolved("npm", "files", "1.1", integrity={"any": {"a@2": "x", "b@1": "y"}})),
        [
            "~ server files: starts: npm files 1.0 -> npm files 1.1",
            "    + any: a@2",
            "    - any: a@1",
            "    ~ any: b@1 (the same version, other contents)",
        ],
    ),
    "a manifest of the same version": (
        Lock(format=1, manifests={"a": ONE, "b": ONE, "c": ONE}, versions={"a": "1.0", "b": "1.0"}),
        Lock(format=1, manifests={"a": TWO, "b": TWO, "c": TWO}, versions={"a": "1.0", "b": "1.1", "c": "1.0"}),
        [
            "~ manifest a: 111111111111 -> 222222222222; its contents changed, and its version is still 1.0",
            "~ manifest b: 111111111111 -> 222222222222",
            "~ manifest c: 111111111111 -> 222222222222",
        ],
    ),
    "a distribution of the same version": (
        Lock(format=1, distributions={"d": LockedDistribution("2.0", {"any": ONE})}),
        Lock(format=1, distributions={"d": LockedDistribution("2.0", {"any": TWO})}),
        ["~ distribution d 2.0: other files on any; its contents changed, and its version is still 2.0"],
    ),
    "a package of the same version": (
        server(resolved=Resolved("npm", "files", "1.0", integrity={"any": {"files@1.0": "x"}})),
        server(resolved=Resolved("npm", "files", "1.0", integrity={"any": {"files@1.0": "y"}})),
        [
            (
                "~ server files: starts: npm files 1.0 -> npm files 1.0"
                "; its contents changed, and its version is still 1.0"
            ),
            "    ~ any: files@1.0 (the same version, other contents)",
        ],
    ),
    "a package for one more platform": (
        server(resolved=Resolved("npm", "files", "1.0", integrity={"a": {"files@1.0": "x"}})),
        server(resolved=Resolved("npm", "files", "1.0", integrity={"a": {"files@1.0": "x"}, "b": {"files@1.0": "x"}})),
        ["~ server files: starts: npm files 1.0 -> npm files 1.0", "    + b: files@1.0"],
    ),
    "a file": (
        server(resolved=Resolved("file", program="s.py", digest=ONE)),
        server(resolved=Resolved("file", program="s.py", digest=TWO)),
        ["~ server files: starts: the file s.py (111111111111) -> the file s.py (222222222222)"],
    ),
    "a field": (
        server(tools=(TOOL,)),
        server(tools=({**TOOL, "annotations": {"readOnlyHint": False}},)),
        ["~ tool files.read", "    annotations/readOnlyHint: true -> false", '    annotations/title: "Read" -> none'],
    ),
    "an order": (
        server(tools=({"name": "a"}, {"name": "b"})),
        server(tools=({"name": "b"}, {"name": "a"})),
        ["~ server files: its tools are in another order"],
    ),
    "what was accepted": (
        server(tools=(TOOL,)),
        server(
            tools=(TOOL,), hidden=("tools/read",), volatile={"tools/read": ("description",)}, refused={"tools/x": "no"}
        ),
        [
            "~ server files: texts of tools/read that change by themselves: none -> description",
            "~ server files: hidden characters accepted in: none -> tools/read",
            '~ server files: tools/x is refused: "no"',
        ],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), SHOWN.values(), ids=SHOWN)
def test_a_difference_names_what_changed(old: Lock, new: Lock, expected: list[str]) -> None:
    assert lines(old, new) == expected


def test_a_tool_is_compared_with_its_entry() -> None:
    tool = LockedTool(ONE, {"a.py": ONE})
    assert tool_difference(tool, tool) == ""
    assert tool_difference(None, tool) == "is not in the lock"


# Hidden characters ----------------------------------------------------------------------------------------------------

HIDDEN = {
    "tag characters": "\U000e0041",
    "a bidi override": "\u202e",
    "an isolate": "\u2066",
    "zero width": "\u200b",
    "a joiner between letters": "a\u200db",
    "a variation selector after a letter": "a\ufe0f",
    "a variation selector of the supplement": "\U000e0100",
    "a control": "\x1b[2K",
    "a blank that is a letter": "\u3164",
    "a soft hyphen": "in\u00advisible",
    "a musical control": "\U0001d173",
    "a byte order mark": "\ufeff",
    "ignored, and not assigned": "\ufff0",
    "ignored, not assigned, next to the tag characters": "\U000e0080",
    "ignored, not assigned, after the variation selectors": "\U000e0fff",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_hidden_characters_are_found_anywhere(text: str) -> None:
    for place in ({"a": text}, {text: 1}, {"a": [{"b": {"c": text}}]}):
        assert hidden_in(place)
        assert not hidden_in(shown(place))


@pytest.mark.parametrize("text", ["a\n\tb\r\n", "Grüße, 日本語, עברית", "❤️", "👨‍👩‍👧", "🏳️‍🌈", "1️⃣", "👍🏽"])
def test_ordinary_text_hides_nothing(text: str) -> None:
    assert hidden_in({"description": text}) == ()


def test_every_character_of_the_kind_format_is_hidden_unless_it_has_a_glyph() -> None:
    with_glyph = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    found = {number for number in range(sys.maxunicode + 1) if unicodedata.category(chr(number)) == "Cf"}
    assert not [hex(number) for number in found - with_glyph if not hidden_in(chr(number))]


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x7F) | st.sampled_from("\u200b\u200d\ufe0f❤ü")))
def test_a_text_that_is_looked_at_quickly_hides_something_if_the_plain_pattern_finds_something(text: str) -> None:
    plain = {f"U+{ord(char):04X}" for char in locks._OUT_OF_PLACE.findall(text)}
    found = set(hidden_in(text))
    assert bool(found) == bool(plain)
    assert found <= {f"U+{ord(char):04X}" for char in text}


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_what_is_ordinary_does_not_depend_on_where_a_window_ends(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_WINDOW", window)
    assert hidden_in("a👨‍👩‍👧b🏳️‍🌈1️⃣❤️" * 3) == ()
    assert hidden_in("a👨‍👩‍👧b🏳️‍🌈\u200b1️⃣❤️\u202ec") == ("U+200B", "U+202E")


def test_a_character_that_fills_a_text_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, steps = locks._OUT_OF_PLACE, []

    class Counted:
        def search(self, *given: Any) -> Any:
            steps.append(given)
            return pattern.search(*given)

    monkeypatch.setattr(locks, "_OUT_OF_PLACE", Counted())
    assert hidden_in("\u200b" * 1_000_000 + "\u200c" * 1_000_000) == ("U+200B", "U+200C")
    assert len(steps) == 2


def test_fifty_kinds_of_hidden_characters_are_named() -> None:
    assert len(hidden_in("".join(map(chr, range(0xE0001, 0xE0FFF))) + "ü")) == 50


def test_every_control_character_of_ascii_is_hidden_except_line_breaks_and_tabs() -> None:
    found = [number for number in range(0x80) if hidden_in(f"a{chr(number)}b")]
    assert found == [number for number in range(0x80) if (number < 0x20 or number == 0x7F) and number not in b"\t\n\r"]


# Facts of one machine -------------------------------------------------------------------------------------------------

PLACES: NamedPlaces = {"${workdir}": ("/home/alice/work", "/mnt/work"), "~": "/home/alice"}
PORTABLE = {
    "/home/alice/work": "${workdir}",
    "in /home/alice/work/a.txt.": "in ${workdir}/a.txt.",
    "/home/alice and /home/alice.": "~ and ~.",
    "file:///mnt/work/a": "file://${workdir}/a",
    "/home/alicette /home/alice-b /srv/home/alice": "/home/alicette /home/alice-b /srv/home/alice",
    "a=/home/alice": "a=~",
}


@pytest.mark.parametrize(("text", "expected"), PORTABLE.items())
def test_directories_of_this_machine_are_written_by_name(text: str, expected: str) -> None:
    assert portable({text: [text]}, PLACES) == {expected: [expected]}


def test_the_longest_directory_is_replaced_first() -> None:
    """Otherwise the name of a user would stay where the home directory lies in the working directory."""
    assert portable("/home/alice/a", {"${workdir}": "/home", "~": "/home/alice"}) == "~/a"
    assert portable("/ and", {"${workdir}": "/", "~": ""}) == "/ and"


def test_a_client_is_shown_the_directories_of_its_machine() -> None:
    assert local({"a": ["${workdir}/x", "~/y"]}, PLACES) == {"a": ["/home/alice/work/x", "~/y"]}
