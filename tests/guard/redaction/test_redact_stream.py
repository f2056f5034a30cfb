"""Redaction of streams: a secret is found wherever the pieces split it."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.guard.redaction.redact import BLOCK, Redactor

SECRET = "hunter2-x9Yq+Ab3/zz=="
LABEL = b"[redacted KEY]"
PEM = "-----BEGIN KEY-----\n" + "\n".join(f"{number:064x}" for number in range(20, 60)) + "\n-----END KEY-----\n"


def dump(raw: bytes) -> bytes:
    lines = (
        f"{at:08x}: {raw[at : at + 16].hex(' ', 2):39}  {raw[at : at + 16].decode('latin-1')}"
        for at in range(0, len(raw), 16)
    )
    return "\n".join(lines).encode() + b"\n"


FORMS: dict[str, bytes] = {
    "plain": SECRET.encode(),
    "base64": base64.b64encode(SECRET.encode()),
    "base64 in lines": base64.b64encode(SECRET.encode())[:12] + b"\r\n" + base64.b64encode(SECRET.encode())[12:],
    "hex with spaces": SECRET.encode().hex(" ").encode(),
    "JSON": json.dumps(SECRET)[1:-1].replace("/", "\\/").encode(),
    "escapes": "".join(f"\\u{ord(sign):04x}" for sign in SECRET).encode(),
    "percent": "".join(f"%{ord(sign):02X}" for sign in SECRET).encode(),
    "percent twice": "".join(f"%25{ord(sign):02X}" for sign in SECRET).encode(),
    "HTML": "".join(f"&#x{ord(sign):x};" for sign in SECRET).encode(),
    "quoted-printable": "".join(f"={ord(sign):02X}" for sign in SECRET).encode(),
    "UTF-16": SECRET.encode("utf-16-le"),
}


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for value in values or (SECRET,):
        made.add("KEY", value)
    return made


def streamed(made: Redactor, *pieces: bytes, cut: bool = False) -> bytes:
    stream = made.stream()
    return b"".join([*map(stream.feed, pieces), stream.finish(cut=cut)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(5)
def test_a_secret_split_into_two_pieces_is_found(form: str) -> None:
    text = b"<" + FORMS[form] + b">"
    whole = redactor().octets(text)
    assert LABEL in whole.replace(b"\0", b"")
    for at in range(len(text) + 1):
        said = streamed(redactor(), text[:at], text[at:])
        # Nothing is held for one or two characters of an encoding, nor the end of a line for a few; and nothing more
        # than these is shown.
        few = form.startswith(("base64", "hex", "quoted")) and (at < 4 or text[at - 1 : at] == b" ")
        assert said == whole or (few and LABEL in said and len(said) < len(whole) + 12), at


@pytest.mark.parametrize("form", ["plain", "percent", "escapes", "HTML", "JSON", "UTF-16"])
def test_one_byte_at_a_time_gives_the_same_as_all_at_once(form: str) -> None:
    text = b"before " + FORMS[form] + b" between " + FORMS[form] + b" behind"
    assert streamed(redactor(), *(bytes((byte,)) for byte in text)) == redactor().octets(text)


@pytest.mark.parametrize("at", range(1, 140, 7))
def test_a_dump_that_is_cut_anywhere_shows_no_line_of_it(at: int) -> None:
    text = b"here:\n" + dump(b"12345" + (SECRET * 2).encode()) + b"there\n"
    said = streamed(redactor(SECRET * 2), text[: at + 6], text[at + 6 :])
    assert LABEL in said
    assert b"unter" not in said.replace(b"hunter2-x9", b"", 1 if at > 20 else 0)


def test_long_keys_are_found_in_pieces() -> None:
    text = b"x" * 5000 + PEM.encode() + b"y" * 5000
    for size in (100, 1000, 4096, BLOCK * 3):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert streamed(redactor(PEM), *pieces) == b"x" * 5000 + LABEL + b"\n" + b"y" * 5000


@given(st.lists(st.integers(0, 200), max_size=6), st.binary(max_size=30), st.binary(max_size=30))
def test_a_secret_is_redacted_wherever_the_stream_is_split(cuts: list[int], before: bytes, after: bytes) -> None:
    text = before + SECRET.encode() + after
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    said = streamed(redactor(), *(text[a:b] for a, b in pairwise(places)))
    assert SECRET.encode() not in said
    assert LABEL in said


def test_text_without_a_secret_arrives_as_it_is() -> None:
    pieces = [b"hun", b"ter\n", b"%6", b"8u", b"\\u00", b"aVud", b"68 75", b" 6e", b"&#1", b"h"]
    assert streamed(redactor(), *pieces) == b"".join(pieces)
    assert streamed(Redactor(), *pieces) == b"".join(pieces)


@pytest.mark.parametrize("line", [b'{"id": 7}\n', b"data: x\n\n", b"a1b2\n", b"> ", b"68 75 6e\n", b"hunt\n", b"}"])
def test_a_complete_line_is_not_held_back(line: bytes) -> None:
    assert redactor().stream().feed(line) == line


def test_a_possible_start_of_a_secret_is_held_back() -> None:
    stream = redactor().stream()
    assert stream.feed(b"key: hunter2") == b"key: "
    assert stream.feed(b"!") == b"hunter2!"
    assert stream.feed(b"hunter2-") == b""
    assert stream.finish() == b"hunter2-"


def test_half_a_secret_before_a_cut_is_left_out() -> None:
    assert streamed(redactor(), b"key: hunter2-x9", cut=True) == b"key: "
    assert streamed(redactor(), b"key: ", cut=True) == b"key: "


def test_one_secret_may_be_the_beginning_of_another() -> None:
    made = redactor("token-1", "token-1-long")
    assert streamed(made, b"<token-1", b"-long>") == b"<" + LABEL + b">"
    assert streamed(made, b"<token-1", b"-lo>") == b"<" + LABEL + b"-lo>"
    assert streamed(made, b"<token-1") == b"<" + LABEL


def test_a_secret_that_becomes_known_meanwhile_counts_from_then_on() -> None:
    made = Redactor()
    stream = made.stream()
    assert stream.feed(SECRET.encode()) == SECRET.encode()
    made.add("KEY", SECRET)
    assert stream.feed(b" " + SECRET.encode() + b".") == b" " + LABEL + b"."
