"""Manifests as Python values: a copy or an unpickled one means the same and cannot be changed either."""

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from core.manifests import admission, layer, manifest, manifests, tool
from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.request import Request
from licet.core.policy.manifest import Manifest

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle 0": lambda value: pickle.loads(pickle.dumps(value, 0)),
    "pickle 5": lambda value: pickle.loads(pickle.dumps(value, 5)),
}


def rich() -> Manifest:
    """A manifest with mappings inside mappings."""
    made = manifest(tool("t", "fs:read:/srv"), allows=["fs:read:/srv"], denies=["fs:read:/srv/.env"])
    args = {"path": {"enum": ("a", {"b": 1}), "not": {"const": [2, {}]}}}
    return Manifest(
        agent="clerk",
        origin=made.origin,
        layers=(*made.layers, layer(["fs:read:/srv"])),
        admissions={"t": (admission(args=args, limits={"wall_seconds": 3}),)},
        tools=made.tools,
        max_effects=made.max_effects,
        servers={"s": {"command": ("a", "b"), "env": {"A": "1"}}},
    ).expand("/srv", "/home/clerk")


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_decides_the_same(how: str) -> None:
    one = rich()
    request = Request("t", (Use("fs:read:/srv/a"),))
    assert decide(request, one).verdict == "allow"
    again = COPIES[how](one)
    assert again == one
    assert again.digest == one.digest
    assert again.loaded == one.loaded
    assert decide(request, again).verdict == "allow"
    assert decide(Request("t", (Use("fs:read:/srv/.env"),)), again).verdict == "deny"
    assert again.admissions["t"] == one.admissions["t"]


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_cannot_be_changed(how: str) -> None:
    again = COPIES[how](rich())
    with pytest.raises(AttributeError):
        again.agent = "thief"
    with pytest.raises(AttributeError):
        del again.agent
    if sys.version_info < (3, 13):  # which no longer refuses this
        with pytest.raises(TypeError):
            object.__setattr__(again, "agent", "thief")


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_computes_cached_values_again(how: str) -> None:
    one = rich()
    decide(Request("t", (Use("fs:read:/srv/a"),)), one)
    assert vars(one)
    assert not vars(COPIES[how](one))


def test_a_changed_manifest_keeps_no_cache_of_the_first() -> None:
    one = rich()
    assert one.ceiling.has("fs:read:/srv/a")
    assert decide(Request("t", (Use("fs:read:/srv/a"),)), one).verdict == "allow"
    narrower = replace(one, layers=(layer(["fs:read:/srv/b"]),))
    assert not narrower.ceiling.has("fs:read:/srv/a")
    assert decide(Request("t", (Use("fs:read:/srv/a"),)), narrower).verdict == "deny"


def test_changed_needs_change_what_a_tool_touches() -> None:
    one = tool("t", "fs:read:/srv", "connector:use:github")
    assert one.touches.has("fs:read:/srv/a")
    assert one.named_connectors == {"github"}
    other = replace(one, needs=tool("u", "env:read:A").needs)
    assert not other.touches.has("fs:read:/srv/a")
    assert other.named_connectors == frozenset()


@given(manifests)
def test_every_manifest_survives_pickle(one: Manifest) -> None:
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.digest == one.digest
