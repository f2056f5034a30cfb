"""Numbers, dates, URLs, paths and addresses: the cases of values.yaml, and that hostile text takes linear work."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from counted import lines
from licet.core.flow.text import normal
from licet.core.flow.written_values import (
    Address,
    addresses_in,
    date_of,
    dates_in,
    is_own,
    number_of,
    numbers_in,
    path_parts,
    url_key,
    url_keys_in,
)

CASES: dict[str, list[Any]] = yaml.safe_load((Path(__file__).parent / "texts" / "values.yaml").read_text())


def every(kind: str) -> pytest.MarkDecorator:
    cases = CASES[kind]
    ids = [str(next(iter(case.values()))) if isinstance(case, dict) else str(case) for case in cases]
    return pytest.mark.parametrize("case", cases, ids=ids)


@every("numbers")
def test_the_number_that_a_value_is(case: dict[str, Any]) -> None:
    assert number_of(case["value"]) == (None if case["is"] is None else Decimal(case["is"]))


@every("numbers_in")
def test_the_numbers_of_a_text(case: dict[str, Any]) -> None:
    assert numbers_in(case["text"]) == set(map(Decimal, case["are"]))


@every("dates")
def test_the_date_that_a_value_is(case: dict[str, Any]) -> None:
    assert date_of(str(case["value"])) == (None if case["is"] is None else tuple(case["is"]))


@every("dates_in")
def test_the_dates_of_a_text(case: dict[str, Any]) -> None:
    assert dates_in(case["text"]) == set(map(tuple, case["are"]))


def test_dates_that_are_no_text_count_too_and_numbers_do_not() -> None:
    assert date_of(date(2024, 5, 13)) == date_of(datetime(2024, 5, 13, tzinfo=UTC)) == (5, 13)
    assert date_of(20240513) is None
    assert date_of("May 13" + " " * 100) is None


@given(st.integers(-(10**28), 10**28))
def test_a_number_is_the_same_as_text(number: int) -> None:
    assert number_of(number) == number_of(str(number)) == number_of(f"{number}.0")
    assert number_of(f"{number:,}") == number
    assert numbers_in(f"take {number}, please") == {number}


def test_a_number_without_end_is_none() -> None:
    assert number_of(10**40) is None
    assert number_of("1" * 41) is None
    assert numbers_in("1" * 41) == set()


@every("urls")
def test_spellings_of_one_url_have_one_key(case: dict[str, Any]) -> None:
    (key,) = {url_key(text) for text in case["same"]}
    assert key is not None
    assert key not in [url_key(text) for text in case["others"]]


@every("no_urls")
def test_what_is_no_url_or_an_ambiguous_one_has_no_key(case: str) -> None:
    assert url_key(case) is None


def test_the_urls_of_a_text() -> None:
    text = "See (https://x.example/a), www.Y.example or z.example/B?c#d; not bob@w.example."
    assert url_keys_in(text) == {"//x.example/a", "//www.y.example/", "//z.example/B?c#d"}


@every("paths")
def test_the_folder_and_the_name_of_a_path(case: dict[str, Any]) -> None:
    assert path_parts(case["value"]) == (None if case["is"] is None else tuple(case["is"]))


def shown(address: Address) -> str:
    return f"{address.kind} {address.text} = {address.host}".rstrip()


@every("addresses")
def test_the_addresses_of_a_text(case: dict[str, Any]) -> None:
    assert list(map(shown, addresses_in(case["text"]))) == case["are"]


@every("own")
def test_what_is_in_ones_own_domains(case: dict[str, Any]) -> None:
    assert is_own(case["address"], ("y.example", "x.example")) is case["is"]
    assert not is_own(case["address"], ())
    assert not is_own(case["address"], ("", "*"))


names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8)


@given(
    names,
    names,
    st.sampled_from(["com", "example", "io", "xn--p1ai"]),
    st.sampled_from([" {} ", "({}).", "“{}”", "x: {}!", "{}"]),
)
def test_an_address_is_found_in_any_sentence(local: str, domain: str, top: str, sentence: str) -> None:
    host = f"{domain}.{top}"
    for address in (f"{local}@{host}", f"https://{host}/{local}", f"www.{host}", host):
        (found,) = addresses_in(sentence.format(address))
        assert (found.text, found.host.removeprefix("www.")) == (address, host)
        assert is_own(found.host, (host,))
        assert not is_own(found.host, (f"not{host}",))


HOSTILE = {
    "a": "a",
    "dots": "a.",
    "at signs": "@",
    "mails": "a@",
    "schemes": "a://",
    "names with paths": "a.bc/",
    "names": "ä.bc—",
    "emoji": "❤.bc ",
    "digits": "1",
    "digits and spaces": "1 ",
    "digits and dots": "1.",
    "dots after a digit": ".",
    "IBANs": "DE89 ",
    "IBANs without spaces": "de89",
    "months": "may 1",
    "quotes": "'\"",
    "letters that become many": "\ufdfa",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_steps_grow_with_the_length_of_a_text(name: str) -> None:
    def work(size: int) -> int:
        text = "1" + HOSTILE[name] * (size // len(HOSTILE[name]))
        return sum(lines(lambda read=read: read(text)) for read in (addresses_in, numbers_in, dates_in))  # type: ignore[misc]

    work(100)  # patterns are compiled when they are first used
    assert work(8000) < 2.5 * work(4000) + 100


# Looking again from each character would take hours: then the limit of a test ends it.
@pytest.mark.parametrize("name", ["a", "dots", "digits", "dots after a digit", "months"])
def test_a_megabyte_of_one_thing_is_read(name: str) -> None:
    text = normal("1" + HOSTILE[name] * (1_000_000 // len(HOSTILE[name])))
    assert not [one for read in (addresses_in, numbers_in, dates_in) for one in read(text) if one is None]
