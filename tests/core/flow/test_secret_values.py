"""Are all secret values in a text found, in bounded time, however many a session has read?"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.flow.secret_values import SecretFound, SecretValues, Steps, TooManySecrets
from licet.core.flow.session_knowledge import Known, Reading
from licet.core.limits import FEW_SECRETS, SHORTEST_SECRET
from licet.core.policy.flow import SecretSource

PLACE = SecretFound("r-1", "get", "/0")
MANY = [f"secret-number-{number:06}" for number in range(FEW_SECRETS * 4)]
_VALUES = st.text("ab", min_size=SHORTEST_SECRET, max_size=12)


def values_of(found: Iterable[str]) -> SecretValues:
    values = SecretValues()
    for value in found:
        values.add(value, PLACE)
    return values


@given(st.lists(_VALUES, unique=True, max_size=8), st.text("ab", max_size=60), st.booleans())
def test_a_text_holds_the_same_secrets_however_many_there_are(values: list[str], text: str, is_many: bool) -> None:
    kept = values_of([*values, *(MANY if is_many else [])])
    assert set(kept.found_in(text, Steps())) == {one for one in values if one in text}


def test_a_copy_gets_values_that_the_first_has_not() -> None:
    first = values_of(MANY)
    other = first.copy()
    other.add("secret-number-", PLACE)
    text = "the secret-number-x"
    assert (list(first.found_in(text, Steps())), list(other.found_in(text, Steps()))) == ([], ["secret-number-"])


@pytest.mark.parametrize("values", [["aaaaaa"], ["a" * length for length in range(6, 1000)], MANY])
def test_the_work_is_bounded(values: list[str]) -> None:
    kept, steps = values_of(values), Steps(5000)

    def search() -> None:
        for _ in range(6000):
            list(kept.found_in("a" * 40, steps))

    with pytest.raises(TooManySecrets):
        search()


def test_a_session_finds_each_of_many_secrets_and_not_those_of_the_task() -> None:
    known = Known()
    known.say(f"Use {MANY[7]}")
    source = SecretSource(tool="get", fields=("key",), use="", readers=())
    known.remember(Reading("r-1", "get", [{"key": one} for one in MANY], secret=(source,)))
    assert known.secrets_in(f"{MANY[7]} and nothing") is None
    found = known.secrets_in(f"{MANY[7]}, then {MANY[200].upper()}")
    assert found == SecretFound("r-1", "get", "/200/key")
