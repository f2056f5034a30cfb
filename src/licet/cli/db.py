"""`licet db`: makes the tables of a state in PostgreSQL, and says what a database is."""

from pathlib import Path

import click

from licet.assemble.states import DatabaseState, State
from licet.cli.options import STATE, json_option, secrets_option, state_option, with_secrets
from licet.cli.output import fail, print_report, show, show_lines, wants_json
from licet.core.algebra.scope import visible
from licet.guard.ports import Unavailable

_STATE = "The database, as ADDRESS."


@click.group(name="db")
def command() -> None:
    """Make the tables of a state that many nodes share in a PostgreSQL database. Each command takes --json.

    ADDRESS is postgresql://USER@HOST/NAME; if it is left out, --state or $LICET_STATE. It never has a password:
    `?password=secret:NAME` names a secret, and ~/.pgpass is read too.

    \b
      licet db init postgresql://admin@db.example.com/licet --role gateways
      licet db init --print > licet.sql
      licet db status postgresql://gateways@db.example.com/licet

    \b
    Exit codes:
      0  done; or, for status: the state can be used
      1  refused or not reached; or, for status: something is wrong
      2  bad command line
    """


@command.command(name="init")
@click.argument("address", type=STATE, required=False)
@click.option("--print", "prints", is_flag=True, help="Print the SQL for an administrator, and connect to nothing.")
@click.option(
    "--after", metavar="N", type=click.IntRange(0), default=0, help="With --print: only the steps after this number."
)
@click.option("--role", metavar="NAME", help="Let this user of the database run processes of licet.")
@secrets_option
@state_option(_STATE)
@json_option
def init_command(
    address: State | None, prints: bool, after: int, role: str | None, secrets: Path | None, state: State | None
) -> None:
    """Make the tables of a state, or bring them up to date. What is there already is left as it is.

    Steps that are missing are applied in one transaction, by one process at a time. This needs a user who may create in
    the database, and a role: `licet_runtime`, which is the least that processes need. They can add entries and read
    them, and change none: connect them as a user with that role alone, `GRANT licet_runtime TO myuser` (or --role).

    \b
      licet db init postgresql://admin@db.example.com/licet --role gateways
      licet db init --print | psql -v ON_ERROR_STOP=1 licet
    """
    from licet.backends.postgres.migrations import RUNTIME, script, steps

    if prints:
        if address is not None or role is not None or secrets is not None:
            raise click.UsageError("--print connects to nothing: it takes no ADDRESS, --role or --secrets")
        found = {"after": after, "step": steps()[-1].number, "sql": script(after)}
        print_report(found, lambda _: click.echo(found["sql"], nl=False))
        return
    if after:
        raise click.UsageError("--after goes with --print")
    place = _database(address, state, secrets)
    from licet.backends.postgres.server_status import make_tables

    try:
        made = make_tables(place.database, role)
    except Unavailable as wrong:
        fail(str(wrong))
    document = {
        "address": place.shown,
        "applied": [{"step": one.number, "name": one.name} for one in made],
        "step": steps()[-1].number,
        "role": role,
    }

    def text(_: object) -> None:
        show_lines(f"step {one.number:04} applied: {one.name}" for one in made)
        show(f"{place.shown} is up to date, at step {steps()[-1].number}", colour="green")
        if role is not None:
            show(f"{visible(role)} may run processes of licet here")
        elif made:
            show(f"processes need a user with the role {RUNTIME} alone: GRANT {RUNTIME} TO myuser")

    print_report(document, text)


@command.command(name="status")
@click.argument("address", type=STATE, required=False)
@secrets_option
@state_option(_STATE)
@json_option
@click.pass_context
def status_command(ctx: click.Context, address: State | None, secrets: Path | None, state: State | None) -> None:
    """Say what a database is: its tables and servers, and whether a failover could lose what was acknowledged.

    \b
      licet db status
      licet db status postgresql://gateways@db1,db2/licet --json
    """
    place = _database(address, state, secrets)
    from licet.backends.postgres.migrations import RUNTIME
    from licet.backends.postgres.server_status import look_at

    try:
        seen = look_at(place.database)
    except Unavailable as wrong:
        fail(str(wrong))

    def text(_: object) -> None:
        tables = f"step {seen.step} of {seen.known}" if seen.step is not None else "none"
        show(f"database     {visible(seen.address)}, PostgreSQL {visible(seen.version)}")
        show(f"tables       {tables}{f': {seen.problem}' if seen.problem else ''}", colour=_mark(not seen.problem))
        lacks = f" lacks the role {RUNTIME}: GRANT {RUNTIME} TO {seen.user}"
        show(f"user         {visible(seen.user + ('' if seen.may_run else lacks))}", colour=_mark(seen.may_run))
        for one in seen.servers:
            is_what = {True: "primary", False: "standby", None: f"no answer: {one.problem}"}[one.is_primary]
            show(f"server       {visible(one.host)}, port {one.port}: {visible(is_what)}")
        risk = "asynchronous: a failover may lose acknowledged entries; `require_synchronous=true` refuses that"
        show(f"replication  {'synchronous: a failover loses nothing' if seen.is_synchronous else risk}")
        listens = "a transaction pooler stands between: changes are polled" if seen.is_pooled else "direct"
        show(f"connection   {listens}")

    print_report(seen, text)
    ctx.exit(0 if seen.may_run and not seen.problem else 1)


def _mark(is_well: bool) -> str | None:
    return None if is_well or wants_json() else "red"


def _database(address: State | None, state: State | None, secrets: Path | None) -> DatabaseState:
    """The database that was named; a usage error if there is none."""
    place = address or state
    if not isinstance(place, DatabaseState):
        what = "a directory needs no tables" if place is not None else "Missing argument 'ADDRESS'"
        raise click.UsageError(f"{what}: name a database, postgresql://USER@HOST/NAME")
    return with_secrets(place, secrets)
