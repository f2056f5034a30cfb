"""Classes of values do what those of the standard library do, which is asked beside them."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import licet
from licet import values


class Pair(NamedTuple):
    """The same class twice: declared with ours, and with that of the standard library."""

    ours: Any
    theirs: Any


def _declared(dataclass: Callable[..., Any], field: Callable[..., Any]) -> Any:
    class Holder:
        @dataclass(frozen=True, slots=True)
        class Plain:
            """Some parts."""

            first: int
            second: str = "b"
            made: list[int] = field(default_factory=list, hash=False)
            aside: int = field(default=0, compare=False, repr=False)

            def double(self) -> int:
                """Twice the first."""
                return self.first * 2

        @dataclass(frozen=True, slots=True)
        class Child(Plain):
            second: str = "c"
            last: int = 4

        @dataclass(frozen=True, slots=True, kw_only=True, repr=False)
        class Named:
            first: int = 1
            second: int

        @dataclass(frozen=True, slots=True)
        class Mixed:
            first: int
            named: int = field(default=2, kw_only=True)
            second: int = 3

        @dataclass(frozen=True, slots=True)
        class Derived:
            first: int
            follows: int = field(init=False)
            fixed: int = field(init=False, default=7)
            fresh: dict[str, int] = field(init=False, default_factory=dict, compare=False)

            def __post_init__(self) -> None:
                object.__setattr__(self, "follows", self.first + 1)

        @dataclass(frozen=True, slots=True, init=False)
        class Own:
            words: tuple[str, ...]

            def __init__(self, *words: str) -> None:
                object.__setattr__(self, "words", words)

            def __repr__(self) -> str:
                return "own"

        @dataclass(frozen=True, slots=True)
        class Single:
            only: object

        @dataclass(frozen=True, slots=True)
        class Nothing:
            aside: int = field(default=1, compare=False)

    return Holder


OURS, THEIRS = _declared(values.dataclass, values.field), _declared(dataclasses.dataclass, dataclasses.field)
NAMES = ("Plain", "Child", "Named", "Mixed", "Derived", "Own", "Single", "Nothing")
PAIRS = {name: Pair(getattr(OURS, name), getattr(THEIRS, name)) for name in NAMES}

# How values are made, by position and by name; some of it makes no sense.
WAYS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}),
    ("Plain", (1, "x", [2], 3), {}),
    ("Plain", (), {"first": 1, "aside": 9}),
    ("Plain", (), {}),
    ("Plain", (1,), {"unknown": 2}),
    ("Plain", (1, "x", [2], 3, 4), {}),
    ("Child", (1,), {}),
    ("Child", (1, "x", [], 0, 5), {}),
    ("Named", (), {"second": 2}),
    ("Named", (), {"first": 0, "second": 2}),
    ("Named", (1, 2), {}),
    ("Named", (), {}),
    ("Mixed", (1, 4), {"named": 5}),
    ("Mixed", (1, 4, 5), {}),
    ("Derived", (1,), {}),
    ("Derived", (1, 2), {}),
    ("Derived", (1,), {"fixed": 2}),
    ("Own", ("a", "b"), {}),
    ("Single", (None,), {}),
    ("Nothing", (), {}),
]


def _told(act: Callable[[], Any]) -> Any:
    """What came of it: a value's parts, or which error."""
    try:
        made = act()
    except Exception as wrong:
        return type(wrong)
    return _parts(made)


def _parts(value: Any) -> Any:
    return [(part.name, getattr(value, part.name)) for part in dataclasses.fields(value)]


@pytest.mark.parametrize(("name", "given", "named"), WAYS)
def test_values_are_made_and_shown_as_by_the_standard_library(
    name: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours, theirs = PAIRS[name]
    told = _told(lambda: theirs(*given, **named))
    assert _told(lambda: ours(*given, **named)) == told
    if isinstance(told, list):
        one, other = ours(*given, **named), theirs(*given, **named)
        if name != "Named":  # without a text of its own it has an address
            assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_what_they_are_in_the_standard_library(name: str) -> None:
    ours, theirs = PAIRS[name]
    absent = repr(dataclasses.MISSING)
    assert str(inspect.signature(ours)).replace(absent, "<factory>") == str(inspect.signature(theirs))
    assert (ours.__match_args__, ours.__slots__) == (theirs.__match_args__, theirs.__slots__)
    assert (ours.__name__, ours.__qualname__, ours.__module__) == (theirs.__name__, theirs.__qualname__, __name__)
    assert (ours.__init__.__qualname__, ours.__init__.__module__) == (theirs.__init__.__qualname__, __name__)
    ask = ("name", "type", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    told = [[getattr(part, about) for about in ask] for part in dataclasses.fields(theirs)]
    assert [[getattr(part, about) for about in ask] for part in dataclasses.fields(ours)] == told
    assert [[getattr(part, about) for about in ask] for part in values.fields(ours)] == told
    assert dataclasses.is_dataclass(ours)
    assert getattr(ours, "__dataclass_params__").frozen  # noqa: B009 - no type knows it
    assert not hasattr(ours, "__dict__") or "__dict__" not in vars(ours)


def _own_classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(licet.__path__, "licet."):
        if not found.name.endswith("__main__"):
            for held in vars(importlib.import_module(found.name)).values():
                if isinstance(held, type) and held.__module__ == found.name and "__licet_parts__" in vars(held):
                    yield held


def test_of_licets_own_classes_each_is_what_it_is_in_the_standard_library() -> None:
    """What ours leaves out (values that are shared by a class, defaults that can change) none of them may ask for."""
    classes = list(_own_classes())
    assert len(classes) > 70
    for ours in classes:
        parts = [(part.name, part.init, part.compare, part.kw_only) for part in values.fields(ours)]
        asked = dataclasses.fields(ours)  # which refuses what makes no sense
        assert parts == [(part.name, part.init, part.compare, part.kw_only) for part in asked], ours
        assert ours.__hash__ is not None, ours


def test_values_of_equal_parts_are_equal_and_hash_alike() -> None:
    plain, other = OURS.Plain, OURS.Single
    assert plain(1) == plain(1)
    assert plain(1, aside=1) == plain(1, aside=2)
    assert plain(1) != plain(2)
    assert plain(1, made=[1]) != plain(1)
    assert hash(plain(1, made=[1])) == hash(plain(1, made=[2])) == hash((1, "b"))
    assert hash(plain(1)) != hash(plain(2))
    assert plain(1) != OURS.Child(1, "b")
    assert plain(1).__eq__(1) is NotImplemented
    assert other(1) == other(1) != other(2)
    assert len({other(1), other(1), other(2)}) == 2
    assert OURS.Nothing(1) == OURS.Nothing(2)
    assert hash(OURS.Nothing(1)) == hash(OURS.Nothing(2))
    with pytest.raises(TypeError):
        hash(other([]))


def test_a_value_cannot_be_changed() -> None:
    for value in (OURS.Plain(1), OURS.Child(1)):
        changes: list[Callable[[Any], None]] = [
            lambda value: setattr(value, "first", 2),
            lambda value: setattr(value, "unknown", 2),
            lambda value: delattr(value, "first"),
        ]
        for change in changes:
            with pytest.raises(dataclasses.FrozenInstanceError, match=r"^(Plain|Child) values cannot be changed: "):
                change(value)
        assert value.first == 1


def test_defaults_are_made_for_each_value() -> None:
    assert OURS.Plain(1).made is not OURS.Plain(1).made
    assert OURS.Derived(1).fresh is not OURS.Derived(1).fresh


def test_methods_stay() -> None:
    assert OURS.Plain(4).double() == 8
    assert OURS.Plain.__doc__ == "Some parts."


def test_a_value_that_holds_itself_can_be_shown() -> None:
    held: list[Any] = []
    held.append(OURS.Single(held))
    assert repr(held[0]).endswith("Single(only=[...])")


def test_replace_makes_another_value() -> None:
    one = OURS.Plain(1, "x", [3], 4)
    for replace in (values.replace, dataclasses.replace):
        assert _parts(replace(one, first=2)) == [("first", 2), ("second", "x"), ("made", [3]), ("aside", 4)]
        assert replace(OURS.Derived(1), first=2).follows == 3
        assert type(replace(OURS.Child(1))) is OURS.Child
        with pytest.raises(TypeError):
            replace(one, unknown=2)
        with pytest.raises((TypeError, ValueError), match="fixed"):  # the second was the library's until 3.12
            replace(OURS.Derived(1), fixed=2)
    assert one.first == 1


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copies with changes came with 3.13")
def test_a_copy_with_changes_is_another_value() -> None:
    assert getattr(copy, "replace")(OURS.Plain(1), first=2) == OURS.Plain(2)  # noqa: B009 - no older type knows it


@values.dataclass(frozen=True, slots=True)
class Kept:
    """One that a pickle can name."""

    first: int
    second: list[int]


def test_copies_and_pickles() -> None:
    one = Kept(1, [2])
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert copy.copy(one).second is one.second
    assert copy.deepcopy(one).second is not one.second
    assert one.__getstate__() == [1, [2]]
    with pytest.raises(ValueError, match="zip"):
        one.__setstate__([1])  # type: ignore[attr-defined]


def test_a_class_of_the_standard_library_can_go_on_from_one_of_ours() -> None:
    @dataclasses.dataclass(frozen=True)
    class Further(Kept):
        third: int = 3

    assert repr(Further(1, [])).endswith("Further(first=1, second=[], third=3)")


def test_only_frozen_classes_with_slots_are_made_here() -> None:
    for how in ({"frozen": True, "slots": False}, {"frozen": False, "slots": True}):
        with pytest.raises(TypeError, match=r"take `dataclasses\.dataclass`"):
            values.dataclass(**how)


def test_nothing_is_written_for_a_class_before_it_is_needed() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Late:
        first: int

    unmade = vars(Late)["__init__"]
    assert type(unmade) is not type(_told)
    assert unmade.__get__(None, Late) is vars(Late)["__init__"] is not unmade
    assert Late(1).first == 1
    assert unmade.__get__(Late(1), Late).__self__ == Late(1)  # whoever came at the same time

    class Below(Late):
        pass

    assert Below(2).first == 2
    assert "__init__" not in vars(Below)
