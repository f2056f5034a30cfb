"""A tool at level `native` gets no public path to the policy: neither through its context nor through a refusal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.gates import call, gate
from licet import Context, Refused, tool
from licet.core.decision.reach import Reach
from licet.core.policy.layer import Layer
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission

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
