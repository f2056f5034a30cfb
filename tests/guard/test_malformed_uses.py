"""A malformed use is refused, and its event names the domain, so that a search for the domain finds it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from licet import Context, Refused, tool
from licet.core.ledger.recorded_checks import fits

from .gates import call, gate

ASKED: dict[str, Callable[[Context], Awaitable[Any]]] = {
    "fs": lambda ctx: ctx.fs.read("a\0b"),
    "network": lambda ctx: ctx.fetch("https://user@example.com/"),
    "secret": lambda ctx: ctx.secrets.get("*"),
    "process": lambda ctx: ctx.process.spawn("*"),
}


@pytest.mark.parametrize("domain", ASKED)
def test_a_malformed_attempt_is_recorded_in_its_domain(domain: str, tmp_path: Path) -> None:
    @tool(needs=["fs:read:*", "network:*:*", "secret:read:*", "process:exec:*"], effect="read_only", sandbox="native")
    async def probe(ctx: Context) -> str:
        """Ask, and go on."""
        try:
            await ASKED[domain](ctx)
        except Refused as refusal:
            return refusal.code
        return ""

    result = call(gate(tmp_path, probe), "probe")
    assert result.ok, result.explain()
    (denied,) = [event for event in result.events if type(event).__name__ == "CapabilityDenied"]
    assert (denied.capability, denied.reason) == (f"{domain}:*:<malformed>", result.value)
    assert fits(f"{domain}:*", denied.capability)
