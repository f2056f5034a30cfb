"""`licet approvals`: lists the calls that wait for approval, and answers them."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from licet.assemble.gate import standing_approvals, stored_approvals
from licet.assemble.states import State
from licet.backends.approvals.requests import SESSION_ENDED, ApprovalStore, CannotAnswer, StoredRequest
from licet.backends.approvals.standing import StoredStanding
from licet.backends.secrets import BadKey, make_key, read_approver_key
from licet.cli.discovery import asked_elsewhere
from licet.cli.limits import ARGUMENT_CHARACTERS_SHOWN
from licet.cli.options import FILE, MANIFEST, json_option, state_here, state_of_manifest, wrong_state
from licet.cli.output import fail, print_report, show, show_lines, wants_json
from licet.core.algebra.scope import visible
from licet.core.decision.approval import approval_lines, shown, time_text
from licet.core.policy.terms import signer_text
from licet.guard.ports import LedgerUnavailable, Unavailable

_COLOURS = {"approved": "green", "denied": "red", "waiting": "yellow"}
_OPEN = ("waiting", "approved")
_OTHER = "{} is a newer request for the same call, under another manifest: answer that one"
_OF_ONE_ASKING = (
    "id",
    "nonce",
    "manifest",
    "stakes",
    "asked",
    "expires",
    "why",
)  # the fields that differ between two requests for one call

_T = TypeVar("_T")


state_option = state_of_manifest("Where requests are stored.  [default: for this directory, below $XDG_STATE_HOME]")


key_option = click.option(
    "--key",
    "key_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign with the key in this file.",
)


@click.group(name="approvals")
def command() -> None:
    """List, show and answer the requests of calls that wait for approval; list and withdraw standing approvals.

    A call that needs approval is refused, and its request is stored. After you approve the request, the same call
    succeeds when it is made again, until the request expires.

    \b
      licet approvals list
      licet approvals show a-3f9c1e2b7a40
      licet approvals approve a-3f9c1e2b7a40
      licet approvals approve a-3f9c1e2b7a40 --key ~/.config/licet/me.key
      licet approvals deny a-3f9c1e2b7a40
      licet approvals withdraw a-7c02e9d1f354     (a standing approval of deletes)
      licet approvals list --all --json

    \b
    Exit codes:
      0  done
      1  there is no such request, or it cannot be answered (any more) in this way
      2  bad command line
    """


@command.command(name="list")
@click.option("--all", "every", is_flag=True, help="Also list requests that were denied, used, or have expired.")
@state_option
@json_option
def list_command(every: bool, state: State | None) -> None:
    """List the requests that can still be answered or used."""
    store = _store(state)
    now, known = store.now(), _run(store.list())
    found = [kept for kept in known if every or kept.state(now) in _OPEN]
    documents = [_document(kept, now, known) for kept in found]
    for name in _run(store.unbelieved()):
        show(
            f"{visible(name)} has rows in the database that no node of this state has signed: they do not count",
            err=True,
            colour="yellow",
        )
    print_report({"requests": documents}, lambda _: _show_list(found, known, now, is_default=state is None))


def _show_list(found: Sequence[StoredRequest], known: Sequence[StoredRequest], now: int, *, is_default: bool) -> None:
    for kept in found:
        request = kept.request
        if request.scope == "standing":
            text = f"standing approval of deletes, {request.agent}, until {time_text(request.expires)}"
            show(f"{request.id}  {_status(kept, now):<16} {text}")
            show(f"    {', '.join(request.deletes)}")
            if newer := _superseding(kept, known, now):
                show(
                    f"    {_superseded(kept, newer)}; `licet approvals withdraw {request.id}` ends it", colour="yellow"
                )
            continue
        act = "".join(f" {use}" for use in (request.use, *request.acts) if use)
        line = f"{request.id}  {_status(kept, now):<16} {request.tool}{act} ({request.effect}), {request.agent}"
        show(
            f"{line}, session {request.session}, asked {_ago(now - request.asked)}, until {time_text(request.expires)}"
        )
        show(f"    {_beginning(kept.arguments)}")
        if later := _later(kept, known):
            show(f"    {_OTHER.format(later.request.id)}", colour="yellow")
    if not found:
        show(f"no call waits for an answer{asked_elsewhere() if is_default else ''}", err=True)


@command.command(name="show")
@click.argument("request")
@state_option
@json_option
def show_command(request: str, state: State | None) -> None:
    """Show one request: the exact arguments, and what is at stake."""
    store = _store(state)
    _report(_run(store.find(request)), store.now())


@command.command(name="approve")
@click.argument("request")
@key_option
@click.option(
    "--only-these-arguments", "narrow", is_flag=True, help="Agree only to calls with exactly these arguments."
)
@click.option(
    "--yes", is_flag=True, help="Do not ask again. Needed without a terminal and with --json, unless you sign."
)
@state_option
@json_option
@click.pass_context
def approve_command(
    ctx: click.Context,
    request: str,
    key_file: Path | None,
    narrow: bool,
    yes: bool,
    state: State | None,
) -> None:
    """Agree to a request: exactly as it was asked, or to less."""
    store = _store(state)
    try:
        key = None if key_file is None else read_approver_key(key_file)
    except BadKey as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--key") from None
    asks = not yes and not wants_json() and sys.stdin.isatty()
    if not (yes or asks or key):  # a script that only wants to read must not approve anything
        raise click.UsageError("there is no terminal to ask at: add `--yes`, or sign with `--key FILE`", ctx)
    seen = _run(store.find(request))
    if asks:
        _report(seen, store.now())
        if not click.confirm("agree?", err=True):
            show("nothing was answered", err=True)
            ctx.exit(1)
    agreed = _run(store.approve(seen, key, only_these_arguments=narrow))
    if agreed.request.scope == "standing":
        _run(_standing(state).confirm(agreed))
    _report(agreed, store.now())
    if later := _later(agreed, _run(store.list())):
        show(_OTHER.format(later.request.id), err=True, colour="yellow")


@command.command(name="deny")
@click.argument("request")
@state_option
@json_option
def deny_command(request: str, state: State | None) -> None:
    """Deny a request. An approved one can still be denied until it is used."""
    store = _store(state)
    seen = _run(store.find(request))
    denied = _standing(state).withdraw(seen) if seen.request.scope == "standing" else store.deny(seen)
    _report(_run(denied), store.now())


@command.command(name="withdraw")
@click.argument("approval")
@state_option
@json_option
def withdraw_command(approval: str, state: State | None) -> None:
    """Withdraw a standing approval of deletes, which `licet trust` gave. From now on deletes ask again."""
    store = _store(state)
    seen = _run(store.find(approval))
    _report(_run(_standing(state).withdraw(seen)), store.now())


@command.command(name="key")
@click.argument("file", type=FILE)
@click.option("--public", is_flag=True, help="Make nothing; print the public half of the key that is there.")
@json_option
def key_command(file: Path, public: bool) -> None:
    """Make a personal key to sign approvals with, and print its public half.

    Keep the file where no tool can read it. Put the public half under `approvals.keys` of a manifest.
    """
    try:
        name = (read_approver_key if public else make_key)(file).public
    except BadKey as wrong:
        fail(str(wrong))
    print_report({"file": file, "public": name}, lambda _: click.echo(name))


def _store(state: State | None) -> ApprovalStore:
    """The store in a state directory. A named one must exist; the default one may not exist yet."""
    new = state is None or MANIFEST in click.get_current_context().meta
    place = state if state is not None else state_here()
    if wrong := wrong_state(place, new):
        fail(f"{wrong}: give the state directory of the calls with --state, or their manifest with --manifest")
    return stored_approvals(place)


def _standing(state: State | None) -> StoredStanding:
    return standing_approvals(state if state is not None else state_here())


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    try:
        return asyncio.run(work)
    except (CannotAnswer, Unavailable, LedgerUnavailable) as wrong:
        fail(str(wrong))


def _later(kept: StoredRequest, known: Sequence[StoredRequest]) -> StoredRequest | None:
    """Return a newer request for the same call under another manifest: approving this one would have no effect."""
    asked = kept.request
    for other in reversed(known):
        if other.request.id == asked.id:  # the list begins with the oldest
            return None
        if replace(asked, **{name: getattr(other.request, name) for name in _OF_ONE_ASKING}) == other.request:
            return other if other.request.manifest != asked.manifest else None
    return None


def _superseding(kept: StoredRequest, known: Sequence[StoredRequest], now: int) -> StoredRequest | None:
    """The newest standing approval for the same agent and directory, if it is not this one. Both may still count."""
    asked = kept.request
    same = [
        other
        for other in known  # the list begins with the oldest
        if other.request.scope == "standing"
        and other.state(now) == "approved"
        and (other.request.agent, other.request.directory) == (asked.agent, asked.directory)
    ]
    return same[-1] if kept in same[:-1] else None


def _superseded(kept: StoredRequest, newer: StoredRequest) -> str:
    """What a newer standing approval leaves of this one."""
    same = kept.request.manifest == newer.request.manifest
    why = "for the same policy" if same else "since this one counts only for the policy before it was changed"
    end = f"`licet approvals withdraw {kept.request.id}` ends it"
    return f"superseded by {newer.request.id}, {why}; {end}"


def _beginning(arguments: dict[str, Any] | None) -> str:
    """The arguments, cut to one line; `show` prints all of them."""
    if arguments is None:
        return "its arguments are no longer stored: it was not answered in time"
    text = ", ".join(f"{visible(name)}={shown(value)}" for name, value in sorted(arguments.items())) or "no arguments"
    return text if len(text) <= ARGUMENT_CHARACTERS_SHOWN else f"{text[:ARGUMENT_CHARACTERS_SHOWN]}…"


def _ago(milliseconds: int) -> str:
    seconds = max(milliseconds // 1000, 0)
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _status(kept: StoredRequest, now: int) -> str:
    state = kept.state(now)
    if kept.request.scope == "standing" and state in ("denied", "expired"):
        return "withdrawn" if state == "denied" else "ended"
    if kept.denied == SESSION_ENDED:
        return SESSION_ENDED
    if _taken_back(kept):
        return "taken back"
    return f"{len(kept.agreeing(kept.request.arguments))} of {kept.quorum} agree" if _partly(kept, now) else state


def _taken_back(kept: StoredRequest) -> bool:
    return bool(kept.denied) and len(kept.given) >= kept.quorum  # by number, because a denial removes the signatures


def _partly(kept: StoredRequest, now: int) -> bool:
    return kept.quorum > 1 and kept.state(now) == "waiting"


def _report(kept: StoredRequest, now: int) -> None:
    print_report(_document(kept, now), lambda _: _show(kept, now))


def _show(kept: StoredRequest, now: int) -> None:
    show(f"{kept.request.id}: {_status(kept, now)}", colour=_COLOURS.get(kept.state(now)))
    # An approval of exactly these arguments does not cover other arguments.
    narrow = kept.approved(kept.request.arguments) and not kept.approved("")
    show_lines(approval_lines(kept.request, kept.arguments, narrow=narrow))
    for one in kept.given:
        less = ", with exactly these arguments" if one.only_these_arguments else ""
        show(f"  {'had agreed' if kept.denied else 'agreed':<14}{visible(signer_text(one.by, kept.names))}{less}")
    if kept.keys is None and any(one.signature for one in kept.given):
        show(f"  {'may agree':<14}anybody, signed or not: the manifest lists no `approvals.keys`")
    for key in kept.keys or ():
        show(f"  {'may sign':<14}{visible(signer_text(key, kept.names))}")


def _document(kept: StoredRequest, now: int, known: Sequence[StoredRequest] | None = None) -> dict[str, object]:
    """A request as plain data; in a list of all that are `known`, with what has come after it."""
    request, newer = kept.request, _superseding(kept, known or [], now)
    is_listed = known is not None and request.scope == "standing"
    return {
        "id": request.id,
        "state": kept.state(now),
        "agent": request.agent,
        "session": request.session,
        "tool": request.tool,
        "tool_digest": request.tool_digest,
        "effect": request.effect,
        "use": request.use or None,
        "acts": list(request.acts),
        **({"deletes": list(request.deletes)} if request.deletes else {}),
        "why": request.why,
        **({"unmet": list(request.unmet)} if request.unmet else {}),
        "holds_for": request.scope,
        "arguments": kept.arguments,
        "arguments_digest": request.arguments,
        "manifest": request.manifest,
        "directory": request.directory,
        "stakes": list(request.stakes),
        "asked": time_text(request.asked),
        "expires": time_text(request.expires),
        "quorum": kept.quorum,
        "keys": None if kept.keys is None else list(kept.keys),
        "names": dict(kept.names),
        "agreed": [{"by": one.by, "only_these_arguments": one.only_these_arguments} for one in kept.given],
        "denied": bool(kept.denied),
        "used": kept.used,
        **({"superseded_by": newer.request.id if newer else None} if is_listed else {}),
    }
