"""The two halves of each key of policy, and a new key as two rows."""

from typing import Any

import pytest

from licet import Manifest, ManifestError
from licet.core.policy import keys
from licet.core.policy.manifest import document
from licet.core.policy.tool import LISTS
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.map.cards import heading
from licet.policy_files.schema import CAPABILITY_FIELDS, HOST, MANIFEST_FIELDS, ORGANISATION_FIELDS, WORKSPACE_FIELDS
from licet.policy_files.shapes import Field, ListOf

BECOME_RULES = {"tools", "destinations", "storage", "grants", "deny"} | {key.partition(".")[0] for key in LISTS}
WATCH: keys.Key[tuple[str, ...]] = keys.valued(
    "watch",
    absent=(),
    met=lambda one, two: tuple(sorted({*one} | {*two})),
    listed=keys.items("answers of {} are watched"),
)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy language with one more key."""
    monkeypatch.setattr(keys, "VALUED", (*keys.VALUED, WATCH))
    monkeypatch.setattr(keys, "KEYS", (*keys.KEYS, WATCH))
    monkeypatch.setitem(CAPABILITY_FIELDS, "watch", Field(ListOf(HOST)))


def _policy(**more: Any) -> Manifest:
    return Manifest.from_data({"agent": "a", "capabilities": more})


def test_each_key_of_a_ceiling_has_its_row_in_core_or_becomes_rules() -> None:
    rows = {key.name for key in keys.KEYS}
    assert CAPABILITY_FIELDS.keys() == (rows & CAPABILITY_FIELDS.keys()) | BECOME_RULES
    assert not rows & BECOME_RULES
    assert rows <= CAPABILITY_FIELDS.keys() | WORKSPACE_FIELDS.keys() | MANIFEST_FIELDS.keys()


def test_each_key_of_an_organisation_narrows_or_becomes_rules() -> None:
    narrowing = {key.name for key in keys.KEYS if key.under is not None}
    assert ORGANISATION_FIELDS.keys() == narrowing | {"destinations"}


def test_each_row_names_a_field_of_a_surface_or_is_valued() -> None:
    shown = surface(_policy())
    assert all(hasattr(shown, key.field) for key in keys.KEYS if key.field)
    assert {key.name for key in keys.KEYS if not key.field} == {key.name for key in keys.VALUED}


@pytest.mark.usefixtures("watch")
def test_a_new_key_is_read_digested_shown_and_compared() -> None:
    without, one, two = _policy(), _policy(watch=["a.example.com"]), _policy(watch=["*.example.org"])
    assert WATCH.of(one) == ("network:*:a.example.com",)
    assert "watch" not in document(without)
    assert document(one)["watch"] == ["network:*:a.example.com"]
    assert len({without.digest, one.digest, two.digest}) == 3
    assert WATCH.of(one.meet(two)) == ("network:*:*.example.org", "network:*:a.example.com")
    assert WATCH.of(without.meet(without)) == ()
    assert surface(one).document()["watch"] == ["network:*:a.example.com"]
    assert ("watch", "network:*:a.example.com") in heading(surface(one))
    assert surface(one) != surface(without)
    (change,) = diff(without, one).grown
    assert (change.kind, change.text) == ("watch", "answers of network:*:a.example.com are watched")
    assert change.origin is not None
    assert change.origin.pointer == "/capabilities/watch"
    assert diff(one, without).shrunk[0].text == change.text
    assert not diff(one, one)


@pytest.mark.usefixtures("watch")
def test_a_new_key_is_checked_with_its_place() -> None:
    with pytest.raises(ManifestError) as wrong:
        _policy(watch=["a.example.com", "no host"])
    (problem,) = wrong.value.problems
    assert problem.origin.pointer == "/capabilities/watch/1"


def test_without_its_row_a_key_is_unknown() -> None:
    with pytest.raises(ManifestError, match="the key `watch`"):
        _policy(watch=["a.example.com"])
