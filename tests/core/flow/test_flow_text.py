"""How texts are compared, and when a value stands in one: the cases of text.yaml, and laws for any text."""

import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from counted import lines
from licet.core.flow.text import _BECOME_MARKS, _MAYBE_MARKS, folded, in_word, is_plain, normal, stands_in, words
from licet.core.limits import LONGEST_RUN_OF_MARKS

CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "text.yaml").read_text())
EVERY_CHARACTER = [chr(code) for code in range(sys.maxunicode + 1)]
# Text as hostile as it comes: what normal forms treat in a special way, next to letters, digits and punctuation.
ODD = (
    "aAbBſßẞİıΣςǰ\u030c\u0301\u0316\u0344\u0345\u0f73\uff9e\u3099カ\u200b\u200d\xad\u034f\ufe0f ｂ\u00a0\u2028\t.-@/_1٣"
)
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=60)


def every(kind: str, name: str = "text") -> pytest.MarkDecorator:
    cases = CASES[kind]
    ids = [f"{case.get('name') or case.get('value', '')} {case.get('text', '')}".strip() for case in cases]
    return pytest.mark.parametrize("case", cases, ids=ids)


@every("normal")
def test_the_normal_form(case: dict[str, Any]) -> None:
    assert normal(case["text"]) == case["is"]


@every("plain")
def test_what_is_sent_as_it_was_compared(case: dict[str, Any]) -> None:
    assert is_plain(case["text"]) is case["is"]


@every("stands")
def test_what_stands_in_a_text(case: dict[str, Any]) -> None:
    form = folded if case.get("folded") else normal
    cased = normal(case["text"]) if case.get("folded") else None
    found = stands_in(form(case["value"]), form(case["text"]), task=case.get("task", False), cased=cased)
    assert found is case["is"]


@every("evasions")
def test_another_spelling_passes_nothing_that_the_value_itself_does_not(case: dict[str, Any]) -> None:
    text = "Please write to mallory@evil.example. Bob knows."
    assert stands_in("mallory@evil.example", text)
    assert not (is_plain(case["value"]) and stands_in(normal(case["value"]), text))


def test_case_is_no_difference_in_folded_texts_and_no_letters_become_others() -> None:
    assert folded("BOB@X.example") == folded("bob@x.Example")
    assert folded("STRASSE.example") != folded("straße.example")
    assert folded("ẞ") == folded("ß")
    assert folded("ΟΔΟΣ") == folded("οδος")


def test_words_are_those_that_a_prefix_can_begin() -> None:
    assert words("Please DELETE the file(s): /tmp/old_notes.txt!") == {
        *("please", "delete", "the", "file", "s", "tmp", "old_notes", "txt")
    }
    assert words("lo\u0308sche हटाएं") == {"lösche", "हटाएं"}
    assert words(" -- ") == frozenset()


@given(texts)
@example("a" + "\u0344" * 29)
@example("e\u200d\u0301")
@example("\u0f73" * 40 + "\uff9e" * 40)
def test_normal_forms_are_idempotent(text: str) -> None:
    assert normal(normal(text)) == normal(text)
    assert folded(folded(text)) == folded(text)
    assert is_plain(normal(text))


@given(texts)
def test_a_value_that_is_not_its_normal_form_is_not_plain(text: str) -> None:
    assert is_plain(text) is (text.strip() == normal(text))
    assert is_plain(text.strip()) is is_plain(text)


def test_every_format_character_and_every_space_is_folded() -> None:
    for char in EVERY_CHARACTER:
        made = normal(f"a{char}b")
        if unicodedata.category(char) == "Cf":
            assert made == "ab", hex(ord(char))
        elif char.isspace():
            assert made == "a b", hex(ord(char))


def test_every_character_is_folded_once() -> None:
    changing = [char for char in EVERY_CHARACTER if char != char.lower() or unicodedata.decomposition(char)]
    assert len(changing) > 10_000
    assert [char for char in changing if folded(folded(char)) != folded(char)] == []
    assert [char for char in changing if normal(normal(char)) != normal(char)] == []


def test_every_mark_is_counted_in_a_run() -> None:
    few = LONGEST_RUN_OF_MARKS // 3
    for char in EVERY_CHARACTER:
        inside = [unicodedata.combining(one) > 0 for one in unicodedata.normalize("NFKD", char)]
        if inside[0]:
            assert unicodedata.combining(char) or char in _BECOME_MARKS
            assert _MAYBE_MARKS.search(char * few)
            assert len(inside) <= 2
        assert sum(inside) <= few


def test_a_run_of_marks_is_cut_and_its_letter_is_not_found_alone() -> None:
    assert normal("a" + "\u0316" * 40) == "a" + "\u0316" * 30
    assert not stands_in("boba", normal("boba" + "\u0316" * 40))
    assert normal("─" * 50) == "─" * 50


def naive(value: str, text: str) -> bool:
    """Each place in turn, with the parts that make it a match or not alone."""
    return any(
        text.startswith(value, at) and stands_in(value, f"{before}{value}{after}")
        for at in range(len(text) - len(value) + 1)
        for before, after in [(text[max(0, at - 2) : at], text[at + len(value) : at + len(value) + 2])]
    )


@given(st.text("ab-. ", min_size=3, max_size=6), st.text("ab-. @", max_size=40))
@example("aaa", "aaaaaaab aaa")
@example("a-a", "a-a-a-a-a a-a-a")
@example("aba", "abababa aba-")
def test_no_match_is_skipped_in_a_text_that_repeats_itself(value: str, text: str) -> None:
    assert stands_in(value, text) is naive(value, text)


HOSTILE = {
    "a run of a letter": ("a" * 50_000, "a", 200_000),
    "a long value that repeats itself": ("a-" * 20_000 + "a", "a-", 100_000),
    "a value at every other place": ("abc", "xabc", 60_000),
    "a value that never stands alone": ("aba", "abac", 60_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_repetition_takes_few_steps(name: str) -> None:
    value, part, times = HOSTILE[name]
    assert not stands_in(value, part * times + "x")
    assert lines(lambda: stands_in(value, part * times + "x")) < 1000


# Sorting such a run, or looking again from each of its characters, would take hours: then the limit of a test ends it.
RUNS = {
    "marks in the wrong order": "a" + "\u0301" * 500_000 + "\u0316" * 500_000,
    "marks that become two": "a" + "\u0f73" * 1_000_000,
    "letters that become marks": "a" + "\u0301\uff9e\u0316" * 330_000,
    "spaces": " " * 1_000_000 + "a",
    "runs of spaces": (" " * 1000 + "a") * 1000,
    "format characters": "a\u200b" * 500_000,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_megabyte_of_one_thing_is_normalised(name: str) -> None:
    made = normal(RUNS[name])
    assert normal(made) == made


def test_steps_grow_with_the_length_of_a_text() -> None:
    for part in ("\u0301\u0316", "\uff9e\u0301", "a \u3000", "\u0344"):
        one, two = (lines(lambda size=size, part=part: normal(part * size)) for size in (2000, 4000))  # type: ignore[misc]
        assert two < 2.5 * one + 50


def test_a_mark_is_part_of_a_word() -> None:
    assert [char for char in "aé1_\u0301\u034f" if not in_word(char)] == []
    assert [char for char in "-.@ /\u200b❤" if in_word(char)] == []
