"""Gates whose tools run at a level of the test's choosing."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Gate, Result, Tool, load_manifest
from licet.backends.budgets import MemoryBudgets
from licet.backends.kv import MemoryKv
from licet.backends.memory import MemoryLedger
from licet.sandbox import probe
from pins import pinned

WALLED = ("restricted", "isolated")


def needs_walls() -> None:
    """Skip where the machine cannot keep a walled level."""
    missing = probe.support().missing("restricted")
    if missing:
        pytest.skip(f"no walls here: {missing[0]}")


def gate(
    folder: Path, level: str, *tools: Tool, backends: Backends | None = None, limits: Mapping[str, int] | None = None,
    effect: str = "write_limited", unchecked_imports: bool = False, **capabilities: Any,
) -> Gate:  # fmt: skip
    """A gate with the tools at a level; what they need is granted unless `grants` says otherwise."""
    names = [tool.name for tool in tools]
    grants = sorted({str(rule) for tool in tools for rule in tool.needs})
    content = {
        "agent": "tester",
        "version": "1.0",
        "bundles": {"all": {"tools": names, "sandbox": level, "side_effect_class": effect, "limits": limits or {}}},
        "capabilities": {
            "bundles": ["all"],
            "native": names,
            "max_side_effect_class": effect,
            "approvals": {"write": "manifest"},
            "grants": grants,
            **capabilities,
        },
    }
    path = folder / "agent.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    parts = Backends.memory() if backends is None else backends
    return Gate(pinned(load_manifest(path)), tools, parts, workdir=folder, unchecked_imports=unchecked_imports)


def local_backends(folder: Path, **parts: Any) -> Backends:
    """Files, programs and network of this machine. What a call is recorded in is in memory: a disk takes its time."""
    stores = {"kv": MemoryKv(), "ledger": MemoryLedger(), "budgets": MemoryBudgets()}
    return Backends.local(folder, **{**stores, **parts})


def call(at: Gate, tool: str, arguments: Mapping[str, Any] | None = None) -> Result:
    """One call in a session of its own."""

    async def once() -> Result:
        async with at.session("s") as opened:
            return await opened.call(tool, arguments)

    return asyncio.run(once())
