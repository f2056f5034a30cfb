"""Real calls that leave a ledger in a directory of state, and the command line on it."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from licet import Backends, Context, Gate, load_manifest, tool
from licet.backends.ledger.writer import SqliteLedger
from licet.cli.app import licet

START = datetime(2026, 3, 1, 12, tzinfo=UTC)

MANIFEST = """agent: desk
capabilities:
  tools:
    look: {sandbox: native}
    pay: {sandbox: native, max_calls: 1}
  native: [look, pay]
  fs_reach: {read: ["/srv/notes"]}
  budget: {max_cost_usd: 5}
  record: RECORD
"""


@tool(needs=["fs:read:*"], effect="read_only")
async def look(ctx: Context, path: str) -> str:
    """Read a file."""
    return await ctx.fs.read(path)


@tool(needs=[], effect="read_only", cost_usd="0.25")
async def pay() -> None:
    """Spend something."""


class Ticking:
    """A clock that goes on by an hour with each call."""

    def __init__(self) -> None:
        self.hours = 0

    def now(self) -> datetime:
        return START + timedelta(hours=self.hours)

    def monotonic(self) -> float:
        return 0.0


def make(folder: Path, record: str = "digests") -> Path:
    """A directory of state with the ledger of five calls of one session, and one of another."""
    folder.mkdir()
    (folder / "desk.yaml").write_text(MANIFEST.replace("RECORD", record))
    ledger, clock = SqliteLedger(folder / "state" / "ledger.sqlite"), Ticking()
    backends = Backends.memory(files={"/srv/notes/a": b"Rain"}, ledger=ledger, clock=clock)
    gate = Gate(load_manifest(folder / "desk.yaml"), [look, pay], backends)

    async def calls() -> None:
        for session, name, arguments in (
            ("main", "look", {"path": "/srv/notes/a"}),
            ("main", "look", {"path": "/etc/passwd"}),
            ("main", "pay", {}),
            ("main", "pay", {}),
            ("main", "nope\x1b[2J", {}),
            ("side", "look", {"path": "/srv/notes/a"}),
        ):
            clock.hours += 1
            async with gate.session(session) as opened:
                await opened.call(name, arguments)

    asyncio.run(calls())
    ledger.close()
    return folder / "state"


def run(state: Path, *words: str) -> Result:
    words = (*words, "--state", str(state))
    return CliRunner().invoke(licet, words, prog_name="licet", catch_exceptions=False)


def receipts(state: Path) -> list[dict[str, Any]]:
    """The receipts, the oldest first."""
    found: list[dict[str, Any]] = json.loads(run(state, "receipts", "list", "--json").stdout)["receipts"]
    return found[::-1]
