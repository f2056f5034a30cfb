"""`licet thaw`: ends freezes of a state."""

import asyncio
from pathlib import Path

import click

from licet.assemble.states import FreezeStore, LedgerStore, State
from licet.backends.memory import SystemClock
from licet.backends.secrets import BadKey, SigningKey, read_approver_key
from licet.cli.freeze import stores
from licet.cli.options import FILE, json_option
from licet.cli.output import fail, print_report, show
from licet.cli.session import calls_state_option
from licet.core.ledger.state_acts import StateAct
from licet.guard.freezing import ActRefused, keep_act, thaw_act
from licet.guard.ports import LedgerUnavailable, Unavailable


@click.command(name="thaw")
@click.argument("ids", metavar="[ID]…", nargs=-1)
@click.option("--all", "every", is_flag=True, help="End every freeze of the state.")
@click.option("--key", metavar="FILE", type=FILE, help="The private key of an operator of the state.")
@calls_state_option
@json_option
@click.pass_context
def command(ctx: click.Context, ids: tuple[str, ...], every: bool, key: Path | None, state: State | None) -> None:
    """Let calls go on that `licet freeze` or `gate.freeze()` has stopped.

    ID is of `licet freeze --list`. A state that was set up with operators needs the key of one of them; another one is
    thawed by the user who owns it. Processes notice by themselves. The thaw is an entry in the ledger.

    \b
      licet thaw f-0a1b2c3d4e5f6071 --key ~/.keys/operator.pem
      licet thaw --all

    \b
    Exit codes:
      0  thawed
      1  there is no such freeze, or the key is not that of an operator
      2  bad command line
    """
    if every == bool(ids):
        raise click.UsageError("name freezes, or give --all", ctx)
    freezes, ledger = stores(state)
    try:
        act = asyncio.run(_thaw(freezes, ledger, ids, read_approver_key(key) if key is not None else None))
    except ActRefused as refused:
        more = ["add `--key FILE`, with a private key that `licet state key` has made"] if key is None else []
        fail(str(refused), more if "operators" in str(refused) else ())
    except (BadKey, LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    finally:
        freezes.close()
        ledger.close()
    print_report(
        {"thawed": act.fact.about, "id": act.id, "by": act.fact.by},
        lambda _: show(f"thawed {', '.join(act.fact.about)}; {act.id}", colour="green"),
    )


async def _thaw(freezes: FreezeStore, ledger: LedgerStore, ids: tuple[str, ...], key: SigningKey | None) -> StateAct:
    act = thaw_act(ids, SystemClock().now(), await freezes.view(), "command", key)
    await keep_act(freezes, ledger, act)
    return act
