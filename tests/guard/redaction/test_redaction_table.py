"""The rows of the table in `docs/handles.md`: a form is redacted exactly if its row says so."""

import base64
import binascii
import codecs
import gzip
import html
import io
import json
import quopri
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import pytest

from licet.guard.redaction.redact import Redactor

SECRET = 'Tr0ub4dor&3 it\'s "q"/x=Z'
LABEL = "[redacted KEY]"
PAGE = Path(__file__).parents[3] / "docs" / "handles.md"

Shown = str | bytes


class Row(NamedTuple):
    """A form that a value can take, as a function of the value."""

    name: str
    show: Callable[[str], Shown]
    caught: bool = True


def lines(text: str, columns: int, end: str = "\n") -> str:
    return end.join(text[start : start + columns] for start in range(0, len(text), columns))


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def b32(text: str) -> str:
    return base64.b32encode(text.encode()).decode()


def quote_all(text: str) -> str:
    return quote(text, safe="")


def times(number: int, text: str, show: Callable[[str], str]) -> str:
    for _ in range(number):
        text = show(text)
    return text


def each(pattern: str) -> Callable[[str], str]:
    return lambda text: "".join(pattern.format(byte) for byte in text.encode())


def dumped(offset: str, show: Callable[[bytes], str], gutter: str = "", width: int = 0) -> Callable[[str], str]:
    """A hex dump of some bytes and then the value, sixteen bytes in a line."""

    def dump(text: str) -> str:
        raw = b"13 bytes here" + text.encode()
        said = []
        for at in range(0, len(raw), 16):
            part = raw[at : at + 16]
            plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
            said.append(f"{offset.format(at)}{show(part):{width}}{gutter.format(plain)}".rstrip())
        return "\n".join(said)

    return dump


def words(size: int, pattern: str) -> Callable[[bytes], str]:
    def show(part: bytes) -> str:
        pieces = (part[at : at + size] for at in range(0, len(part), size))
        return " ".join(pattern.format(int.from_bytes(piece, "little")) for piece in pieces)

    return show


def characters(part: bytes) -> str:
    return "".join(f"{chr(byte):>4}" for byte in part)


def quoted_printable(text: str) -> str:
    return quopri.encodestring(("x" * 60 + text).encode(), quotetabs=True).decode()


ROWS = [
    Row("as it is", str),
    Row("in upper, lower or mixed case", str.swapcase),
    Row("without the white space around it, with other ends of lines", lambda text: f" {text}\r\n"),
    Row("with white space in it, such as broken into lines (8 characters or more)", lambda text: lines(text, 5)),
    Row("a number in JSON, if the value is a number", lambda _: json.dumps({"pin": 12345678})),
    Row("hex", lambda text: text.encode().hex()),
    Row("hex in upper case, with `:`, `-`, `,` or white space between", lambda text: text.encode().hex(":").upper()),
    Row("hex as in C and Python (`0x54, 0x72`, `\\x54\\x72`)", each("0x{:02x}, ")),
    Row("hex in lines (`xxd -p`)", lambda text: lines(text.encode().hex(), 20)),
    Row("base64, standard or for URLs, with or without padding", lambda text: b64(text).rstrip("=")),
    Row("base64 of something that contains it", lambda text: b64(f"user:{text}:x")),
    Row("base64 in lines", lambda text: lines(b64(text), 20, "\r\n")),
    Row("base64 of UTF-16", lambda text: base64.b64encode(text.encode("utf-16-le")).decode()),
    Row("base32 in any case, with or without padding, in lines", lambda text: lines(b32(text).lower(), 16)),
    Row("base32 of something that contains it", lambda text: b32(f"user:{text}:x")),
    Row("decimal numbers of its bytes", lambda text: str(list(text.encode()))),
    Row("octal numbers of its bytes (`od -An -b`)", each("{:03o} ")),
    Row("percent", quote_all),
    Row("percent, in part, in lower case, of every byte", each("%{:02x}")),
    Row("percent, up to three times", lambda text: times(3, text, quote_all)),
    Row("form", quote_plus),
    Row("JSON, up to three times (that of a result is one of them)", lambda text: times(3, text, json.dumps)),
    Row("JSON, every character (`\\u0054`)", each("\\u{:04x}")),
    Row("`repr` of text and bytes", lambda text: repr(text.encode())),
    Row("escapes of C and of shells (`\\124`, `\\x54`, `$'…'`)", each("\\{:03o}")),
    Row("HTML by names", html.escape),
    Row("HTML by numbers, decimal or hex", each("&#{:d};")),
    Row("HTML by numbers without semicolons", each("&#{:d}")),
    Row("CSV and SQL, quotes doubled", lambda text: text.replace('"', '""')),
    Row("quoted-printable with soft breaks", quoted_printable),
    Row("shell, in single quotes (`'\\''`, `'\"'\"'`)", shlex.quote),
    Row("shell, in double quotes", lambda text: '"' + text.replace('"', '\\"').replace("$", "\\$") + '"'),
    Row("shell, by backslashes", lambda text: re.sub(r"(\W)", r"\\\1", text)),
    Row("UTF-16 and UTF-32, either end first", lambda text: text.encode("utf-16-be")),
    Row("`xxd`", dumped("{:08x}: ", lambda part: part.hex(" ", 2), "  {}", 39)),
    Row("`xxd -e`, `od -tx4`", dumped("{:08x}: ", words(4, "{:08x}"), "  {}", 35)),
    Row("`hexdump -C`", dumped("{:08x}  ", lambda part: part.hex(" "), "  |{}|", 48)),
    Row("`hexdump`, `od -x`", dumped("{:07x} ", words(2, "{:04x}"))),
    Row("`od`", dumped("{:07o} ", words(2, "{:06o}"))),
    Row("`od -c`", dumped("{:07o}", characters)),
    Row("`od -tx1`, also with `z`", dumped("{:07o} ", lambda part: part.hex(" "), "  >{}<")),
    Row("escapes five times or more", lambda text: times(5, text, quote_all), caught=False),
    Row("base64 twice", lambda text: b64(b64(text)), caught=False),
    Row("part of it", lambda text: text[:-4], caught=False),
    Row("split by other text", lambda text: ".".join(text), caught=False),
    Row("backwards", lambda text: text[::-1], caught=False),
    Row("ROT13 and other ciphers", lambda text: codecs.encode(text, "rot13"), caught=False),
    Row("compressed", lambda text: gzip.compress(text.encode(), mtime=0), caught=False),
    Row("a hash of it", lambda text: f"{hash_of(text)}", caught=False),
    Row("base32hex, base85, base58, uuencode", lambda text: base64.b85encode(text.encode()).decode(), caught=False),
    Row("binary digits (`xxd -b`)", each("{:08b} "), caught=False),
    Row("words of eight bytes (`od -tx8`)", dumped("{:07o} ", words(8, "{:016x}")), caught=False),
    Row("letters that only look the same", lambda text: text.translate({ord("o"): "\u043e"}), caught=False),
    Row("any encoding of a value that is shorter than 4 characters", lambda _: b64("abc"), caught=False),
]
BY_NAME = {row.name: row for row in ROWS}


def hash_of(text: str) -> str:
    return f"{binascii.crc32(text.encode()):08x}"


def clean(shown: Shown) -> str:
    made = Redactor()
    made.add("KEY", SECRET)
    made.add("PIN", "12345678")
    made.add("SHORT", "abc")
    if isinstance(shown, bytes):
        return made.octets(b"<\n" + shown + b"\n>").replace(b"\0", b"").decode("latin-1")
    return made.text(f"<\n{shown}\n>").replace("[redacted PIN]", LABEL)


def given(shown: Shown) -> str:
    text = shown.replace(b"\0", b"").decode("latin-1") if isinstance(shown, bytes) else shown
    return f"<\n{text}\n>"


@pytest.mark.parametrize("name", BY_NAME)
def test_each_form_is_redacted_exactly_if_the_table_says_so(name: str) -> None:
    row = BY_NAME[name]
    shown = row.show(SECRET)
    if not row.caught:
        assert clean(shown) == given(shown)
        return
    left = clean(shown).replace("x" * 60, "")
    assert LABEL in left
    # What is left is what was around it: a line of a dump, the encoding of a neighbour, an offset.
    assert len(left.replace(LABEL, "")) < 80, left
    for start in range(len(SECRET) - 6):
        assert SECRET[start : start + 6] not in left


@pytest.mark.parametrize("before", range(17))
@pytest.mark.parametrize(
    "command",
    [
        "xxd", "xxd -p", "xxd -u -c 8 -g 1", "xxd -i", "xxd -e", "od", "od -c", "od -x", "od -b", "od -tx1z",
        "od -An -tx1", "od -Ax -tx4", "hexdump", "hexdump -C", "base64 -w 20", "base32 -w 20",
    ],
)  # fmt: skip
def test_the_output_of_dump_programs_is_redacted_at_every_alignment(command: str, before: int) -> None:
    name, *options = command.split()
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} here")
    value = "hunter2-Xk9qTz7wLm4-hunter3"
    ran = subprocess.run(
        [program, *options], input=b"." * before + value.encode() + b"...", capture_output=True, check=True
    )
    made = Redactor()
    made.add("KEY", value)
    said = made.octets(ran.stdout)
    assert LABEL.encode() in said
    # Beside the label: at most the lines before the first and behind the last line, and words that it has a byte of.
    assert len(said) <= len(LABEL) + 2 * 80
    assert value.encode()[3:9] not in said.replace(b" ", b"").replace(b"\n", b"")
    assert value.encode()[3:9].hex().encode() not in re.sub(rb"[\s:,]|0x", b"", said.lower())


@pytest.mark.parametrize("around", ["<b>{}</b>", "a|{}|", "|{}|", "=> {}", "é>{}<", "abcdefg>{}<", "<a>b</a>|{}>"])
@pytest.mark.parametrize("command", ["od -c", "od -a", "hexdump -c", "hexdump -C", "od -tx1z", "xxd"])
def test_a_dump_of_characters_with_bars_or_brackets_is_redacted(command: str, around: str) -> None:
    name, *options = command.split()
    if (program := shutil.which(name)) is None:
        pytest.skip(f"no {name} here")
    made = Redactor()
    made.add("KEY", "Tr0ub4dor-3xK9")
    for value in ("Tr0ub4dor-3xK9", "Tr0ub4dor-3xK9 and more"):
        sent = around.format(value).encode()
        out = subprocess.run([program, *options], input=sent, capture_output=True, check=True).stdout.decode("latin-1")
        for said in (made.text(out), in_json(made, {"stdout": out})["stdout"]):
            assert LABEL in said
            assert "u b 4 d" not in " ".join(said.split())
            assert "75 62 34 64" not in said


SIZES = (8, 20, 33, 77, 200)
NOT_IN_JSON = {  # a form of a number, one that counts the JSON around it, and one for short values
    "a number in JSON, if the value is a number",
    "JSON, up to three times (that of a result is one of them)",
}
LEAST = {"`xxd -e`, `od -tx4`": 20}  # four-byte words are searched from 11 bytes on


def value_of(size: int) -> str:
    signs = random.Random(size)
    return "".join(signs.choice("abcXYZ0189-_/=&%\"'") for _ in range(size))


def in_json(made: Redactor, data: object) -> Any:
    return json.loads(made.json(json.dumps(data).encode()))


@pytest.mark.parametrize("prefix", ["", "body: "])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [row.name for row in ROWS if row.caught and row.name not in NOT_IN_JSON])
def test_each_form_is_redacted_in_a_json_string_and_nothing_around_it(name: str, size: int, prefix: str) -> None:
    if size < LEAST.get(name, 0):
        pytest.skip("too short for this form")
    value, made = value_of(size), Redactor()
    made.add("KEY", value)
    shown = BY_NAME[name].show(value)
    text = prefix + (shown.decode("latin-1") if isinstance(shown, bytes) else shown)
    data = {"before": ["x"], "stdout": text, "exit_code": 0, "nested": json.dumps({"out": text, "rc": 1}), "after": "y"}
    told = in_json(made, data)
    assert told.keys() == data.keys()
    assert (told["before"], told["exit_code"], told["after"]) == (["x"], 0, "y")
    inner = json.loads(told["nested"])
    assert (inner.keys(), inner["rc"]) == ({"out", "rc"}, 1)
    for left in (told["stdout"].replace("\0", ""), inner["out"].replace("\0", "")):
        assert LABEL in left
        assert left.startswith(prefix)
        assert len(left.replace(LABEL, "").replace("x" * 60, "")) < 130, left
        assert not any(value[at : at + 6] in left for at in range(size - 5))


DUMPS = [
    *("xxd", "xxd -e", "xxd -g 1", "xxd -c 8", "hexdump", "hexdump -C", "hexdump -b", "hexdump -c", "hexdump -d"),
    *("hexdump -o", "hexdump -x", "od", "od -a", "od -b", "od -c", "od -d", "od -i", "od -o", "od -s", "od -x"),
    *("od -A x -t x1z", "od -A d -t x1", "od -t x2", "od -t x4", "od -t o1", "od -t u1", "od -t d2"),
]


@pytest.mark.parametrize("size", [20, 64, 200])
@pytest.mark.parametrize("command", DUMPS)
def test_a_dump_is_redacted_in_any_json_string(command: str, size: int) -> None:
    name, *options = command.split()
    if (program := shutil.which(name)) is None:
        pytest.skip(f"no {name} here")
    value = value_of(size)
    made = Redactor()
    made.add("KEY", value)
    for before in (b"", b".....", b"\n\n"):
        sent = before + value.encode() + b"..."
        out = subprocess.run([program, *options], input=sent, capture_output=True, check=True).stdout.decode()
        for said in (out, f"body: {out}", out.rstrip("\n")):
            nested = json.dumps({"stdout": said, "rc": 0})
            told = in_json(made, {"stdout": said, "code": 0, "list": [said, "end"], "nested": nested})
            assert (told.keys(), told["code"], told["list"][1]) == ({"stdout", "code", "list", "nested"}, 0, "end")
            inner = json.loads(told["nested"])
            assert (inner.keys(), inner["rc"]) == ({"stdout", "rc"}, 0)
            for left in (told["stdout"], told["list"][0], inner["stdout"], made.text(said)):
                assert LABEL in left
                assert len(left.replace(LABEL, "")) < 180, left


@pytest.mark.parametrize("value", ['pa%41ss"word', "pa&amp;ss'\"word", 'a%5Cn"%2541-xyz', '100%25 "sure" \\n'])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_value_with_escapes_of_its_own_is_found_in_nested_json(value: str, levels: int) -> None:
    made = Redactor()
    made.add("KEY", value)
    text = times(levels, f"a {value} b", json.dumps)
    assert made.json(text.encode()).decode() == times(levels, f"a {LABEL} b", json.dumps)


def test_docs_redaction_has_this_table() -> None:
    table = io.StringIO()
    table.write("| form of the value | caught |\n|---|---|\n")
    for row in ROWS:
        table.write(f"| {row.name} | {'yes' if row.caught else 'no'} |\n")
    assert table.getvalue() in PAGE.read_text(encoding="utf-8")
