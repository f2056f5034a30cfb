"""What a store of budgets still holds for calls that have not ended."""

import sqlite3
from contextlib import closing
from pathlib import Path

EMPTY = "".join(
    f"DELETE FROM licet.{table};" for table in ("budget_counters", "reservations", "leases", "budget_batches")
)  # of a database of budgets


def held_in(path: Path) -> list[str]:
    """The cost of each reservation that was neither settled nor refunded."""
    with closing(sqlite3.connect(path)) as db:
        return [cost for (cost,) in db.execute("SELECT cost_usd FROM held")]
