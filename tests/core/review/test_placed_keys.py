"""What a review says about `inspect` and `stand_ins`: what has grown between two versions, and what a surface shows."""

from typing import Any

import pytest

from licet import Manifest
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.map.cards import heading, notes

from .test_diff import change_texts


def _coder(**more: Any) -> Manifest:
    stated = {"process": {"allowed_binaries": ["git"]}, "max_side_effect_class": "write_limited", "secrets": ["k", "o"]}
    return Manifest.from_data({"agent": "a", "capabilities": stated | more})


TUNNEL, REQUESTS = "network:tcp:x.test:443", "network:https:get@x.test"
NOT_SEEN, SEEN = "connections to x.test are not looked into", "programs make requests to x.test, which are looked into"
NO_RULE = "connections to x.test are looked into: none → x.test"
INSPECTED: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    # the grants of both, and what changes when `x.test` comes under `inspect`
    "a tunnel": ([TUNNEL], {"shrunk": [NOT_SEEN]}),
    "a tunnel and requests": ([TUNNEL, REQUESTS], {"shrunk": [NOT_SEEN]}),
    "requests alone": ([REQUESTS], {"grown": [SEEN]}),
    "nothing there": (["network:tcp:y.test:443"], {"changed": [NO_RULE]}),
    "a tunnel on another port": (["network:tcp:x.test:22"], {"changed": [NO_RULE]}),
}


@pytest.mark.parametrize("case", INSPECTED)
def test_looking_into_connections_narrows_where_there_is_a_tunnel(case: str) -> None:
    held, said = INSPECTED[case]
    one, two = _coder(grants=held), _coder(grants=held, inspect=["x.test"])
    assert change_texts(diff(one, two)) == said
    sides = {"grown": "shrunk", "shrunk": "grown"}
    turned = {sides.get(side, side): texts for side, texts in said.items()}
    if "changed" in turned:
        turned = {"changed": [NO_RULE.replace("none → x.test", "x.test → none")]}
    assert change_texts(diff(two, one)) == turned


_KEY = {"secret": "k", "hosts": ["x.test"]}
_AT = "`A` (k) is placed"
PLACED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # two versions of `stand_ins`, and what has grown
    "an entry": ({}, {"A": _KEY}, [f"{_AT} at x.test"]),
    "a host": ({"A": _KEY}, {"A": _KEY | {"hosts": ["x.test", "y.test"]}}, [f"{_AT} at y.test"]),
    "a port": ({"A": _KEY}, {"A": _KEY | {"hosts": ["x.test", "x.test:8443"]}}, [f"{_AT} at x.test:8443"]),
    "a header": ({"A": _KEY}, {"A": _KEY | {"headers": ["X-Key"]}}, [f"{_AT} in the header x-key"]),
    "a field": ({"A": _KEY}, {"A": _KEY | {"body": ["token"]}}, [f"{_AT} in the field `token` of a body"]),
    "another order": ({"A": _KEY | {"hosts": ["x.test", "y.test"]}}, {"A": _KEY | {"hosts": ["y.test", "x.test"]}}, []),
}


@pytest.mark.parametrize("case", PLACED)
def test_a_further_place_for_a_key_has_grown(case: str) -> None:
    was, now, grown = PLACED[case]
    one, two = (_coder(inspect=["x.test", "y.test", "x.test:8443"], stand_ins=each) for each in (was, now))
    assert change_texts(diff(one, two)) == ({"grown": grown} if grown else {})
    assert change_texts(diff(two, one)) == ({"shrunk": grown} if grown else {})


def test_another_secret_for_a_variable_has_grown_and_shrunk() -> None:
    one, two = (_coder(inspect=["x.test"], stand_ins={"A": _KEY | {"secret": secret}}) for secret in "ko")
    assert change_texts(diff(one, two)) == {
        "grown": ["`A` (o) is placed at x.test"],
        "shrunk": ["`A` (k) is placed at x.test"],
    }


def _served(secrets: dict[str, Any], *inspect: str) -> Manifest:
    server = {"command": ["x"], "inspect": list(inspect), "secrets": secrets, "tools": {}}
    return Manifest.from_data({"agent": "a", "servers": {"s": server}, "capabilities": {"secrets": ["k", "o"]}})


def test_a_stand_in_of_a_server_allows_less_than_its_secret() -> None:
    plain, placed = _served({"A": "k"}, "x.test"), _served({"A": _KEY}, "x.test")
    assert change_texts(diff(plain, placed)) == {"shrunk": ["server `s` has the secret in `A`"]}
    assert change_texts(diff(placed, plain)) == {"grown": ["server `s` has the secret in `A`"]}
    other = _served({"A": _KEY | {"secret": "o"}}, "x.test")
    assert change_texts(diff(plain, other))["grown"] == ["server `s`: `A` (o) is placed at x.test"]
    wider = _served({"A": _KEY | {"headers": ["x-key"]}}, "x.test")
    assert change_texts(diff(placed, wider)) == {"grown": ["server `s`: `A` (k) is placed in the header x-key"]}


def test_a_server_that_is_looked_into_less_has_grown() -> None:
    one, two = _served({}, "x.test"), _served({})
    assert change_texts(diff(one, two)) == {"grown": ["server `s` sends to x.test what is not looked into"]}
    assert change_texts(diff(two, one)) == {"shrunk": ["server `s` sends to x.test what is looked into"]}


def test_keys_of_a_bundle_are_compared() -> None:
    def version(bundle: dict[str, Any]) -> Manifest:
        need = {"needs": ["process:exec:git", "secret:read:k"], "effect": "read_only", "sandbox": "isolated"}
        workspace = {"tools": {"t": need}, "bundles": {"b": {"tools": ["t"], **bundle}}}
        stated = {"bundles": ["b"], "inspect": ["x.test"], "secrets": ["k"], "stand_ins": {"A": _KEY}}
        return Manifest.from_data({"agent": "a", "capabilities": stated}, workspace)

    without, none, more = version({}), version({"stand_ins": {}}), version({"inspect": ["y.test"]})
    assert change_texts(diff(none, without)) == {"grown": ["bundle `b`: `A` (k) is placed at x.test"]}
    assert change_texts(diff(more, without)) == {"grown": ["bundle `b`: connections to y.test are not looked into"]}
    assert surface(none).document()["bundles"]["b"]["inspect"] == ["x.test"]
    assert "stand_ins" not in surface(none).document()["bundles"]["b"]


def test_a_surface_says_what_is_looked_into_and_which_keys_are_placed() -> None:
    shown = surface(_coder(inspect=["x.test"], stand_ins={"A": _KEY | {"headers": ["X-Key"]}})).document()
    assert shown["inspect"] == ["x.test"]
    assert shown["stand_ins"] == {"A": {"secret": "k", "hosts": ["x.test"], "headers": ["x-key"]}}


def test_people_read_what_is_looked_into_and_placed() -> None:
    shown = surface(_coder(inspect=["x.test"], stand_ins={"A": _KEY | {"headers": ["X-Key"]}}))
    assert {("inspect", "x.test"), ("keys", "`A` (k) at x.test in x-key")} <= {*heading(shown)}
    assert not {"inspect", "keys"} & {title for title, _ in heading(surface(_coder()))}
    (text,) = (text for title, text in notes(surface(_served({"A": _KEY}, "x.test")), str) if title == "server s")
    assert "; looked into: x.test; keys: `A` (k) at x.test" in text


def test_a_destination_is_no_tunnel_where_its_class_has_none_and_may_become_one() -> None:
    one, two = (_coder(destinations={"allow": ["x.test"]}, inspect=inspect) for inspect in ([], ["x.test"]))
    assert change_texts(diff(one, two)) == {"grown": [SEEN]}
    assert change_texts(diff(two, one)) == {"grown": [NOT_SEEN]}  # in doubt it has grown
