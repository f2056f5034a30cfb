"""What is told of calls that went on after a refusal, and of those whose process ended before they did."""

import asyncio
import re
from pathlib import Path

import pytest

from kept_calls import run
from licet import Backends, Context, Gate, Refused, load_manifest, tool
from licet.backends.ledger_sqlite import SqliteLedger

MANIFEST = """agent: desk
capabilities:
  tools: {peek: {sandbox: native}}
  native: [peek]
  fs_reach: {read: ["/srv/notes"]}
  limits: {wall_seconds: 1}
"""


@tool(needs=["fs:read:*"], effect="read_only")
async def peek(ctx: Context, paths: list[str], wait: bool = False) -> int:
    """Count the files that can be read."""
    seen = 0
    for path in paths:
        try:
            await ctx.fs.read(path)
            seen += 1
        except Refused:
            pass
    if wait:
        await asyncio.sleep(600)
    return seen


def _made(folder: Path, *, wait: bool) -> tuple[Path, str]:
    """The state and the receipt of one call that is refused something, and goes on."""
    (folder / "desk.yaml").write_text(MANIFEST)
    ledger = SqliteLedger(folder / "state" / "ledger.sqlite")
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=ledger)
    gate = Gate(load_manifest(folder / "desk.yaml"), [peek], backends)

    async def call() -> str:
        async with gate.session("main") as opened:
            result = await opened.call("peek", {"paths": ["/srv/notes/a", "/etc/shadow"], "wait": wait})
            assert result.ok is not wait
            return result.receipt

    receipt = asyncio.run(call())
    ledger.close()
    return folder / "state", receipt


@pytest.mark.parametrize("wait", [False, True], ids=["ended", "cut off"])
def test_a_use_that_was_refused_is_not_said_to_be_allowed(tmp_path: Path, wait: bool) -> None:
    state, receipt = _made(tmp_path, wait=wait)
    told = run(state, "explain", receipt)
    assert told.exit_code == int(wait)
    first, *rest = told.stdout.splitlines()
    assert first == ("denied: `peek` was called, and ended: LIMIT_TIME" if wait else "allowed: `peek` may be called")
    labels = [re.fullmatch(r"  (held|refused) +(\w+) (\S+).*", line) for line in rest]
    assert [found.groups() for found in labels if found] == [
        ("held", "granted", "fs:read:/srv/notes/a"),
        ("refused", "denied", "fs:read:/etc/shadow"),
    ]
    assert ("  because       peek ran for longer than 1 seconds (" in told.stdout) is wait
    assert "to allow it" not in told.stdout  # the tool may be called: to be told so again helps nobody
