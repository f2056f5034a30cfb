"""`licet state move`: moves a state from a directory to a database, or back."""

import asyncio
import sys
from collections.abc import Callable

import click

from licet.assemble.state_move import NOT_MOVED, MoveRefused, move
from licet.assemble.states import State
from licet.cli.options import STATE, json_option
from licet.cli.output import fail, print_report, show, wants_json
from licet.cli.receipts_text import entries


@click.command(name="move")
@click.argument("source", metavar="FROM", type=STATE)
@click.argument("target", metavar="TO", type=STATE)
@json_option
def command(source: State, target: State) -> None:
    """Move a state from a directory to a database, or back.

    Stop gates and gateways first. Every entry keeps its bytes, its number and its signed checkpoints; both sides are
    verified, before and after. FROM takes no entries afterwards: the file of its ledger is renamed to
    `ledger.moved.sqlite`, and a database says where its ledger is. A move that was interrupted is done by the same
    command again.

    Values by key, what was spent, freezes and the keys of the operators move too. Requests for approval, standing
    approvals and results of calls with an id do not: repeat no such call for 24 hours, or it runs again.

    \b
      licet state move ~/.local/state/licet/… postgresql://licet@db.internal/licet
    """
    try:
        moved = asyncio.run(move(source, target, _progress()))
    except MoveRefused as wrong:
        fail(str(wrong))

    def text(_: object) -> None:
        show(f"moved {entries(moved.entries)} to {target.shown}, and verified them", colour="green")
        if moved.aside:
            show(f"  the ledger that was: {moved.aside}")
        show(f"  not moved: {', '.join(NOT_MOVED)}")

    found = {"from": source.shown, "to": target.shown, "entries": moved.entries, "aside": moved.aside or None}
    print_report({**found, "not_moved": moved.left}, text)


def _progress() -> Callable[[int], None] | None:
    """Show on a terminal how many entries were read or written."""
    if wants_json() or sys.stderr is None or not sys.stderr.isatty():
        return None

    def progress(seen: int) -> None:
        click.echo(f"\r{entries(seen)} … ", err=True, nl=False)

    return progress
