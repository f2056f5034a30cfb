"""`licet state`: sets up a state, and shows what it is. Commands of other modules join with `command.add_command`."""

import asyncio
from pathlib import Path

import click

from licet.assemble.ledger import NoKey, public_key
from licet.assemble.operators import set_operators
from licet.assemble.states import DatabaseState, State
from licet.backends.memory import SystemClock
from licet.backends.secrets import BadKey, make_key, read_approver_key
from licet.cli.freeze import document, show_freezes, stores
from licet.cli.options import FILE, json_option, state_here
from licet.cli.output import fail, print_report, show
from licet.cli.session import calls_state_option
from licet.cli.state_move import command as move_command
from licet.cli.state_nodes import dismiss_command, enrol_command, nodes_command
from licet.guard.freezing import ActRefused
from licet.guard.ports import LedgerUnavailable, Unavailable


@click.group(name="state", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Set up a state: the keys of its operators. Each command takes --json.

    A state is where gates keep ledger, budgets, approvals and freezes. Its operators let calls go on that were frozen,
    and enrol nodes. Their private keys belong on no machine where a gate runs.

    \b
      licet state key operator.pem
      licet state init --operator ed25519:…
      licet state show
      licet state move DIR postgresql://licet@db.internal/licet
      licet state caches --clear

    \b
    Exit codes:
      0  done
      1  the state cannot be used, or a key is not that of an operator
      2  bad command line
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show_command)


@command.command(name="init")
@click.option(
    "--operator",
    "operators",
    metavar="KEY",
    multiple=True,
    help="A public key of an operator, `ed25519:…`, or a file that has it. May be given several times.",
)
@click.option("--key", metavar="FILE", type=FILE, help="The private key of a present operator, to change the keys.")
@calls_state_option
@json_option
def init_command(operators: tuple[str, ...], key: Path | None, state: State | None) -> None:
    """Set the keys of the operators of a state.

    A state without operators takes any keys, and its owner thaws it until then. Later, all keys are given anew, and a
    present operator signs. The same keys again are only pinned on this machine: do that on each further node of a state
    in a database, which also tells how to enrol it.
    """
    if not operators:
        raise click.UsageError("name the operators: --operator KEY, made with `licet state key FILE`")
    place = state if state is not None else state_here()
    freezes, ledger = stores(place)
    try:
        keys = [public_key(one, Path(one), "--operator") for one in operators]
        signer = read_approver_key(key) if key is not None else None
        act = asyncio.run(set_operators(freezes, ledger, keys, SystemClock().now(), signer))
        stranger = asyncio.run(_stranger(place))
    except (ActRefused, BadKey, NoKey, LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    finally:
        freezes.close()
        ledger.close()

    def text(_: object) -> None:
        show("these keys were known: pinned here" if act is None else f"operators set; {act.id}", colour="green")
        for one in keys:
            show(f"  {one}")
        if stranger:
            show(
                f"this node is not enrolled: an operator runs `licet state enrol {stranger} --key FILE`",
                colour="yellow",
            )

    print_report({"operators": keys, "id": None if act is None else act.id}, text)


async def _stranger(place: State) -> str:
    """The public key of this node, if nobody has enrolled it; empty in a directory."""
    if not isinstance(place, DatabaseState) or await place.ledger().enrolled.check(place.node.public):
        return ""
    return place.node.public


@command.command(name="key")
@click.argument("file", type=FILE)
@click.option("--public", is_flag=True, help="Make nothing; print the public half of the key that is there.")
@json_option
def key_command(file: Path, public: bool) -> None:
    """Make the key of an operator, and print its public half.

    Keep the file on a machine where no gate runs, and give the public half to `licet state init --operator`.
    """
    try:
        name = (read_approver_key if public else make_key)(file).public
    except BadKey as wrong:
        fail(str(wrong))
    print_report({"file": file, "public": name}, lambda _: click.echo(name))


@command.command(name="show")
@calls_state_option
@json_option
def show_command(state: State | None = None) -> None:
    """Show where a state is, its operators, and what is frozen."""
    place = state if state is not None else state_here()
    freezes, ledger = stores(state)
    try:
        view = asyncio.run(freezes.view())
    except Unavailable as wrong:
        fail(str(wrong))
    finally:
        freezes.close()
        ledger.close()

    def text(_: object) -> None:
        show(f"state      {place.shown}")
        for one in view.keys or ("none: the user who owns the state thaws it",):
            show(f"operators  {one}")
        show_freezes(view)

    found = {"state": place.shown, "operators": view.keys, "freezes": [document(one) for one in view.freezes]}
    print_report({**found, "unsound": view.unsound}, text)


@command.command(name="caches")
@click.option("--clear", is_flag=True, help="Empty all that no run uses.")
@json_option
def caches_command(clear: bool) -> None:
    """Show what programs of each policy have downloaded and kept, and its size.

    `licet run` and shell lines of coding agents give programs a cache of their policy, in licet's data directory. One
    that holds more than 4 GiB is emptied after a run.
    """
    from licet.sandbox.programs.policy_cache import caches  # not on every system

    rows = []
    for cache in caches():
        row = {"policy": cache.policy, "directory": cache.directory, "bytes": cache.used().size}
        rows.append({**row, "cleared": clear and cache.clear()})

    def text(_: object) -> None:
        for row in rows:
            ending = "  cleared" if row["cleared"] else "  a run uses it" if clear else ""
            show(f"{int(str(row['bytes'])) >> 20:6} MiB  {row['policy'] or row['directory']}{ending}")
        if not rows:
            show("no policy has a cache")

    print_report({"caches": rows}, text)


command.add_command(move_command)
command.add_command(enrol_command)
command.add_command(dismiss_command)
command.add_command(nodes_command)
