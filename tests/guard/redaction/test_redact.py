"""Redaction: a secret does not leave a call in any of the forms that secrets usually take."""

import base64
import html
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted import work
from licet.guard.redaction.redact import BLOCK, Redactor

SECRET = 's3cr/et+"\\<ü>&\n \U0001f511?=%'


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for number, value in enumerate(values):
        made.add(f"KEY{number}", value)
    return made


def every_percent(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 without padding": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "percent": lambda text: quote(text, safe=""),
    "percent, slashes kept": quote,
    "percent, every byte": every_percent,
    "form": quote_plus,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON, slashes escaped": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "repr": lambda text: repr(text)[1:-1],
    "repr of bytes": lambda text: repr(text.encode())[2:-1],
    "repr of bytes in JSON": lambda text: json.dumps(repr(text.encode())[2:-1])[1:-1],
    "every byte by backslash": lambda text: "".join(f"\\x{byte:02X}" for byte in text.encode()),
    "hex with colons": lambda text: text.encode().hex(":"),
    "upper hex with spaces": lambda text: text.encode().hex(" ").upper(),
    "HTML": html.escape,
    "HTML by numbers": lambda text: "".join(f"&#{ord(sign)};" for sign in text),
    "HTML by numbers with zeros": lambda text: "".join(f"&#{ord(sign):010};" for sign in text),
    "HTML by hex with zeros": lambda text: "".join(f"&#x{ord(sign):016x};" for sign in text),
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "percent in JSON": lambda text: json.dumps(quote(text, safe="/"))[1:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_usual_form_of_a_secret_is_replaced_by_its_name(form: str) -> None:
    shown = FORMS[form](SECRET)
    assert redactor(SECRET).text(f"({shown})") == "([redacted KEY0])"


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_something_that_contains_it_is_found_at_every_alignment(before: int, encode: Any) -> None:
    secret = "hunter2-hunter2"
    whole = encode(b"u" * before + secret.encode() + b":more").decode()
    clean = redactor(secret).text(whole)
    assert "[redacted KEY0]" in clean
    kept = clean.replace("[redacted KEY0]", "")
    assert len(kept) <= len(whole) - len(secret) * 8 // 6 + 2


LONG = "".join(chr(33 + (number * 37) % 90) for number in range(150))


def in_lines(text: str, columns: int, end: str) -> str:
    return end.join(text[start : start + columns] for start in range(0, len(text), columns))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    ", "\\n", "\\r\\n", "%0A", "%0D%0A", "&#10;"])
@pytest.mark.parametrize("columns", [60, 64, 76])
@pytest.mark.parametrize("before", range(3))
def test_an_encoding_that_is_broken_into_lines_is_found(before: int, columns: int, end: str) -> None:
    clean = redactor(LONG).text
    whole = in_lines(base64.b64encode(LONG.encode()).decode(), columns, end)
    assert clean(f"({whole})") == "([redacted KEY0])"
    assert clean(f"({in_lines(LONG.encode().hex(), columns, end)})") == "([redacted KEY0])"
    around = base64.b64encode(b"u" * (50 + before) + LONG.encode() + b":more").decode()
    assert len(clean(in_lines(around, columns, end)).replace(end, "")) < 110


PEM = f"-----BEGIN KEY-----\n{in_lines(LONG.encode().hex(), 64, chr(10))}\n-----END KEY-----\n"
TRIMMED = {
    "a space at its end": ("tok-12345 ", "tok-12345"),
    "a tab before it": ("\ttok-12345", "tok-12345"),
    "the last newline of a key": (PEM, PEM.rstrip()),
    "lines that end otherwise": (PEM, PEM.replace("\n", "\r\n")),
    "lines that end otherwise, and not the last": (PEM, PEM.replace("\n", "\r\n").rstrip()),
    "lines that ended otherwise": (PEM.replace("\n", "\r\n"), PEM),
    "lines that ended in both ways": (PEM.replace("\n", "\r\n", 1), PEM),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", TRIMMED)
def test_a_secret_is_found_without_its_outer_white_space_and_with_other_line_ends(what: str, form: str) -> None:
    value, shown = TRIMMED[what]
    clean = redactor(value).text(f"({FORMS[form](shown)})")
    # What is left is the white space around it, in its own encoding.
    assert clean.startswith("([redacted KEY0]")
    assert len(clean) < len("([redacted KEY0])") + 45


def test_only_white_space_around_a_value_is_not_the_value() -> None:
    assert redactor(" \n").text("some words") == "some words"
    assert redactor("ab  ").text("YWI= 6162 ab") == "YWI= 6162 [redacted KEY0]"


def test_lines_that_are_not_one_encoding_are_left_as_they_are() -> None:
    text = "some words\nand others\r\n    still more\n\n" * 50
    assert redactor("correct horse battery", LONG).text(text) == text
    clean = redactor("hunter2-hunter2").text(text + base64.encodebytes(b"hunter2-hunter2").decode() + text)
    assert clean == f"{text}[redacted KEY0]\n{text}"


# Beginnings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [0, 100, 150, 190, 199, 200, 390])
def test_a_secret_that_begins_before_the_end_is_not_shown_by_half(before: int, form: str) -> None:
    shown = FORMS[form](SECRET).encode()
    kept = redactor(SECRET).beginning(b"." * before + shown + b"-" * 5000, 200)
    expected = b"." * before + (b"[redacted KEY0]" if before < 200 else b"") + b"-" * max(200 - before - len(shown), 0)
    assert kept == expected[:200]


def test_beginning_returns_at_most_so_many_bytes() -> None:
    assert redactor().beginning(b"x" * 500, 200) == b"x" * 200
    assert redactor("hunter2!").beginning(b"x" * 500, 200) == b"x" * 200
    assert redactor("hunter2!").beginning(b"x" * 100, 200) == b"x" * 100
    # What was behind the end does not come forward where secrets made room.
    assert redactor("hunter2!" * 9).beginning((b"hunter2!" * 9) * 4 + b"hunter2!", 200) == b"[redacted KEY0]" * 3


def test_beginning_searches_no_more_than_it_needs() -> None:
    made = redactor("hunter2!")
    small, large = (b"%41\\n&amp;\n" * number for number in (20_000, 200_000))
    made.beginning(small, 1000)  # so that what is made once is not counted
    assert work(lambda: made.beginning(large, 1000)) < 1.1 * work(lambda: made.beginning(small, 1000))


# What stands before can spoil the reading of escaped escapes.
ONCE = sorted(FORMS.keys() - {"JSON in JSON", "repr of bytes in JSON"})
_secrets = st.text(st.characters(codec="utf-8"), min_size=8, max_size=40).filter(
    lambda text: text not in "[redacted KEY0]" and text.strip()
)


@given(_secrets, st.text(max_size=30), st.text(max_size=30), st.sampled_from(ONCE))
def test_a_secret_is_redacted_in_any_context(secret: str, before: str, after: str, form: str) -> None:
    shown = FORMS[form](secret)
    clean = redactor(secret).text(before + shown + after)
    assert shown not in clean
    assert secret not in clean


@given(st.binary(max_size=12), _secrets, st.binary(max_size=12), st.booleans())
def test_base64_around_a_secret_never_decodes_to_it(before: bytes, secret: str, after: bytes, url_safe: bool) -> None:
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    assert "redacted KEY0" in redactor(secret).text(encode(before + secret.encode() + after).decode())


@given(st.text(st.sampled_from('%\\&u0041x;#amp41ab"n'), max_size=60))
def test_text_without_the_secret_is_left_as_it_is(text: str) -> None:
    assert redactor("correct horse battery").text(text) == text


CASES = [
    ("nothing seen", (), "s3cret", "s3cret"),
    ("two of them", ("first-one", "second-1"), "first-one second-1", "[redacted KEY0] [redacted KEY1]"),
    ("one inside the other", ("token", "token-long"), "token-long token", "[redacted KEY1] [redacted KEY0]"),
    ("overlapping", ("abcdefgh", "efghijkl"), "<abcdefghijkl>", "<[redacted KEY0]>"),
    ("touching", ("abcdefgh",), "abcdefghabcdefgh", "[redacted KEY0][redacted KEY0]"),
    ("short, as it is", ("abc",), "abc", "[redacted KEY0]"),
    ("short, encoded", ("abc",), "YWJj 616263", "YWJj 616263"),
    ("nothing at all", ("",), "text", "text"),
    ("its own name", ("KEY0",), "KEY0!", "[redacted]!"),
    ("its own label", ("redacted",), "redacted!", "[…]!"),
    ("lone surrogates", ("\ud800secret",), "x\ud800secret\udfff", "x[redacted KEY0]\udfff"),
    ("hex in both cases", ("hunter2!",), "68756E7465723221", "[redacted KEY0]"),
    (
        "escapes of two kinds",
        ("zz secret!",),
        "<&#65;&#65;-&#122;&#122;%20%73ecret&#33;> %41",
        "<&#65;&#65;-[redacted KEY0]> %41",
    ),
    ("spoilt escapes", ("ab\ncdefg",), "\\\\\\\\ab\\ncdefg", "\\\\\\\\[redacted KEY0]"),
]


@pytest.mark.parametrize(("name", "values", "text", "expected"), CASES, ids=[case[0] for case in CASES])
def test_texts(name: str, values: tuple[str, ...], text: str, expected: str) -> None:
    assert redactor(*values).text(text) == expected


def test_several_texts_are_searched_at_once_and_stay_apart() -> None:
    made = redactor("hunter2!")
    assert made.texts(["a hunter2!", "", "hunter", "2!", "b"]) == ["a [redacted KEY0]", "", "hunter", "2!", "b"]
    assert made.texts(["a\x1ehunter2!", "b"]) == ["a\x1e[redacted KEY0]", "b"]
    assert made.texts([]) == []
    assert redactor().texts(["a"]) == ["a"]
    many = [f"fs:read:/data/{number}" for number in range(2000)]
    made.texts(many)  # so that what is made once is not counted
    assert work(lambda: made.texts(many)) < 3000


def test_a_variable_that_is_not_text_is_found_as_bytes() -> None:
    value = b"\xff\xfesecret\x80".decode("utf-8", "surrogateescape")
    assert redactor(value).text(f"{value} fffe736563726574").startswith("[redacted KEY0]")
    assert redactor(value).text("%FF%FEsecret%80") == "[redacted KEY0]"


def test_the_beginning_of_a_text_has_its_secrets_redacted_also_those_that_are_not_text() -> None:
    value = b"\xff\xfesecret\x80".decode("utf-8", "surrogateescape")
    assert redactor(value).beginning_of(f"a {value} b", 100) == "a [redacted KEY0] b"
    assert (
        redactor("hunter2!").beginning_of("a hunt\ud800er2! hunter2! é", 100) == "a hunt\\ud800er2! [redacted KEY0] é"
    )
    assert redactor("hunter2!").beginning_of("aé", 2) == "a"


def test_the_time_grows_with_the_text_and_not_with_its_square() -> None:
    # A text made of near misses: in the square of its length, this test would not end.
    made = redactor("a" * 2000 + "b")
    text = "a" * 1_000_000 + "%61" * 100_000 + "\\u0061" * 100_000
    assert made.text(text) == text


def test_the_repr_of_a_redactor_shows_no_secret() -> None:
    assert "hunter2" not in repr(redactor("hunter2!"))


def test_a_text_with_too_many_secrets_is_replaced_completely() -> None:
    made = redactor("hunter2!")
    assert made.text("hunter2! " * 20_000) == "[redacted KEY0] " * 20_000
    assert made.text("hunter2! " * 20_001) == "[redacted: too many secrets]"
    assert made.json(b'["' + b"hunter2! " * 20_001 + b'"]') == b'"[redacted: too many secrets]"'


@pytest.mark.parametrize("before", [BLOCK - 40, BLOCK - 21, BLOCK - 1, BLOCK, 2 * BLOCK - 7])
def test_a_secret_across_two_blocks_is_replaced_once(before: int) -> None:
    made = redactor("hunter2-hunter2-hunter2", "r2-hunter2")
    text = "." * before + "hunter2-hunter2-hunter2" + "," * 100
    assert made.text(text) == "." * before + "[redacted KEY0]" + "," * 100


def test_many_secrets_inside_one_that_crosses_two_blocks_take_linear_time() -> None:
    def steps(many: int) -> int:
        made = redactor("abcd", "x" + "abcd" * many + "y")
        text = b"." * (BLOCK - 4 * many) + b"x" + b"abcd" * many + b"y" + b"abcd " * many
        assert made.octets(text).endswith(b".[redacted KEY1]" + b"[redacted KEY0] " * many)
        return work(lambda: made.octets(text))

    assert steps(1600) < 16 * steps(200)


def test_a_secret_that_is_added_during_a_search_is_found_by_the_next() -> None:
    made = Redactor()

    class Meanwhile(str):
        __slots__ = ()

        def strip(self, *_: object) -> str:  # called while the forms are computed
            made.add("LATE", "another-secret")
            return str(self)

    made.add("KEY", Meanwhile("hunter2-and-more"))
    made.text("a text")
    assert made.text("another-secret") == "[redacted LATE]"
