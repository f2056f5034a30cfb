"""The options of `licet call` and `licet run` about who calls, and where that is kept: session, purpose, state."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from licet.backends.kv import SqliteKv
from licet.guard.ending import is_ended
from licet.guard.ports import Unavailable
from licet.surfaces.cli.options import FILE, Command, secrets_option
from licet.surfaces.cli.output import show

KV = "kv.sqlite"  # in a state directory
DEFAULT_SESSION = "main"
_NEW_SESSION = "licet.new session"  # in the `meta` of a click context, if `--new-session` was given
_NAMED_SESSION = "licet.named session"  # there too, if `--session` was given


def _wants_new_session(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    ctx.meta[_NEW_SESSION] = wanted


def _session_id(ctx: click.Context, _: click.Parameter, named: str | None) -> str:
    ctx.meta[_NAMED_SESSION] = named is not None
    if not ctx.meta.get(_NEW_SESSION):
        return DEFAULT_SESSION if named is None else named
    if named is not None:
        raise click.UsageError("--session and --new-session exclude each other", ctx)
    return f"s-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def open_session(ctx: click.Context, session: str, state: Path, agent: str) -> str:
    """The session of a call: the one that was asked for, or if none was, the first of the default ones that is open."""
    if ctx.meta.get(_NEW_SESSION) or ctx.meta.get(_NAMED_SESSION) or not (state / KV).exists():
        return session

    async def first_open() -> str:
        kv = SqliteKv(state / KV)
        try:
            return await open_default(kv, agent)
        finally:
            kv.close()

    try:
        return asyncio.run(first_open())
    except Unavailable:  # the gate will say why, and refuse
        return session


async def open_default(kv: SqliteKv, agent: str) -> str:
    """The session of calls that name none: `main`, or after its end `main-2`, and so on."""
    name, number = DEFAULT_SESSION, 1
    while await is_ended(kv, agent, name):
        number += 1
        name = f"{DEFAULT_SESSION}-{number}"
    return name


def show_new_session(ctx: click.Context, session: str, as_json: bool) -> None:
    """Name the session that `--new-session` started, so that it can be continued."""
    if ctx.meta.get(_NEW_SESSION) and not as_json:
        show(f"licet: a new session; to continue it: --session {session}", err=True)


def caller_options(what: str) -> Callable[[Command], Command]:
    """Add `--session`, `--new-session`, `--purpose`, `--secrets` and `--state` to a command.

    `what` is what it does: a call or a run.
    """

    def add(command: Command) -> Command:
        kept = "Where storage, receipts, requests and budgets are kept.  [default: below $XDG_STATE_HOME]"
        for option in (
            click.option("--state", metavar="DIR", type=FILE, help=kept),
            secrets_option,
            click.option("--purpose", metavar="TEXT", help=f"The reason of the {what}; the receipt keeps it."),
            click.option(
                "--new-session",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_wants_new_session,
                help="Start a session of its own, with a new id.",
            ),
            click.option(
                "--session",
                metavar="ID",
                callback=_session_id,
                help=f"The session of the {what}: its budget and its approvals.  [default: main, then main-2]",
            ),
        ):
            command = option(command)
        return command

    return add
