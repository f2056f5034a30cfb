"""`licet state enrol`, `dismiss` and `nodes`: who may write to a state that many nodes share."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from licet.assemble.states import DatabaseState, State
from licet.backends.secrets import BadKey, SigningKey, read_approver_key
from licet.cli.options import FILE, json_option
from licet.cli.output import fail, print_report, show
from licet.cli.session import calls_state_option
from licet.core.values import key_bytes
from licet.guard.ports import LedgerUnavailable, Unavailable

_T = TypeVar("_T")

key_option = click.option("--key", metavar="FILE", type=FILE, help="The private key of an operator of the state.")


@click.command(name="enrol")
@click.argument("node", metavar="KEY")
@key_option
@calls_state_option
@json_option
def enrol_command(node: str, key: Path | None, state: State | None) -> None:
    """Let a node write to a state that many nodes share. KEY is its public key, which its refusals name.

    An operator of the state signs with --key. A state without operators takes the key of its ledger, which the node
    has that began it. The enrolment is an entry in the ledger.

    \b
      licet state enrol ed25519:… --key ~/.keys/operator.pem
    """
    _change(node, key, state, enrols=True)


@click.command(name="dismiss")
@click.argument("node", metavar="KEY")
@key_option
@calls_state_option
@json_option
def dismiss_command(node: str, key: Path | None, state: State | None) -> None:
    """Let a node write no more. What it wrote before still counts. Signed as in `licet state enrol`.

    \b
      licet state dismiss ed25519:… --key ~/.keys/operator.pem
    """
    _change(node, key, state, enrols=False)


def _change(node: str, key: Path | None, state: State | None, *, enrols: bool) -> None:
    if key_bytes(node) is None:
        raise click.BadParameter("expected the public key of a node, `ed25519:…`", param_hint="KEY")
    place, signer = _database(state), _signer(key)

    async def change() -> None:
        ledger = place.ledger()
        await (ledger.enrol if enrols else ledger.dismiss)(node, signer)

    _run(place, change)
    done = "enrolled" if enrols else "dismissed"
    print_report({"node": node, "enrolled": enrols}, lambda _: show(f"{done} {node}", colour="green"))


@click.command(name="nodes")
@calls_state_option
@json_option
def nodes_command(state: State | None) -> None:
    """List the nodes of a state: those that may write, and those that were dismissed.

    \b
      licet state nodes
    """
    place = _database(state)

    async def read() -> tuple[frozenset[str], frozenset[str]]:
        ledger = place.ledger()
        begun = await ledger.begun()
        await ledger.enrolled.check(place.node.public)
        return ledger.enrolled.now, ledger.enrolled.ever - {begun.key}  # the key of the ledger signs too, as no node

    now, ever = _run(place, read)
    own = place.node.public
    listed = [{"node": one, "enrolled": one in now, "this_node": one == own} for one in sorted(ever | {own})]

    def text(_: object) -> None:
        for one in sorted(ever | {own}):
            word = "enrolled" if one in now else "dismissed" if one in ever else "not enrolled"
            show(f"{one}  {word}{', this node' if one == own else ''}")

    print_report({"nodes": listed}, text)


def _database(state: State | None) -> DatabaseState:
    if not isinstance(state, DatabaseState):
        raise click.UsageError("a state directory has no nodes: name a database, --state postgresql://USER@HOST/NAME")
    return state


def _signer(key: Path | None) -> SigningKey | None:
    try:
        return None if key is None else read_approver_key(key)
    except BadKey as wrong:
        raise click.BadParameter(str(wrong), param_hint="--key") from None


def _run(place: DatabaseState, work: Callable[[], Awaitable[_T]]) -> _T:
    async def awaited() -> _T:
        return await work()

    try:
        return asyncio.run(awaited())
    except (LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    finally:
        place.ledger().close()
