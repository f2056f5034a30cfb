"""A gate is reloaded with what it could be built with: over each `on_misfit` and each kind of misfit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from licet import Backends, Context, Gate, Manifest, RegistrationRefused, tool

NOT_NARROWED = 1  # rules on arguments
MODES = ("refuse", "narrow", "deny")


@tool(needs=["fs:read:/srv", "env:read:A"], effect="write_limited", sandbox="native", connector="crm")
async def act(ctx: Context, path: str) -> None:
    """Do nothing."""


def policy(**changes: Any) -> Manifest:
    """A policy that `act` fits, with changes; a value of None takes a key away."""
    capabilities = {
        "tools": {"act": {}},
        "native": ["act"],
        "max_side_effect_class": "write_limited",
        "fs_reach": {"read": ["/srv"]},
        "env": ["A"],
        "connectors": ["crm"],
        "budget": {"max_calls_per_session": 9},
        **changes,
    }
    stated = {key: value for key, value in capabilities.items() if value is not None}
    return Manifest.from_data({"agent": "a", "capabilities": stated, **WORKSPACE})


WORKSPACE = {"connectors": {"tenant_allowlist": ["crm"], "definitions": {"crm": {}}}}
KINDS: dict[str, Callable[[], Manifest]] = {
    "none": policy,
    "a path": lambda: policy(fs_reach={"read": ["/opt"]}),
    "a variable": lambda: policy(env=None),
    "a class": lambda: policy(max_side_effect_class="read_only"),
    "a level": lambda: policy(native=None),
    "a connector": lambda: policy(connectors=None),
    "a rule on an argument that is not there": lambda: policy(tools={"act": {"args": {"file": {"const": "x"}}}}),
    "a deny of all": lambda: policy(deny=["fs:read:/srv"]),
}


def said(work: Callable[[], object]) -> list[str] | str:
    """The misfits that something raises, the name of another error, or nothing."""
    try:
        work()
    except RegistrationRefused as refused:
        return sorted(str(one) for one in refused.misfits)
    except Exception as error:
        return type(error).__name__
    return []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_reload_raises_what_building_the_gate_raises(mode: Any, kind: str) -> None:
    manifest = KINDS[kind]()
    built = said(lambda: Gate(manifest, [act], Backends.memory(), on_misfit=mode))
    gate = Gate(policy(), [act], Backends.memory(), on_misfit=mode)
    assert said(lambda: gate.reload(manifest)) == built
    fresh = Gate(manifest, [act], Backends.memory(), on_misfit="narrow" if mode == "narrow" and not built else "deny")
    assert gate.policy.tools["act"].misfits == fresh.policy.tools["act"].misfits
    assert gate.policy.tools["act"].ready == fresh.policy.tools["act"].ready


@pytest.mark.parametrize("mode", MODES)
def test_the_kinds_are_misfits(mode: Any) -> None:
    """Otherwise the test above would compare nothing."""
    raised = [
        kind for kind, make in KINDS.items() if said(partial(Gate, make(), [act], Backends.memory(), on_misfit=mode))
    ]
    assert len(raised) == {"refuse": len(KINDS) - 1, "narrow": NOT_NARROWED, "deny": 0}[mode]
