"""Shown names: they fit model APIs, and no two tools share one."""

import pickle
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from licet.mcp.shown_names import Clash, Naming, fitting, naming, shown_name, shown_names

LONG = "a" * 70
HOW = st.sampled_from(["plain", "prefixed"])
SERVERS = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
# Few letters make clashes likely, long ones make cuts.
TOOLS = st.text("ab._/-é", min_size=1, max_size=6) | st.text(min_size=1) | st.text("ab.", min_size=50, max_size=128)
FULL = st.builds("{}.{}".format, SERVERS, TOOLS)


@pytest.mark.parametrize(
    ("full", "how", "shown"),
    [
        ("files.read", "plain", "read"),
        ("files.read", "prefixed", "files__read"),
        ("my-files.read_file", "prefixed", "my-files__read_file"),
        ("files.a.b/c", "plain", "a_b_c"),
        ("files.a.b/c", "prefixed", "files__a_b_c"),
        ("files.žluť", "plain", "_lu_"),
        ("s." + "a" * 64, "plain", "a" * 64),
        ("s." + "a" * 65, "plain", "a" * 57 + "_635361"),
        ("s." + "a" * 61, "prefixed", "s__" + "a" * 61),
    ],
)
def test_names_are_shown_in_characters_that_model_apis_accept(full: str, how: Naming, shown: str) -> None:
    assert shown_name(full, how) == shown


@pytest.mark.parametrize("full", ["", "files", "files.", ".read"])
def test_what_is_no_full_name_is_refused(full: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        shown_name(full, "plain")


@pytest.mark.parametrize(
    ("servers", "configured", "how"),
    [
        (["a"], "", "plain"), (["a", "b"], "", "prefixed"), ([], "", "plain"),
        (["a"], "prefixed", "prefixed"), (["a", "b"], "plain", "plain"),
    ],
)  # fmt: skip
def test_names_are_plain_for_one_server_unless_configured(servers: list[str], configured: Naming, how: str) -> None:
    assert naming(servers, configured) == how


@pytest.mark.parametrize(
    ("names", "how"),
    [(["a.read", "b.read"], "plain"), (["a.x.y", "a.x_y"], "plain"), (["a.x.y", "a.x/y"], "prefixed")],
)
def test_a_clash_names_both_tools(names: list[str], how: Naming) -> None:
    for order in (names, names[::-1]):
        with pytest.raises(Clash) as clash:
            shown_names(order, how)
        assert [clash.value.first, clash.value.second] == sorted(names)
        assert all(f"`{name}`" in str(clash.value) for name in names)
        assert str(pickle.loads(pickle.dumps(clash.value))) == str(clash.value)


def test_equal_starts_of_long_names_stay_apart() -> None:
    names = [f"s.{LONG}{ending}" for ending in "abc"]
    assert len(shown_names(names, "plain")) == 3


@given(st.lists(FULL, max_size=8), HOW, st.randoms())
@example(["a.x.y", "a.x_y"], "plain", None)
def test_names_are_one_to_one_or_clash_in_any_order(names: list[str], how: Naming, random: object) -> None:
    def outcome(order: list[str]) -> object:
        try:
            return shown_names(order, how)
        except Clash as clash:
            return str(clash)

    shuffled = sorted(names, key=lambda name: hash((name, str(random))))
    shown = outcome(names)
    assert shown == outcome(shuffled) == outcome(names * 2)
    if isinstance(shown, dict):
        assert sorted(shown.values()) == sorted(set(names))
        assert all(shown_name(full, how) == name for name, full in shown.items())
    else:
        assert len({shown_name(name, how) for name in names}) < len(set(names))


@given(TOOLS)
def test_a_fitting_name_stays_as_it_is(name: str) -> None:
    fit = fitting(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", fit)
    assert fitting(fit) == fit
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        assert fit == name
