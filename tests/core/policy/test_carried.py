"""Manifests as Python values: a copy, or one that went through pickle, says the same and cannot be changed either."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given

from core.manifests import layer, manifest, manifests, seat, tool
from licet.core.algebra.use import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import Allow, Request
from licet.core.policy.manifest import Manifest

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle 0": lambda value: pickle.loads(pickle.dumps(value, 0)),
    "pickle 5": lambda value: pickle.loads(pickle.dumps(value, 5)),
}

RULES = MappingProxyType(
    {"path": MappingProxyType({"enum": ("a", MappingProxyType({"b": 1})), "not": {"const": [2, MappingProxyType({})]}})}
)


def rich() -> Manifest:
    """A manifest with mappings inside mappings."""
    made = manifest(tool("t", "fs:read:/srv"), allows=["fs:read:/srv"], denies=["fs:read:/srv/.env"])
    seats = {"t": (seat(args=RULES, limits=MappingProxyType({"wall_seconds": 3})),)}
    servers = MappingProxyType({"s": MappingProxyType({"command": ("a", "b"), "env": {"A": "1"}})})
    return Manifest(
        agent="clerk",
        origin=made.origin,
        layers=(*made.layers, layer(["fs:read:/srv"])),
        seats=MappingProxyType(seats),
        tools=made.tools,
        max_effects=made.max_effects,
        servers=servers,
    ).expand("/srv", "/home/clerk")


def types(value: Any) -> Any:
    """The types of all that a value holds."""
    if isinstance(value, MappingProxyType | dict):
        return type(value), {key: types(part) for key, part in value.items()}
    return (type(value), [types(part) for part in value]) if isinstance(value, tuple | list) else type(value)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_says_the_same(how: str) -> None:
    one = rich()
    request = Request("t", (Use("fs:read:/srv/a"),))
    assert decide(request, one).verdict == "allow"  # and what it remembers of that stays behind
    again = COPIES[how](one)
    assert again == one
    assert again.digest == one.digest
    assert again.loaded == one.loaded
    assert decide(request, again).verdict == "allow"
    assert decide(Request("t", (Use("fs:read:/srv/.env"),)), again).verdict == "deny"
    assert again.seats["t"] == one.seats["t"]


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_can_be_changed_no_more_than_the_first(how: str) -> None:
    one = rich()
    again = COPIES[how](one)
    for found, first in ((again.seats, one.seats), (again.servers, one.servers), (again.tools, one.tools)):
        assert types(found) == types(first)
    assert types(again.seats["t"][0].args) == types(RULES)
    with pytest.raises(TypeError):
        again.seats["u"] = ()
    with pytest.raises(AttributeError):
        again.agent = "thief"


@given(manifests)
def test_every_manifest_survives_pickle(one: Manifest) -> None:
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.digest == one.digest


def test_what_can_be_changed_is_nobodys_business() -> None:
    one = rich()
    allowed = decide(Request("t", (Use("fs:read:/srv/a"),)), one)
    assert isinstance(allowed, Allow)
    held = [
        (part.name, getattr(value, part.name))
        for value in (one, one.layers[0], allowed.reach)
        for part in fields(value)
    ]
    remembered = {name for name, value in held if type(value) in (dict, list, set)}
    assert remembered
    assert all(name.startswith("_") for name in remembered), remembered
