"""The policy itself: what a bundle ties a tool to, and what a tool can find of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from licet import Backends, Context, Gate, Manifest, Refused, load_manifest, tool
from licet.core.decision.reach import Reach
from licet.core.policy.layer import Layer
from licet.core.policy.terms import Admission
from licet.testing import Answer, MemoryHttp

# A tool that is bundled for one host is listed by name too: the list used to drop the bundle's destinations -----------


@tool(needs=["network:*:*"], effect="read_only", sandbox="native")
async def http_get(ctx: Context, url: str) -> int:
    """Fetch something."""
    return (await ctx.fetch(url)).status


def reach(place: Path, bundle: dict[str, Any], capabilities: dict[str, Any], personality: Any, host: str) -> str:
    """Why a call of `http_get` to a host ends as it does."""
    workspace = {"bundles": {"network": {"tools": ["http_get"]} | bundle}}
    given = {"native": ["http_get"], "destinations": {"allow": ["one.example", "two.example"]}}
    (place / "licet.yaml").write_text(json.dumps(workspace))
    (place / "agent.yaml").write_text(json.dumps({"agent": "a", "capabilities": given | capabilities}))
    if personality is not None:
        (place / "second.yaml").write_text(json.dumps({"id": "p"} | given | personality))
    manifest = load_manifest(
        place / "agent.yaml", personality=place / "second.yaml" if personality is not None else None
    )
    gate = Gate(
        manifest,
        [http_get],
        Backends.memory(http=MemoryHttp(lambda _: Answer(), lambda _: ["93.184.216.34"])),
        workdir=place,
    )
    return str(call(gate, "http_get", {"url": f"https://{host}/"}).reason)


NAMED = {"tools": ["http_get"]}
ASSIGNED = {"bundles": ["network"]}


def test_without_a_bundle_the_second_host_is_in_reach(tmp_path: Path) -> None:
    assert reach(tmp_path, {}, ASSIGNED, None, "two.example") == "ALLOWED"


@pytest.mark.parametrize(
    ("capabilities", "personality", "reason"),
    [
        (NAMED, None, "TOOL_NOT_IN_BUNDLE"),
        ({"tools": {"http_get": {"sandbox": "native", "side_effect_class": "read_only"}}}, None, "TOOL_NOT_IN_BUNDLE"),
        (NAMED, NAMED, "TOOL_NOT_IN_BUNDLE"),
        (ASSIGNED, {}, "TOOL_NOT_IN_BUNDLE"),
        (ASSIGNED | NAMED, None, "HOST_NOT_ALLOWED"),
        (ASSIGNED, NAMED, "HOST_NOT_ALLOWED"),
        (NAMED, ASSIGNED, "HOST_NOT_ALLOWED"),
        (ASSIGNED, ASSIGNED | NAMED, "HOST_NOT_ALLOWED"),
    ],
)
def test_no_way_of_naming_a_bundled_tool_leads_past_its_bundle(
    tmp_path: Path, capabilities: dict[str, Any], personality: Any, reason: str
) -> None:
    bundle = {"destinations": ["one.example"]}
    assert reach(tmp_path, bundle, capabilities, personality, "two.example") == reason
    expected = "ALLOWED" if reason == "HOST_NOT_ALLOWED" else reason
    assert reach(tmp_path, bundle, capabilities, personality, "one.example") == expected


# A tool at level `native` gets no public path to the policy: neither through its context nor through a refusal --------


_POLICY = (Manifest, Reach, Admission, Layer)
_DEEPEST = 6


def reachable(value: object, depth: int = _DEEPEST) -> Iterator[object]:
    """Everything that public attributes, items and entries of a value lead to."""
    yield value
    if depth == 0 or isinstance(value, str | bytes | int | float | type | None):
        return
    held: list[Any] = []
    if isinstance(value, dict):
        held += [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        held += value
    else:
        for name in dir(value):
            if not name.startswith("_"):
                try:
                    part = getattr(value, name)
                except Exception:  # what raises leads nowhere
                    continue
                if not callable(part):
                    held.append(part)
    for part in held:
        yield from reachable(part, depth - 1)


@tool(needs=["env:read:A"], effect="read_only", sandbox="native")
async def look(ctx: Context) -> list[str]:
    """Look for policy in the context and in a refusal."""
    found = list(reachable(ctx))
    try:
        ctx.env.get("B")
    except Refused as refusal:
        found += reachable(refusal)
    return [type(one).__name__ for one in found if isinstance(one, _POLICY)]


def test_neither_the_context_nor_a_refusal_leads_to_the_policy(tmp_path: Path) -> None:
    result = call(gate(tmp_path, look, env=["A"]), "look")
    assert result.ok, result.explain()
    assert result.value == []
    assert not [one for one in reachable(result) if isinstance(one, _POLICY)]
