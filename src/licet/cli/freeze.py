"""`licet freeze`: stops all calls of a state, those of an agent or of a tool; and lists what is frozen."""

import asyncio

import click
from msgspec import UNSET

from licet.assemble.states import FreezeStore, LedgerStore, State
from licet.backends.memory import SystemClock
from licet.cli.options import Command, json_option, state_here
from licet.cli.output import fail, print_report, show
from licet.cli.session import calls_state_option
from licet.core.ledger.state_acts import StateAct, StateView
from licet.guard.freezing import freeze_act, freeze_state
from licet.guard.ports import LedgerUnavailable, Unavailable


def stores(state: State | None) -> tuple[FreezeStore, LedgerStore]:
    """The freezes and the ledger of a state."""
    place = state if state is not None else state_here()
    return place.freezes(), place.ledger()


def target_options(command: Command) -> Command:
    """Add `--agent` and `--tool` to a command."""
    of_tool = click.option("--tool", metavar="NAME", help="Only calls of this tool.")(command)
    return click.option("--agent", metavar="NAME", help="Only calls of this agent, and of its delegates.")(of_tool)


@click.command(name="freeze")
@target_options
@click.option("--why", metavar="TEXT", help="The reason; refusals and the ledger have it.")
@click.option("--list", "listing", is_flag=True, help="List what is frozen, and freeze nothing.")
@calls_state_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, agent: str | None, tool: str | None, why: str | None, listing: bool, state: State | None
) -> None:
    """Stop every process on a state: all calls, or those of an agent or of a tool.

    When this returns, no call begins any more, in no gate, gateway or hook on this state. Calls under way end at their
    next check, at the latest within a second, and so do programs behind walls. Every user who can write the state can
    freeze it; `licet thaw` needs the key of an operator, if the state has operators. Both are entries in the ledger.

    \b
      licet freeze --why "it mails strangers"
      licet freeze --agent research --tool send_mail --why "until it was reviewed"
      licet freeze --list

    \b
    Exit codes:
      0  frozen, or listed
      1  the state cannot be used
      2  bad command line
    """
    if listing == (why is not None) or (listing and (agent or tool)):
        raise click.UsageError("give --why TEXT, or --list alone", ctx)
    freezes, ledger = stores(state)
    try:
        if listing:
            _list(asyncio.run(freezes.view()))
            return
        act = freeze_act(SystemClock().now(), why or "", "command", agent, tool)
        unrecorded = ""
        try:
            asyncio.run(freeze_state(freezes, ledger, act))
        except LedgerUnavailable as wrong:  # the freeze is in force
            unrecorded = str(wrong)
    except Unavailable as wrong:
        fail(str(wrong))
    finally:
        freezes.close()
        ledger.close()

    def text(_: object) -> None:
        show(f"frozen: {about(act)}; {act.id}", colour="yellow")
        show(f"`licet thaw {act.id}` lets calls go on")

    print_report({**document(act), "recorded": not unrecorded}, text)
    if unrecorded:
        show(f"the freeze is in force, and its entry could not be kept: {unrecorded}", err=True, colour="red")
        ctx.exit(1)


def about(act: StateAct) -> str:
    """What a freeze stops."""
    agent, tool = act.fact.agent, act.fact.tool
    calls = "all calls" if tool is UNSET else f"calls of {tool}"
    return calls if agent is UNSET else f"{calls} by {agent}"


def document(act: StateAct) -> dict[str, object]:
    """A freeze as plain data."""
    fact = act.fact
    named = {"agent": fact.agent, "tool": fact.tool, "why": fact.why}
    return {
        "id": act.id,
        **{name: None if value is UNSET else value for name, value in named.items()},
        "time": act.time,
    }


def _list(view: StateView) -> None:
    found = {"freezes": [document(one) for one in view.freezes], "operators": view.keys, "unsound": view.unsound}
    print_report(found, lambda _: show_freezes(view))


def show_freezes(view: StateView) -> None:
    """Print the freezes in force, and what in the store does not count."""
    for one in view.freezes:
        show(f"{one.id}  {one.time[:19].replace('T', ' ')}Z  {about(one)}: {one.fact.why or 'frozen'}")
    if not view.freezes:
        show("nothing is frozen", err=True)
    for wrong in view.unsound:
        show(f"not believed: {wrong}", err=True, colour="red")
