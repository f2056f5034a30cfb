"""`licet session`: lists the sessions of a state directory, and ends one."""

import asyncio
import secrets

import click
from msgspec import Struct

from licet.assemble.gate import stored_approvals
from licet.assemble.ledger import ledger_place, open_reader
from licet.assemble.states import KV, LEDGER, State
from licet.backends.approvals.requests import ApprovalStore
from licet.backends.memory import SystemClock
from licet.cli.discovery import asked_elsewhere
from licet.cli.options import json_option, open_default, state_here, state_of_manifest
from licet.cli.output import fail, print_report, show
from licet.core.algebra.scope import visible
from licet.core.ledger.entry import NODES_SESSION, STATE_SESSION, Row, Unsound, check_row, time_text
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.guard.session_end import end_stored_session, is_ended, session_end_entry

calls_state_option = state_of_manifest("The state of the calls.  [default: for this directory, below $XDG_STATE_HOME]")


class _Session(Struct, frozen=True):
    agent: str
    session: str
    entries: int
    last: str
    ended: bool


@click.group(name="session", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the sessions of calls, and end one. Each command takes --json.

    Calls of one agent under one id are a session: they share a budget per session, approvals and storage. It is open
    until it is ended. `licet call` and `licet run` use the session `main` (once it has ended `main-2`, and so on), one
    that --session names, or a new one with --new-session.

    \b
      licet session list
      licet session end main
      licet session end s-42 --agent research

    \b
    Exit codes:
      0  done
      1  there is no such session, or it cannot be ended
      2  bad command line
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command)


@command.command(name="list")
@click.option("--all", "every", is_flag=True, help="Also list the sessions that have ended.")
@calls_state_option
@json_option
def list_command(every: bool = False, state: State | None = None) -> None:
    """List the sessions that are open, the one with the newest call first."""
    place = state if state is not None else state_here()
    found = [one for one in _sessions(place) if every or not one.ended]
    print_report({"sessions": found}, lambda _: _show(found))


def _show(found: list[_Session]) -> None:
    width = max((len(visible(one.session)) for one in found), default=0)
    for one in found:
        line = f"{visible(one.session):<{width}}  {'ended' if one.ended else 'open':<5}  {visible(one.agent)}"
        show(f"{line}, {one.entries} entries, last {visible(one.last)}")
    if not found:
        show("no session is open", err=True)


@command.command(name="end")
@click.argument("session", metavar="ID")
@click.option("--agent", metavar="NAME", help="The agent of the session, if several agents have one with this id.")
@click.option("--purpose", metavar="TEXT", help="Why it is ended; the ledger keeps it.")
@calls_state_option
@json_option
def end_command(session: str, agent: str | None, purpose: str | None, state: State | None) -> None:
    """End a session: its storage is deleted, and its later calls are refused.

    Calls that name no session begin another one: `main-2` after `main`. The end is an entry in the ledger. It gives
    back nothing: what the session has spent still counts for the day and for the agent. A process that has the session
    open, such as a gateway, finishes calls that it has begun, and refuses later ones. Programs behind walls cannot
    reach the state of any session, and so end none.
    """
    place = state if state is not None else state_here()
    approvals = stored_approvals(place)
    known = _policies(place, approvals, session, agent)
    if len(known) != 1:
        names = ", ".join(sorted(map(visible, known)))
        of = f" of {visible(agent)}" if agent is not None else ""
        why = f"several agents have a session {visible(session)}: add --agent, one of {names}" if known else ""
        fail(why or f"there is no session {visible(session)}{of} in {place.shown}")
    ((owner, digest),), receipt = known.items(), f"r-{secrets.token_hex(6)}-1"
    entry = session_end_entry(receipt, owner, session, time_text(SystemClock().now()), digest, purpose)

    async def end() -> tuple[bool, str]:
        ledger, kv = place.ledger(), place.kv()
        try:
            if is_new := not await is_ended(kv, owner, session):
                await end_stored_session(ledger, kv, entry)
            await approvals.end_session(owner, session)
            return is_new, await open_default(kv, owner)
        finally:
            approvals.close()
            kv.close()
            ledger.close()

    try:
        ended, following = asyncio.run(end())
    except (LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    name, of = visible(session), visible(owner)

    def text(_: object) -> None:
        show(
            f"ended session {name} of {of}; receipt {receipt}"
            if ended
            else f"session {name} of {of} had ended already",
            colour="green" if ended else None,
        )
        show(f"calls with `--session {name}` are refused; those without `--session` are in {following}")

    print_report({"agent": owner, "session": session, "ended": True, "receipt": receipt if ended else None}, text)


def _policies(place: State, approvals: ApprovalStore, session: str, agent: str | None) -> dict[str, str]:
    """By agent: the digest of the policy of the last call in its session with this id.

    A session whose first call still waits for a person is in no ledger, which may not exist yet.
    """
    try:
        asked = [kept.request for kept in asyncio.run(approvals.list())]
    except (LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    found = {one.agent: one.manifest for one in asked if one.session == session and agent in (None, one.agent)}
    if found and not place.has(LEDGER):
        return found
    for row in _rows(place):
        if row.session == session and agent in (None, row.agent):
            try:
                found[row.agent] = check_row(row)["manifest"]
            except Unsound as wrong:
                fail(f"the last entry of the session cannot be used: {wrong}; see `licet receipts verify`")
    return found


def _rows(place: State) -> list[Row]:
    """The last entry of each session; exits if there is no ledger that can be read."""
    try:
        with open_reader(ledger_place(place)) as reader:
            return [row for row in reader.sessions() if row.session not in (STATE_SESSION, NODES_SESSION)]
    except LedgerUnavailable as wrong:
        named = click.get_current_context().params.get("state") is not None
        fail(f"{wrong}{'' if named else asked_elsewhere()}")


def _sessions(place: State) -> list[_Session]:
    rows = _rows(place)

    async def ended() -> list[bool]:
        if not place.has(KV):  # a store that does not exist yet is not made by a look at it
            return [False] * len(rows)
        kv = place.kv()
        try:
            return [await is_ended(kv, row.agent, row.session) for row in rows]
        finally:
            kv.close()

    try:
        over = asyncio.run(ended())
    except (LedgerUnavailable, Unavailable) as wrong:
        fail(str(wrong))
    each = zip(rows, over, strict=True)
    return [_Session(row.agent, row.session, row.sequence, row.time, end) for row, end in each]
