"""`Compared`: values with fields that equality, hash and repr leave out."""

import copy
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from licet.core.values import Compared


class Placed(Compared, frozen=True, dict=True):
    _not_compared: ClassVar[frozenset[str]] = frozenset({"place"})

    name: str
    size: int = 0
    place: str = ""

    @cached_property
    def doubled(self) -> int:
        return self.size * 2


class Other(Placed, frozen=True, dict=True):
    pass


def test_a_field_that_is_not_compared_does_not_change_equality() -> None:
    assert Placed("a", 1, "here") == Placed("a", 1, "there")
    assert not Placed("a", 1, "here") != Placed("a", 1, "there")  # noqa: SIM202 - the operator itself
    assert hash(Placed("a", 1, "here")) == hash(Placed("a", 1, "there"))


@pytest.mark.parametrize("changed", [{"name": "b"}, {"size": 2}])
def test_every_other_field_changes_equality(changed: dict[str, Any]) -> None:
    assert replace(Placed("a", 1), **changed) != Placed("a", 1)


def test_values_of_two_classes_differ() -> None:
    assert Placed("a") != Other("a")
    assert Other("a") != Placed("a")
    assert Placed("a") != ("a", 0, "")


def test_repr_shows_the_compared_fields() -> None:
    assert repr(Placed("a", 1, "here")) == "Placed(name='a', size=1)"


def test_no_field_can_be_set_or_deleted() -> None:
    one = Placed("a")
    for name in ("name", "place", "doubled", "new"):
        with pytest.raises(AttributeError):
            setattr(one, name, "b")
    with pytest.raises(AttributeError):
        del one.name


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), lambda one: replace(one, size=4)],
)
def test_a_copy_has_the_fields_and_not_the_cache(copied: Callable[[Placed], Placed]) -> None:
    one = Placed("a", 3, "here")
    assert one.doubled == 6
    again = copied(one)
    assert (again.name, again.place) == ("a", "here")
    assert again.doubled == again.size * 2
    assert not vars(copied(one))
