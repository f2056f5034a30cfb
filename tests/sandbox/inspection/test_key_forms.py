"""Keys are found and replaced in every spelling, however a text is split, and nothing else is touched or held back."""

import base64
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.sandbox.inspection.key_forms import KeySearch, KeyStream, rewritten
from licet.sandbox.inspection.key_shapes import new_stand_in

from .spelled import (
    BREAKS,
    GITHUB,
    PAIRS,
    PLAIN,
    ROUND,
    escaped,
    in_base64,
    in_lines,
    percent,
    replaced,
    spellings,
    texts_with,
)


def search(*pairs: tuple[str, str]) -> KeySearch:
    return KeySearch((old.encode(), new.encode()) for old, new in pairs)


SEARCHES = {name: search(pair) for name, pair in PAIRS.items()}
ALL = search(*PAIRS.values())
CASES = [(name, form, text) for name, (old, _) in PAIRS.items() for form, text in spellings(old).items()]


@pytest.mark.parametrize(("name", "form", "text"), CASES)
def test_a_key_is_replaced_in_each_form(name: str, form: str, text: str) -> None:
    around = f"before {text}\n after"
    clean = rewritten(SEARCHES[name], around.encode()).decode()
    assert clean == replaced(around, [PAIRS[name]])
    assert clean != around
    assert len(clean) == len(around)


@pytest.mark.parametrize(("name", "form", "text"), CASES)
def test_what_is_written_is_the_stand_in_in_the_same_form(name: str, form: str, text: str) -> None:
    clean = rewritten(SEARCHES[name], text.encode()).decode()
    if form in ("base64 percent", "base64 in a query", "base64 json"):
        clean = re.sub(r"%(..)", lambda found: chr(int(found[1], 16)), clean)
        if "\\" in text:  # what was `\/` stays so: JSON has no such escape of another character
            return
    if form.startswith("base64"):
        clean = clean.replace("\\/", "/")
        for line_break in sorted(BREAKS.values(), key=len, reverse=True):
            clean = clean.replace(line_break, "")
        padded = clean.translate(str.maketrans("-_", "+/"))
        assert PAIRS[name][1] in base64.b64decode(padded).decode()
    elif form == "raw":
        assert clean == PAIRS[name][1]


@given(texts_with([old for old, _ in PAIRS.values()]))
def test_the_search_agrees_with_a_slow_one(text: str) -> None:
    assert rewritten(ALL, text.encode()).decode() == replaced(text, list(PAIRS.values()))


@given(texts_with([old for old, _ in PAIRS.values()]), st.lists(st.integers(0, 400)))
def test_no_split_changes_what_comes_out(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    stream, out = KeyStream(ALL), b""
    bounds = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for low, high in pairwise(bounds):
        out += stream.feed(raw[low:high])
    assert out + stream.finish() == rewritten(ALL, raw)


@given(texts_with([old for old, _ in PAIRS.values()]))
def test_single_bytes_come_out_as_the_whole(text: str) -> None:
    raw = text.encode()
    stream = KeyStream(ALL)
    out = b"".join(stream.feed(raw[at : at + 1]) for at in range(len(raw)))
    assert out + stream.finish() == rewritten(ALL, raw)


@given(texts_with([old for old, _ in PAIRS.values()]))
def test_a_second_pass_finds_nothing(text: str) -> None:
    """What is written over two keys that overlap, or next to half a key, is no key either."""
    clean = rewritten(ALL, text.encode())
    assert not [match for match in ALL.found(clean) if not {b"\\/", b'\\"'} & {clean[a:b] for a, b in match.units}]


@given(st.binary(max_size=300))
def test_other_bytes_stay(raw: bytes) -> None:
    assert rewritten(ALL, raw) == raw


@pytest.mark.parametrize(
    "piece", [b"abc", b"data: {}\n\n", b"Z3!", b"ghp ", b"%20", b"100% ", b"\\t", b"\\\\x", b"\\u2019"]
)
def test_ordinary_text_is_passed_on_at_once(piece: bytes) -> None:
    assert KeyStream(search(GITHUB)).feed(piece) == piece


@pytest.mark.parametrize("width", [32, 57, 60, 64, 72, 76])
@pytest.mark.parametrize("line_break", [*BREAKS.values(), "%0d%0a", "\n" + " " * 16, "\n" + "\t" * 16])
def test_a_key_in_lines_of_base64_is_found_wherever_a_line_ends(width: int, line_break: str) -> None:
    clean = search(GITHUB)
    for before in range(width * 3 // 4 + 3):
        text = in_lines(in_base64(GITHUB[0], "." * before, "." * 50), width, line_break)
        for size in (len(text), 1):
            stream = KeyStream(clean)
            out = b"".join(stream.feed(text[at : at + size].encode()) for at in range(0, len(text), size))
            joined = (out + stream.finish()).decode().replace(line_break, "")
            assert base64.b64decode(joined).decode() == "." * before + GITHUB[1] + "." * 50


def test_a_text_that_comes_line_by_line_is_not_held_back() -> None:
    stream = KeyStream(search(PLAIN))  # nothing of it is a word that is known
    assert stream.feed(b"some progress\n") == b"some progress\n"
    assert stream.feed(b"a line of base64 is longer: dGhpcyBvbmU=\n") == b"a line of base64 is longer: dGhpcyBvbmU=\n"


@pytest.mark.parametrize(
    ("piece", "held"),
    [
        (b"abg", b"g"),
        (b"token ghp_zQW", b"ghp_zQW"),
        (b"x%6", b"%6"),
        (b"x%67h", b"%67h"),
        (b"x\\", b"\\"),
        (b"x\\u006", b"\\u006"),
    ]
    + [
        (b"x%7", b""),
        (b"x%68", b""),
        (b"\\u007", b""),
        (b"x ghp_zqX", b""),
        (b"x ghp_zQX", b"ghp_zQX"),
        (b"Z2hwX3pRV0", b"Z2hwX3pRV0"),
    ],
)
def test_only_what_may_begin_a_key_is_held_back(piece: bytes, held: bytes) -> None:
    stream = KeyStream(search(GITHUB))
    assert stream.feed(piece) == piece[: len(piece) - len(held)]
    assert stream.finish() == held


@pytest.mark.parametrize("spell", [str, percent, escaped, in_base64, lambda text: in_base64(text, "u:", url=True)])
def test_what_is_held_back_does_not_tell_whether_a_guess_is_right(spell: Callable[[str], str]) -> None:
    """Whoever sends guesses to himself sees what is held back of them: the same for every key of one shape."""
    new = new_stand_in(GITHUB[0], ())
    searches = [search((key, new)) for key in (GITHUB[0], *(new_stand_in(GITHUB[0], ()) for _ in range(3)))]
    right = spell(GITHUB[0])[:-1]
    for size in range(1, len(right)):
        for last in ("", "a", "B", "7", "_", "%", "%4", "\\u00", *right[size : size + 1]):
            guess = f" {right[:size]}{last}".encode()
            assert len({len(KeyStream(one).feed(guess)) for one in searches}) == 1


def test_no_more_is_held_than_a_key_in_its_longest_form() -> None:
    stream, most = KeyStream(ALL), 0
    for _ in range(3):
        for byte in spellings(GITHUB[0])["json"][:-1].encode():
            stream.feed(bytes((byte,)))
            most = max(most, len(stream._text))
    assert most < 6 * 60


def test_bits_that_a_key_shares_with_its_neighbours_stay_those_of_the_neighbours() -> None:
    """Two keys next to each other in base64 share a character."""
    both = in_base64(PLAIN[0] + GITHUB[0] + PLAIN[0], "a", "b")
    clean = rewritten(search(PLAIN, GITHUB), both.encode())
    assert base64.b64decode(clean).decode() == "a" + PLAIN[1] + GITHUB[1] + PLAIN[1] + "b"


def test_a_key_within_another_goes_with_it() -> None:
    inner = (GITHUB[0][4:30], GITHUB[1][4:30][::-1])
    outer = search(inner, GITHUB)
    for cut in range(len(GITHUB[0])):
        stream = KeyStream(outer)
        raw = GITHUB[0].encode()
        assert stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.finish() == GITHUB[1].encode()


@pytest.mark.parametrize("spelled", [GITHUB[0], in_base64(GITHUB[0], "me:", "!")])
@pytest.mark.parametrize("escape", [percent, escaped])
def test_one_escape_anywhere_hides_no_key(spelled: str, escape: Callable[[str, Callable[[int], bool]], str]) -> None:
    for place in range(len(spelled)):
        text = escape(spelled, place.__eq__)
        assert rewritten(search(GITHUB), text.encode()).decode() == replaced(text, [GITHUB])


@pytest.mark.parametrize(
    "text",
    [
        f"%41 and {percent(GITHUB[0])}",  # an escape in another word
        f"%41{percent(GITHUB[0])}",
        percent(ROUND[0] + ROUND[0][1:] + ROUND[0][1:]),  # each begins in the one before
        escaped(ROUND[0]) + percent(ROUND[0][1:]),
        f"{'%41' * 700}{escaped(GITHUB[0])}{'%41' * 700}{percent(GITHUB[0])}",
        "%41" + GITHUB[0][:-1] + percent(GITHUB[0][-1]),
    ],
)
def test_keys_next_to_and_over_other_escapes_are_found(text: str) -> None:
    pairs = [GITHUB, ROUND]
    clean = rewritten(search(*pairs), text.encode()).decode()
    assert clean == replaced(text, pairs)
    assert clean != text


@pytest.mark.parametrize("escape", [percent, escaped])
def test_a_match_that_begins_inside_an_escape_of_another_one_spoils_neither(escape: Callable[[str], str]) -> None:
    """The `1` of `%51` may be the character of base64 with the first bits of the key, and so may the whole."""
    old, new = "7A193_4Dy22Kp2_EY-2fw2vS12", "1W542_9Bv40Ua0_SC-6mb0zW24"
    found, inside = search((old, new)), 0
    for before in range(256):
        raw = escape(base64.b64encode(bytes((65, before)) + old.encode()).decode()).encode()
        clean = rewritten(found, raw).decode()
        inside += len(found.found(raw)) - 1
        plain = re.sub(r"%(..)|\\u00(..)", lambda hexed: chr(int(hexed[1] or hexed[2], 16)), clean)
        assert base64.b64decode(plain) == bytes((65, before)) + new.encode()
    assert inside


def test_a_match_that_goes_on_behind_an_escape_is_written_too() -> None:
    """A key that begins with the digits of the escape that another one ends in."""
    first, second = ("-aK3Qz81bWpLx0tU", "-mR7Yv24cGsHn5eQ"), ("55-kM4Zr92dXoHy1s", "31-vB8Wt06fJqPu7g")
    raw = f"{first[0][:-1]}%{second[0]}".encode()
    clean = rewritten(search(first, second), raw).decode()
    assert second[0][2:] not in clean
    assert first[0][:-1] not in clean


def test_each_occurrence_is_told_once() -> None:
    """Also one that is held back with the beginning of a longer key around it."""
    inner = GITHUB[0][4:30]
    told: list[int] = []
    stream = KeyStream(search((inner, inner), GITHUB), lambda match: told.append(match.key))
    for byte in f"{GITHUB[0]} {GITHUB[0][:35]} ".encode():
        stream.feed(bytes((byte,)))
    assert told == [0, 1, 0]


def test_many_false_beginnings_cost_no_more_than_their_length() -> None:
    """Counted, not timed: how often a place of a text is compared character by character."""
    raw = b"".join(b"%%%02x" % sign for sign in GITHUB[0][:-1].encode()) * 400
    found = search(GITHUB)
    places = {at for low, high in found._escaped(raw) for at in range(low, high)}
    covered = sum(high - low for low, high in found._escaped(raw))
    assert covered <= 2 * len(places)
    assert found.found(raw) == []


def test_no_key_is_in_a_representation() -> None:
    stream = KeyStream(search(GITHUB))
    stream.feed(GITHUB[0][:20].encode())
    shown = f"{search(GITHUB)!r} {stream!r} {search(GITHUB).found(GITHUB[0].encode())!r}"
    assert not any(part in shown for part in (GITHUB[0][4:12], GITHUB[1][4:12]))
