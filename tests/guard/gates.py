"""Gates for tests: a policy of a few keys, tools in this process, and memory backends unless others are given."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from licet import Backends, Gate, Manifest, Result, Tool, load_manifest
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted
from pins import pinned


def policy(folder: Path, *tools: Tool, top: Mapping[str, Any] | None = None, **capabilities: Any) -> Manifest:
    """Write and load a manifest that admits the tools at `native`, with these capabilities, and `top` beside them."""
    names = [tool.name for tool in tools]
    content = {
        "agent": "tester",
        "version": "1.0",
        "capabilities": {
            "tools": names,
            "native": names,
            "max_side_effect_class": "write_limited",
            "approvals": {"write": "manifest"},
            **capabilities,
        },
        **(top or {}),
    }
    path = folder / "agent.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return pinned(load_manifest(path))


def gate(folder: Path, *tools: Tool, backends: Backends | None = None, **capabilities: Any) -> Gate:
    """A gate for the tools, with memory backends unless others are given."""
    backends = Backends.memory() if backends is None else backends
    return Gate(policy(folder, *tools, **capabilities), tools, backends, workdir=folder)


def call(at: Gate, tool: str, arguments: Mapping[str, Any] | None = None, session: str = "s") -> Result:
    """One call in a session of its own."""

    async def once() -> Result:
        async with at.session(session) as opened:
            return await opened.call(tool, arguments)

    return asyncio.run(once())


def checks(events: Iterable[Any]) -> list[CapabilityGranted | CapabilityDenied]:
    """The checks among some events."""
    return [event for event in events if isinstance(event, CapabilityGranted | CapabilityDenied)]
