"""Policy files are read strictly, with positions, and every problem comes in one run."""

import json
import re
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from effort import LONG
from licet.policy_files import nodes
from licet.policy_files.limits import MOST_VALUES
from licet.policy_files.nodes import Mapping, Node, Scalar, Sequence, read_nodes
from policy_files.messages import message

HAS_LIBYAML = hasattr(yaml, "CBaseLoader")


@pytest.fixture(params=["libyaml", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers that PyYAML can come with, on one machine."""
    if request.param == "libyaml" and not HAS_LIBYAML:
        pytest.skip("PyYAML was built without libyaml")
    if request.param == "pure":
        monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    return str(request.param)


def plain(node: Node | None) -> Any:
    match node:
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(entry.node) for key, entry in node.entries.items()}
        case Scalar():
            return node.value
        case None:
            raise AssertionError("nothing was read")


def read(text: str | bytes, file: str = "f.yaml") -> Any:
    root, problems = read_nodes(text if isinstance(text, bytes) else text.encode(), file)
    assert problems == ()
    return plain(root)


def problem_texts(text: str | bytes, file: str = "f.yaml") -> list[str]:
    _, problems = read_nodes(text if isinstance(text, bytes) else text.encode(), file)
    return [str(problem).removeprefix(f"{file}:").replace(": error:", "", 1) for problem in problems]


SCALARS = [
    ("", None),
    ("~", None),
    ("null", None),
    ("NULL", None),
    ("nULL", "nULL"),
    ("true", True),
    ("False", False),
    ("tRue", "tRue"),
    *((word, word) for word in ("yes", "no", "on", "off", "y", "N", "NO", "=", "none")),
    ("0", 0),
    ("-12", -12),
    ("+12", 12),
    ("0777", 777),
    ("0o777", 511),
    ("0xFf", 255),
    ("-0xFF", "-0xFF"),
    ("0b11", "0b11"),
    ("1_000", "1_000"),
    ("1,000", "1,000"),
    ("9007199254740991", 2**53 - 1),
    ("-9007199254740991", -(2**53 - 1)),
    ("5.00", Decimal("5.00")),
    (".5", Decimal("0.5")),
    ("1.", Decimal(1)),
    ("-1.5e3", Decimal(-1500)),
    ("1e3", Decimal(1000)),
    ("-0.0", Decimal(0)),
    ("0e999999", Decimal(0)),
    ("9e307", Decimal("9e307")),
    ("-1e-307", Decimal("-1e-307")),
    ("1e", "1e"),
    (".", "."),
    ("1.2.3", "1.2.3"),
    ("10.0.0.0/8", "10.0.0.0/8"),
    ("12:30:45", "12:30:45"),
    ("2024-01-01", "2024-01-01"),
    ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ("nan", "nan"),
    ("inf", "inf"),
    ("infinity", "infinity"),
    ("+.nan", "+.nan"),
    ("'true'", "true"),
    ('"12"', "12"),
    ("''", ""),
    ("'.nan'", ".nan"),
    ("|-\n  12", "12"),
    (">-\n  true\n  no", "true no"),
    ("two\n  lines", "two lines"),
    (r'"a\x41\u00e9\U0001F600\tb"', "aAé😀\tb"),
    ("é😀", "é😀"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_are_read_by_yaml_1_2(parser: str, text: str, value: object) -> None:
    [read_value] = read(f"- {text}\n")
    assert read_value == value
    assert type(read_value) is type(value)


def test_a_scalar_keeps_its_text_and_whether_it_was_quoted(parser: str) -> None:
    root, problems = read_nodes(b"- 007\n- '007'\n- |\n  x\n", "f.yaml")
    assert isinstance(root, Sequence)
    assert problems == ()
    assert [(node.text, node.quoted) for node in root.items if isinstance(node, Scalar)] == [
        ("007", False),
        ("007", True),
        ("x\n", True),
    ]


@pytest.mark.parametrize(
    "text", ["\ufeff# é 😀\n\na: 1\nb:\n  - x\n  - {c: y}\n", "# é 😀\r\n\r\na: 1\r\nb:\r\n  - x\r\n  - {c: y}\r\n"]
)
def test_every_node_and_key_has_its_line_and_column(parser: str, text: str) -> None:
    root, problems = read_nodes(text.encode(), "f.yaml")
    assert problems == ()
    assert isinstance(root, Mapping)
    assert root.origin.full == "f.yaml:3:1"
    assert [(key, entry.key_origin.full, entry.node.origin.full) for key, entry in root.entries.items()] == [
        ("a", "f.yaml:3:1", "f.yaml:3:4"),
        ("b", "f.yaml:4:1", "f.yaml:5:3"),
    ]
    listed = root.entries["b"].node
    assert isinstance(listed, Sequence)
    assert [item.origin.full for item in listed.items] == ["f.yaml:5:5", "f.yaml:6:5"]


def test_json_nodes_have_the_same_places_as_yaml_nodes(parser: str) -> None:
    text = b'{"\xc3\xa9": [1,\n  "x", {"a": null}],\n "b": true}'
    as_yaml, as_json = read_nodes(text, "same"), read_nodes(text, "same.json")
    assert repr(as_yaml) == repr(as_json).replace("same.json", "same")


def test_aliases_repeat_their_anchor(parser: str) -> None:
    inner = {"b": "c"}
    assert read("a: &x [1, &y {b: c}]\nd: *x\ne: *y\n") == {"a": [1, inner], "d": [1, inner], "e": inner}
    assert read("a: &x 1\nb: *x\n") == {"a": 1, "b": 1}


def test_a_replacement_character_that_the_author_wrote_stays() -> None:
    assert read("a: \ufffd") == {"a": "\ufffd"}


MEANT = "quote it if you mean the text"
UNTAGGED = "expected a value without a tag; quotes make a value text"
SEEN = "expected only characters that can be seen"
TEXT_KEY = "expected a key that is text"
SECOND = "found a second document, expected one document in a file; move what follows `---` to its own file"
ONE_LINE = "expected one `key: value` on a line; quote the text if the `:` belongs to it"

REFUSED: dict[str, tuple[str | bytes, list[str]]] = {
    "a key twice": (
        "a: 1\na: 2\n",
        ["2:1 found the key `a` a second time, expected each key once; it is first at f.yaml:1:1"],
    ),
    "a key twice, quoted": (
        "{a: 1, 'a': 2}",
        ["1:8 found the key `a` a second time, expected each key once; it is first at f.yaml:1:2"],
    ),
    "a key twice whose first value is refused": (
        "a: .nan\na: 2\n",
        [
            f"1:4 found `.nan`, expected a finite number; {MEANT}",
            "2:1 found the key `a` a second time, expected each key once; it is first at f.yaml:1:1",
        ],
    ),
    "a merge key": ("x: &x {b: 1}\n<<: *x\n", ["2:1 found the merge key `<<`, expected the keys written out"]),
    "a null key": ("~: 1", [f"1:1 found the key `~`, which is not text, {TEXT_KEY}; {MEANT}"]),
    "an absent key": ("? \n: 1", [f"1:2 found an empty key, {TEXT_KEY}"]),
    "an empty key": ("'': 1", [f"1:1 found an empty key, {TEXT_KEY}"]),
    "a boolean key": ("true: 1", [f"1:1 found the key `true`, which is not text, {TEXT_KEY}; {MEANT}"]),
    "a number key": ("12: 1", [f"1:1 found the key `12`, which is not text, {TEXT_KEY}; {MEANT}"]),
    "a list as a key": ("? [a]\n: 1", [f"1:3 found a list or mapping as a key, {TEXT_KEY}"]),
    "a mapping as a key": ("{a: 1}: 2", [f"1:1 found a list or mapping as a key, {TEXT_KEY}"]),
    "an alias as a key": ("a: &x b\n*x : c\n", ["2:1 found the alias `*x` as a key, expected the key itself"]),
    "the tag !": ("a: ! b", [f"1:4 found the tag `!`, {UNTAGGED}"]),
    "a tag on text": ("a: !!str 1", [f"1:4 found the tag `!!str`, {UNTAGGED}"]),
    "a tag on a list": ("a: !!set [b]", [f"1:4 found the tag `!!set`, {UNTAGGED}"]),
    "a tag on a key": ("!x a: 1", [f"1:1 found the tag `!x`, {UNTAGGED}"]),
    "a python tag": (
        "- !!python/object/apply:os.system ['true']",
        [f"1:3 found the tag `!!python/object/apply:os.system`, {UNTAGGED}"],
    ),
    "a binary tag": ("- !!binary aGk=", [f"1:3 found the tag `!!binary`, {UNTAGGED}"]),
    "a verbatim tag": ("- !<tag:x> a", [f"1:3 found the tag `tag:x`, {UNTAGGED}"]),
    "a YAML directive": (
        "# é\n%YAML 1.2\n---\na: 1",
        ["2:1 found a `%` directive, expected a file without directives; delete the line"],
    ),
    "a TAG directive": (
        "%TAG ! x:\n---\na: 1",
        ["1:1 found a `%` directive, expected a file without directives; delete the line"],
    ),
    "two documents": ("a: 1\n---\nb: 2\n", [f"2:1 {SECOND}"]),
    "a problem in the second document": (
        "a: 1\n---\nb: .inf\n",
        [
            f"2:1 {SECOND}",
            f"3:4 found `.inf`, expected a finite number; {MEANT}",
        ],
    ),
    "an alias of an earlier document": (
        "a: &x 1\n---\nb: *x\n",
        [
            f"2:1 {SECOND}",
            "3:4 found the alias `*x`, expected the anchor `&x` somewhere before it",
        ],
    ),
    "a recursive alias": (
        "a: &x [*x]",
        ["1:8 found the alias `*x`, expected an alias of something that is complete before it"],
    ),
    "an unknown alias": ("a: *x", ["1:4 found the alias `*x`, expected the anchor `&x` somewhere before it"]),
    "an anchor twice": ("a: &x 1\nb: &x 2\n", ["2:4 found the anchor `&x` a second time, expected each anchor once"]),
    "not a number": ("- .NaN", [f"1:3 found `.NaN`, expected a finite number; {MEANT}"]),
    "infinity": ("- -.inf", [f"1:3 found `-.inf`, expected a finite number; {MEANT}"]),
    "2**53": (
        "- 9007199254740992",
        [f"1:3 found `9007199254740992`, expected a whole number within 9007199254740991; {MEANT}"],
    ),
    "a large hexadecimal": (
        "- 0x20000000000000",
        [f"1:3 found `0x20000000000000`, expected a whole number within 9007199254740991; {MEANT}"],
    ),
    "a large fraction": ("- 1e308", [f"1:3 found `1e308`, expected a number that a double can hold; {MEANT}"]),
    "a tiny fraction": ("- 1e-999", [f"1:3 found `1e-999`, expected a number that a double can hold; {MEANT}"]),
    "an exponent beyond reason": (
        "- 1e99999999999999999999",
        [f"1:3 found `1e99999999999999999999`, expected a number that a double can hold; {MEANT}"],
    ),
    "an empty file": ("", ["1:1 found an empty file, expected keys and their values"]),
    "only comments": ("# nothing\n\n", ["1:1 found an empty file, expected keys and their values"]),
    "an empty document": ("---\n", ["1:1 found an empty file, expected keys and their values"]),
    "a byte that is not UTF-8": (
        "a: 1\né: ".encode() + b"\xff\n",
        ["2:4 found the byte 0xFF at offset 9, expected UTF-8; save the file as UTF-8"],
    ),
    "an encoded surrogate": (
        b"a: \xed\xa0\x80",
        ["1:4 found the byte 0xED at offset 3, expected UTF-8; save the file as UTF-8"],
    ),
    "NUL": ("a: b\0", [f"1:5 found U+0000, {SEEN}; delete it"]),
    "a control in a comment": ("# \x1b[2J\na: b", [f"1:3 found U+001B, {SEEN}; delete it"]),
    "DEL": ("a: b\x7f", [f"1:5 found U+007F, {SEEN}; delete it"]),
    "U+0085": ("a: b\x85c: d", [f"1:5 found U+0085, {SEEN}; delete it", f"1:7 found `:`, {ONE_LINE}"]),
    "U+2028 in a comment": ("# no\u2028a: b\nc: d", [f"1:5 found U+2028 (line separator), {SEEN}; delete it"]),
    "U+2029": ("a: 'b\u2029c'", [f"1:6 found U+2029 (paragraph separator), {SEEN}; delete it"]),
    "a lone carriage return": (
        "# a\rb: c\nd: e",
        ["1:4 found a carriage return alone, expected a line feed; editors show one line where YAML reads two"],
    ),
    "a byte order mark inside": (
        "a: 1\n\ufeffb: 2",
        [f"2:1 found U+FEFF (zero width no-break space), {SEEN}; delete it"],
    ),
    "bidi in a comment": ("a: b # \u202e x", [f"1:8 found U+202E (right-to-left override), {SEEN}; delete it"]),
    "zero width in a value": ("a: b\u200bc", [f"1:4 found U+200B (zero width space) in `b\\u200bc`, {SEEN}"]),
    **{
        f"U+{ord(char):04X}, which prints as nothing": (
            f"a: b{char}c",
            [f"1:4 found U+{ord(char):04X} ({unicodedata.name(char).lower()}) in `b\\u{ord(char):04x}c`, {SEEN}"],
        )
        for char in (
            "\u034f\u115f\u17b4\u180b\u2800\u2d7f\u3164\ufe00\ufe0f\uffa0\U0001107f\U00016fe4\U0001d159\U000e0100"
        )
    },
    "zero width in a key": ("a\u00ad: b", [f"1:1 found U+00AD (soft hyphen) in `a\\u00ad`, {SEEN}"]),
    "a hidden sentence in tag characters": (
        "a: b\U000e0041",
        [f"1:4 found U+E0041 (tag latin capital letter a) in `b\\ue0041`, {SEEN}"],
    ),
    "an escaped bidi control": (r'a: "\u2066"', [f"1:4 found U+2066 (left-to-right isolate) in `\\u2066`, {SEEN}"]),
    "an escaped NUL": (r'a: "\0"', [f"1:4 found U+0000 in `\\u0000`, {SEEN}"]),
    "an escaped line separator": (r'a: "\L"', [f"1:4 found U+2028 (line separator) in `\\u2028`, {SEEN}"]),
    "an escaped next line": (r'a: "\N"', [f"1:4 found U+0085 in `\\u0085`, {SEEN}"]),
    "many problems": (
        "a: .nan\nb: !!int 3\n1: {c: d, c: \u200b}\n# \u202e\n<<: x\n",
        [
            f"1:4 found `.nan`, expected a finite number; {MEANT}",
            f"2:4 found the tag `!!int`, {UNTAGGED}",
            f"3:1 found the key `1`, which is not text, {TEXT_KEY}; {MEANT}",
            "3:11 found the key `c` a second time, expected each key once; it is first at f.yaml:3:5",
            f"3:14 found U+200B (zero width space) in `\\u200b`, {SEEN}",
            f"4:3 found U+202E (right-to-left override), {SEEN}; delete it",
            "5:1 found the merge key `<<`, expected the keys written out",
        ],
    ),
    "a problem before a syntax error": (
        "a: .nan\nb: [1, 2\n",
        [
            f"1:4 found `.nan`, expected a finite number; {MEANT}",
            "3:1 found the end of the file, expected `,` or `]`; it opens at f.yaml:2:4",
        ],
    ),
    "two keys on a line": ("é: b: c", [f"1:5 found `:`, {ONE_LINE}"]),
    "an unclosed quote": (
        "a: 'x\nb: c\n",
        ["3:1 found the end of the file, expected a closing quote; it opens at f.yaml:1:4"],
    ),
    "an unclosed brace": ("{a: 1", ["1:6 found the end of the file, expected `,` or `}`; it opens at f.yaml:1:1"]),
    "a tab for indentation": ("a:\n\t- b", ["2:1 found a tab, expected a value; indent with spaces"]),
    "an at sign": ("a: @x", ["1:4 found `@`, expected a value; quote the text if it begins with this character"]),
    "a list beside its key": ("a: - b", ["1:4 found `-`, expected a list to start on its own line"]),
    "a tag of eighty characters": ("- !" + "a" * 79, [f"1:3 found the tag `!{'a' * 79}`, {UNTAGGED}"]),
    "a comma too many": ("[a,, b]", ["1:4 found `,`, expected a value"]),
    "two values": ("'a' b", ["1:5 found `b`, expected nothing more after the value"]),
    "an undeclared tag": ("a: !x!y b", ["1:4 found `!`, expected a value without a tag"]),
    "a bare star": (
        "- * a",
        ["1:4 found a space, expected a name of letters and digits; quote the text if it begins with `*` or `&`"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_text_is_refused_with_its_place(parser: str, name: str) -> None:
    text, problems = REFUSED[name]
    assert problem_texts(text) == problems


# The two parsers stop at slightly different places here; both must stop.
UNREADABLE = [
    r'a: "\q"',
    r'a: "\xg0"',
    r'a: "\ud800"',
    r'a: "\ud83d\ude00"',
    r'a: "\U00110000"',
    r'a: "\UFFFFFFFF"',
    "%FOO x\n---\na: 1",
    "%YAML 2.0\n---\na: 1",
    "- a\nb: c",
    "a:\n  - b\n c: d",
    "a: !<x",
    "a: !! b",
    "a: !b{c",
    "a: !\u00e9!b c",
    "a: >0\n b",
    "a: |x\n b",
    "'a\n---\nb'",
    "x: 'it's'",
    "]",
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_syntax_error_is_one_problem_in_plain_words(parser: str, text: str) -> None:
    [problem] = problem_texts(text)
    assert " found " in problem
    assert "valid YAML" not in problem
    assert not any(jargon in problem for jargon in ("token", "scalar", "node", "stream", "<block", "flow", "\n"))


@pytest.mark.parametrize("number", [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
def test_bidi_controls_are_refused_everywhere(number: int) -> None:
    for text in (f"# {chr(number)}\na: b", f"a: {chr(number)}", f'a: "\\u{number:04x}"', f"{chr(number)}: b"):
        assert f"U+{number:04X}" in problem_texts(text)[0]


@pytest.mark.parametrize("number", [0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF])
def test_invisible_characters_are_refused_in_keys_and_values(number: int) -> None:
    for text in (f"a: b{chr(number)}", f"'a{chr(number)}': b", f'a: "\\u{number:04x}"', f"a: |\n  b{chr(number)}\n"):
        assert f"U+{number:04X}" in problem_texts(text)[0]


def test_invisible_characters_are_allowed_in_comments() -> None:
    assert read("a: b # \u200b\u200d") == {"a": "b"}


def test_a_refused_part_is_left_out_and_the_rest_is_still_read() -> None:
    root, problems = read_nodes("a: 1\na: 2\nb: [x, .nan, z\u200b, y]\n? [k]\n: v\nc\u202e: d\n".encode(), "f.yaml")
    assert plain(root) == {"a": 1, "b": ["x", "y"]}
    assert len(problems) == 5


DEEP = {
    "brackets": b"[" * 500_000,
    "braces": b"{" * 500_000,
    "braces with keys": b"{a: " * 250_000,
    "dashes on a line": b"- " * 500_000,
    "questions": b"? " * 500_000,
    "dashes on lines": b"".join(b" " * depth + b"-\n" for depth in range(1_400)),
    "keys on lines": b"".join(b" " * depth + b"a:\n" for depth in range(1_400)),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_refused_early(parser: str, name: str) -> None:
    [problem] = problem_texts(DEEP[name])
    assert problem.endswith(message("yaml_nodes.nesting_deeper_than_expected_most"))


@pytest.mark.parametrize(("file", "text"), [("f.yaml", "{0}x{1}"), ("f.json", "{0}0{1}")])
def test_thirty_two_levels_are_allowed(file: str, text: str) -> None:
    read(text.format("[" * 32, "]" * 32), file)
    assert problem_texts(text.format("[" * 33, "]" * 33), file) == [
        message("yaml_nodes.nesting_deeper_than_expected_most_2")
    ]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{k: ", "}")])
def test_aliases_cannot_exceed_the_depth_limit(opening: str, closing: str) -> None:
    deep = f"a: &a {opening * 20}x{closing * 20}\n"
    assert read(f"{deep}b: {opening * 11}*a{closing * 11}\n")
    [problem] = problem_texts(f"{deep}b: {opening * 12}*a{closing * 12}\n")
    assert problem.endswith(message("yaml_nodes.alias_expected_most_levels_nesting"))


def test_an_alias_bomb_is_refused_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    [problem] = problem_texts("\n".join(lines))
    assert problem.endswith(message("yaml_nodes.alias_expected_most_values_repeated"))


def test_a_thousand_values_may_be_repeated_and_not_one_more() -> None:
    listed = f"a: &a [{', '.join('x' * 99)}]\n"
    assert len(read(listed + f"b: [{', '.join(['*a'] * 10)}]\n")["b"]) == 10
    assert len(problem_texts(listed + f"b: [{', '.join(['*a'] * 10)}]\nc: &c x\nd: *c\n")) == 1


def test_a_mebibyte_is_read_and_a_byte_more_is_not() -> None:
    assert read(b"a: b #" + b"x" * ((1 << 20) - 6)) == {"a": "b"}
    assert problem_texts(b"a: b #" + b"x" * ((1 << 20) - 5)) == [message("yaml_nodes.bytes_expected_most_mib")]


@pytest.mark.parametrize("text", [b"\0" * (1 << 20), b"a:\n" * 300_000, b"- .nan\n" * 100_000])
def test_reading_stops_after_a_thousand_problems(text: bytes) -> None:
    problems = problem_texts(text)
    assert len(problems) == 1001
    assert problems[-1].endswith(message("yaml_nodes.problems_before_expected_fewer_read"))


@pytest.mark.parametrize("text", ["9" * 1_000_000, "0" * 1_000_000, "1e" + "9" * 1_000_000, "0x" + "f" * 1_000_000])
def test_very_long_integers_are_refused_and_not_quoted(text: str) -> None:
    [problem] = problem_texts(text)
    assert problem.startswith(f"1:1 found `{text[:80]}…`, expected a ")


def test_a_number_may_have_many_decimals() -> None:
    assert read("1." + "9" * 1_000_000) < 2


JSON_VALUES = [
    ("0", 0),
    ("-0", 0),
    ("1.50", Decimal("1.50")),
    ("1E3", Decimal(1000)),
    ("true", True),
    ("null", None),
    ('"true"', "true"),
    ('""', ""),
    (r'"\"\\\/\n"', '"\\/\n'),
    (r'"\ud83d\ude00\u00e9"', "😀é"),
    ('\t{\t"a"\t:\r\n[\t]\t,"b":{\n}}\n', {"a": [], "b": {}}),
    ('{"1": 1, "true": 2, "<<": {"a": 1}}', {"1": 1, "true": 2, "<<": {"a": 1}}),
    ('{"' + "k" * 2000 + '": 1}', {"k" * 2000: 1}),
    ('\ufeff["a"]', ["a"]),
]


@pytest.mark.parametrize(("text", "value"), JSON_VALUES)
def test_all_of_json_is_read(text: str, value: object) -> None:
    assert read(text, "f.JSON") == value


JSON_REFUSED = {
    "": "1:1 found an empty file, expected keys and their values",
    " \n": "1:1 found an empty file, expected keys and their values",
    "[1,]": "1:4 found `]`, expected a JSON value",
    "[1 2]": "1:4 found `2`, expected `,` or `]`",
    "[1": "1:3 found the end of the file, expected `,` or `]`",
    "[": "1:2 found the end of the file, expected a JSON value",
    "{": '1:2 found the end of the file, expected a key in `"` quotes',
    '{"a": 1,}': '1:9 found `}`, expected a key in `"` quotes',
    '{"a" 1}': "1:6 found `1`, expected `:` after the key",
    '{"a": 1]': "1:8 found `]`, expected `,` or `}`",
    "{a: 1}": '1:2 found `a`, expected a key in `"` quotes',
    "{1: 1}": '1:2 found `1`, expected a key in `"` quotes',
    "[NaN]": '1:2 found `NaN`, expected a JSON value; put text in `"` quotes',
    "[Infinity]": '1:2 found `Infinity`, expected a JSON value; put text in `"` quotes',
    "[-Infinity]": "1:2 found `-Infinity`, expected a JSON value",
    "[01]": '1:2 found `01`, expected a JSON value; put text in `"` quotes',
    "[+1]": "1:2 found `+`, expected a JSON value",
    "[.5]": "1:2 found `.5`, expected a JSON value",
    "[True]": '1:2 found `True`, expected a JSON value; put text in `"` quotes',
    "['a']": "1:2 found `'`, expected a JSON value",
    '"a" // b': "1:5 found `/`, expected nothing more after the value",
    '# a\n"b"': "1:1 found `#`, expected a JSON value",
    '{"a": 1} {}': "1:10 found `{`, expected nothing more after the value",
    '["a': "1:4 found the end of the file, expected a closing quote; it opens at f.json:1:2",
    '["a\nb"]': "1:4 found the end of the line, expected a closing quote before it",
    r'["\q"]': r"1:3 found `\`, expected an escape that JSON knows",
    r'["\u12"]': "1:4 found `u12`, expected an escape that JSON knows",
    r'["\ud800"]': f"1:2 found U+D800 (half of a surrogate pair) in `\\ud800`, {SEEN}",
    r'["\u0000"]': f"1:2 found U+0000 in `\\u0000`, {SEEN}",
    '["\u202e"]': f"1:3 found U+202E (right-to-left override), {SEEN}; delete it",
    "[1e999]": f"1:2 found `1e999`, expected a number that a double can hold; {MEANT}",
    '{"a": 1,\n "a": 2}': "2:2 found the key `a` a second time, expected each key once; it is first at f.json:1:2",
    '{"": 1}': f"1:2 found an empty key, {TEXT_KEY}",
    "\u00a0[]": "1:1 found `\\u00a0`, expected a JSON value",
}


@pytest.mark.parametrize("text", JSON_REFUSED)
def test_text_that_is_yaml_but_not_json_is_refused_in_json(text: str) -> None:
    assert problem_texts(text, "f.json") == [JSON_REFUSED[text]]


# Properties ----------------------------------------------------------------------------------------------------------

unseen = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that print as nothing
readable = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"), exclude_characters=unseen), max_size=8
)
data = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | readable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(readable.filter(bool), inner, max_size=4),
    max_leaves=12,
)


@given(data, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_written_json_is_read_back(value: object, ascii_only: bool, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(text, "f.json") == value


@given(data.filter(lambda value: value is not None), st.booleans())
def test_written_yaml_is_read_back(value: object, flow: bool) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=flow)
    # YAML 1.1 leaves these without quotes; in 1.2 they are numbers.
    assume(not re.search(r"\b0o[0-7]+|[0-9]e[0-9]", text, re.IGNORECASE))
    assert read(text) == value


WORDS = [
    "a",
    "é",
    "~",
    "true",
    "0x",
    ".nan",
    "1e9",
    "d800",
    "\\",
    "\\u",
    "\t",
    "\r",
    "\0",
    "\u2028",
    "\u202e",
    "\ufeff",
]
MARKS = [
    "b: ",
    ": ",
    "- ",
    "? ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "!",
    "!!str ",
    "%",
    "#",
    "'",
    '"',
    "|\n",
    ">",
    "<<: ",
]
BREAKS = ["\n", "\n  ", "\n    ", " ", "---\n", "...\n"]
yamlish = st.lists(st.sampled_from([*WORDS, *MARKS, *BREAKS]), max_size=40).map("".join)
FILES = st.sampled_from(["f.yaml", "f.json"])


@given(
    st.binary(max_size=200)
    | yamlish.map(str.encode)
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    FILES,
)
@example(b"", "f.json")
@settings(deadline=None)
def test_any_bytes_give_a_value_or_problems(text: bytes, file: str) -> None:
    root, problems = read_nodes(text, file)
    assert root is not None or problems
    for problem in problems:
        assert 1 <= problem.origin.line <= text.count(b"\n") + 1
        assert 1 <= problem.origin.column <= len(text) + 1
        assert str(problem).isprintable()


@given(yamlish)
@settings(deadline=None)
def test_both_parsers_read_the_same(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fast, fast_problems = read_nodes(text.encode(), "f.yaml")
        patch.delattr(yaml, "CBaseLoader", raising=False)
        pure, pure_problems = read_nodes(text.encode(), "f.yaml")
    if not fast_problems and not pure_problems:
        assert plain(fast) == plain(pure)


JSON_MARKS = ["[", "]", "{", "}", ",", ":", '"', "\\", " ", "\n", "\t"]
JSON_WORDS = ['"a"', '"b"', "1", "-", "0", ".5", "e1", "true", "null", "NaN", "\\u", "d83d", "\\ude00"]
jsonish = st.lists(st.sampled_from([*JSON_MARKS, *JSON_WORDS]), max_size=20).map("".join)


@given(jsonish)
@settings(deadline=None)
def test_json_is_read_at_least_as_strictly_as_by_the_standard_library(text: str) -> None:
    root, problems = read_nodes(text.encode(), "f.json")
    if problems:
        return
    assert plain(root) == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(("file", "text"), [("a.yaml", "[{}]"), ("a.json", "[{}]")])
def test_a_file_has_a_limited_number_of_values(file: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes memory, however short it is: a file of a mebibyte could have half a million."""
    most = MOST_VALUES if LONG else 2_000
    monkeypatch.setattr(nodes, "MOST_VALUES", most)
    root, problems = read_nodes(text.format(",".join("1" * (most - 10))).encode(), file)
    assert isinstance(root, Sequence)
    assert problems == ()
    root, [problem] = read_nodes(text.format(",".join("1" * (most + 10))).encode(), file)
    assert root is None
    assert problem.found == f"more than {most} keys and values"
