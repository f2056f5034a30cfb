"""Connectors: what an entry of an allowlist allows, how several lists combine, and which versions are parsed."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from core.tables import grouped
from licet.core.algebra.scope import Malformed
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors, version_range
from licet.core.values import Origin

HERE = Origin("licet.yaml", 1, 1)

REFERENCES = [
    ("github", ConnectorRef("github")),
    ("github@2.1", ConnectorRef("github", "2.1")),
    ("team/mail@1.0rc1", ConnectorRef("team/mail", "1.0rc1")),
]


@pytest.mark.parametrize(("text", "expected"), REFERENCES)
def test_a_reference_reads_back_as_itself(text: str, expected: ConnectorRef) -> None:
    assert ConnectorRef.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "@2.1", "github@", "github@latest", "git hub", "github@2.1@3", "*", "a:b", "é"])
def test_an_invalid_reference_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        ConnectorRef.parse(text)


RANGES = grouped({
    ">=2.0": [">=2.0", " >= 2.0 "],
    "<3,>=2.0": [">=2.0,<3", "<3, >=2.0"],
    "==1.5.*": ["1.5", "==1.5.*"],
    "==2.*": ["2"],
    "~=2.2": ["~=2.2"],
    "!=2.0": ["!=2.0"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RANGES)
def test_a_range_has_one_spelling(text: str, expected: str) -> None:
    assert version_range(text) == expected
    assert version_range(expected) == expected


@pytest.mark.parametrize(
    "text", ["", " ", ",", ",,", "latest", "*", "==", ">=", "1.5.*", ">=2.0 <3", "=>2", "1.x", "^2.0"]
)
def test_an_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(Malformed) as refusal:
        version_range(text)
    assert "version" in refusal.value.expected


ADMITS = [
    # the line's versions, the tool's version, whether it is on the line
    ("", "", True),
    ("", "9.9", True),
    (">=2.0", "2.0", True),
    (">=2.0", "2.0.1", True),
    (">=2.0", "1.9.9", False),
    (">=2.0", "10.0", True),
    (">=2.0", "", False),
    (">=2.0", "2.0rc1", False),
    (">=2.0", "2.1rc1", True),
    ("==1.5.*", "1.5", True),
    ("==1.5.*", "1.5.9", True),
    ("==1.5.*", "1.50", False),
    ("==1.5.*", "1.6", False),
    ("==1.5.*", "", False),
    ("<3,>=2.0", "2.9", True),
    ("<3,>=2.0", "3.0", False),
]


@pytest.mark.parametrize(("versions", "version", "expected"), ADMITS)
def test_an_entry_allows_the_versions_in_its_range(versions: str, version: str, expected: bool) -> None:
    line = ConnectorRule("github", versions, HERE)
    assert line.admits(ConnectorRef("github", version)) == expected
    assert not line.admits(ConnectorRef("gitlab", version))
    assert not line.admits(ConnectorRef("GitHub", version))


def test_a_connector_on_no_list_is_denied() -> None:
    assert Connectors().obstacle(ConnectorRef("github")) is not None
    assert Connectors().names() == ()


numbers = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))


@given(numbers, numbers)
def test_a_bare_version_means_every_release_that_starts_with_it(stated: str, version: str) -> None:
    line = ConnectorRule("c", version_range(stated), HERE)
    wanted = Version(stated).release
    padded = Version(version).release + (0,) * len(wanted)
    assert line.admits(ConnectorRef("c", version)) == (padded[: len(wanted)] == wanted)


# How lists meet -------------------------------------------------------------------------------------------------------

VERSIONS = ("", ">=2.0", "==1.5.*")
REFS = tuple(ConnectorRef(name, version) for name, version in product(("github", "slack"), ("", "1.5", "2.1")))
lines = st.lists(
    st.builds(ConnectorRule, st.sampled_from(("github", "slack")), st.sampled_from(VERSIONS), st.just(HERE)), max_size=3
).map(tuple)
all_lists = st.builds(
    partial(Connectors, app_name="shop"),  # without a name, a list of the app admits nothing
    *(lines, st.one_of(st.none(), lines), lines, st.lists(lines, min_size=1, max_size=2).map(tuple)),
)


def listed(rules: tuple[ConnectorRule, ...], ref: ConnectorRef) -> bool:
    return any(
        rule.name == ref.name
        and (not rule.versions or (ref.version != "" and Version(ref.version) in SpecifierSet(rule.versions)))
        for rule in rules
    )


@given(all_lists)
def test_a_connector_must_be_on_every_list_and_on_no_deny(lists: Connectors) -> None:
    for ref in REFS:
        narrowing = [lists.tenant, *lists.profiles, *([] if lists.app is None else [lists.app])]
        denied = any(rule.name == ref.name for rule in lists.app_deny)
        expected = all(listed(rules, ref) for rules in narrowing) and not denied
        assert (lists.obstacle(ref) is None) == expected


@given(all_lists)
def test_names_include_every_allowed_connector_and_no_denied_one(lists: Connectors) -> None:
    for ref in REFS:
        if lists.obstacle(ref) is None:
            assert ref.name in lists.names()
    assert not {rule.name for rule in lists.app_deny} & set(lists.names())


@given(all_lists, lines)
def test_one_more_list_only_narrows(lists: Connectors, more: tuple[ConnectorRule, ...]) -> None:
    narrower = Connectors(lists.tenant, lists.app, lists.app_deny, (*lists.profiles, more))
    for ref in REFS:
        assert narrower.obstacle(ref) is not None or lists.obstacle(ref) is None
