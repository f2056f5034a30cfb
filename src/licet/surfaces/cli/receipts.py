"""`licet receipts`: list, show, verify and export what calls left in the ledger."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.assemble.ledger import (
    NoKey,
    checkpoints_in,
    evidence_pack,
    is_ledger,
    is_pack,
    last_checkpoint,
    ledger_in,
    public_key,
    run_verify,
    verify_pack,
)
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.verify import verify_ledger
from licet.core.ledger.entry import VERDICTS, Row, Unsound, check_row
from licet.core.ledger.evidence import checkpoint_line
from licet.guard.ports import LedgerUnavailable
from licet.surfaces.cli.options import FILE, Command, json_option, manifest_option, of_manifest
from licet.surfaces.cli.output import fail, is_output, show, show_json, write_file
from licet.surfaces.cli.receipts_filters import Wanted, check_lines, checks_document, found_receipts, search_options
from licet.surfaces.cli.receipts_summary import day_lines, days
from licet.surfaces.cli.receipts_text import (
    COLOURS,
    Entry,
    entries,
    listed,
    pack_document,
    story,
    table,
    tell_ledger,
    tell_pack,
)

_MOST_OF_A_NAME = 80  # characters
_ELSEWHERE = "; go to the directory of the manifest, or name it with --manifest, or its state with --state"


def state_option(command: Command) -> Command:
    """Add `--state` to a command."""
    text = "Where the ledger is kept.  [default: for this directory, below $XDG_STATE_HOME]"
    return manifest_option(click.option("--state", metavar="DIR", type=FILE, callback=of_manifest, help=text)(command))


def key_option(command: Command) -> Command:
    """Add `--key` to a command."""
    text = "The public key, or a file that holds it.  [default: the `ledger.pub` next to the ledger]"
    return click.option("--key", metavar="ed25519:…|FILE", help=text)(command)


@click.group(name="receipts")
def command() -> None:
    """List, show, verify and export what happened: every call leaves a receipt.

    Receipts are in a ledger, one for each directory of state. Each entry is linked to the previous one of its session,
    and checkpoints sign all of them now and then, so a later change is detected.

    \b
      licet receipts list
      licet receipts list --tool http_get --verdict deny --since 7d
      licet receipts list --denied-use 'network:*' --verdict allow
      licet receipts summary --since 7d
      licet receipts show r-9e0f2b41-1
      licet receipts verify
      licet receipts verify backup/ledger.sqlite --key ed25519:… --head heads.txt
      licet receipts head >> /mnt/elsewhere/heads.txt
      licet receipts export r-9e0f2b41-1 -o evidence.json
      licet receipts verify evidence.json
      licet receipts list --json

    \b
    Exit codes:
      0  done, and nothing is wrong
      1  something is wrong with the record, or there is none
      2  a command line that makes no sense
    """


@command.command(name="list")
@search_options
@click.option("--verdict", type=click.Choice(VERDICTS), help="With this verdict.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, help="At most so many.  [default: 50]")
@state_option
@json_option
def list_command(verdict: str | None, limit: int, state: Path | None, as_json: bool, **searched: Any) -> None:
    """List receipts, the newest first. Times are UTC.

    A call that has begun and left no receipt is listed too: it still runs, or its process ended before it did.

    `--denied-use` finds calls in which a use was denied, whatever became of the call: a tool may catch a refusal and
    go on. PATTERN is the text of a capability, or its beginning up to `:`, `@` or `/`; `*` is any characters.
    `--capability` finds calls with a check that a rule covers, granted or denied; together with `--denied-use` only
    denied ones count.
    """
    wanted = Wanted(**searched)
    checks, unended, unsearched = wanted.checks, [], 0
    with _reading(state, as_json) as reader:

        def read(row: Row) -> Entry:
            return _entry(row, reader, as_json)

        if checks is not None:
            every = list(found_receipts(reader, wanted, checks, verdict, limit + 1, read))
        else:
            every = list(map(read, reader.list(**wanted.columns, verdict=verdict, limit=limit + 1)))
        if checks is None and verdict in (None, "allow"):  # nothing else begins
            oldest = {"since": every[-1]["time"]} if len(every) > limit else {}
            rows, unsearched = reader.unended(**{**wanted.columns, **oldest}, limit=limit + 1)
            unended = list(map(read, rows))
    every = sorted((*every, *unended), key=lambda entry: (entry["time"], entry["number"]), reverse=True)
    found, more = every[:limit], len(every) > limit
    if as_json:
        documents = [{**listed(entry), **checks_document(entry, checks)} for entry in found]
        show_json({"receipts": documents, "more": more, "unsearched": unsearched})
        return
    heading, *lines = table(found) if found else [("", "")]
    if found:
        show(heading[0])
    for (line, shown), entry in zip(lines, found, strict=True):
        show(line, colour=COLOURS.get(shown))
        for check in check_lines(entry, checks) if checks is not None else ():
            show(check)
    if not found:
        asked = verdict is not None or wanted != Wanted()
        show("no receipt fits" if asked else "no call has left a receipt yet", err=True)
    if more:
        show(f"there are more; `--limit {limit * 10}` shows older ones", err=True)
    if unsearched:
        told = f"calls without a receipt were not looked for in the {entries(unsearched)} before that"
        show(f"{told}; `--since` and `--until` name a shorter time", err=True)


@command.command(name="summary")
@search_options
@state_option
@json_option
def summary_command(state: Path | None, as_json: bool, **searched: Any) -> None:
    """Count calls and denied uses per day (UTC) and agent, the newest day first.

    Below each line are the uses that were denied most often, inside calls that went on too. With `--denied-use` or
    `--capability` only such denied uses count, and only days that have one are told.
    """
    wanted = Wanted(**searched)
    with _reading(state, as_json) as reader:
        found = days(reader, wanted, lambda row: _entry(row, reader, as_json))
    if as_json:
        show_json({"days": found})
        return
    for line in day_lines(found) if found else ():
        show(line)
    if not found:
        show("no receipt fits", err=True)


@command.command(name="show")
@click.argument("receipt")
@state_option
@json_option
def show_command(receipt: str, state: Path | None, as_json: bool) -> None:
    """Show everything that is kept about one call.

    What came of it, the rules that decided with file and line, who agreed, the budget before and after, the walls
    that stood, and each check in order.
    """
    decision, ended = call_of(receipt, state, as_json)
    if as_json:
        show_json({"decision": decision, "receipt": ended})
        return
    first, *rest = story(decision, ended)
    show(first, colour=COLOURS[(ended or decision or {})["verdict"]])
    for line in rest:
        show(line)


@command.command(name="verify")
@click.argument("file", metavar="[LEDGER|PACK]", type=FILE, required=False)
@key_option
@click.option(
    "--head", "kept", metavar="FILE", type=FILE, multiple=True, help="Checkpoints that were stored elsewhere."
)
@state_option
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context, file: Path | None, key: str | None, kept: tuple[Path, ...], state: Path | None, as_json: bool
) -> None:
    """Recompute a ledger, or an evidence pack, and name the first entry that is wrong and how.

    All that is needed is the file and the public key. Every hash, every chain and every signature is computed anew.

    \b
    What the two options prove:
      --key   the ledger was not replaced by another: store `ledger.pub` elsewhere
      --head  the ledger was not set back to an older copy: now and then, store
              what `licet receipts head` prints elsewhere

    Entries after the last checkpoint are linked but not signed yet, so they are not proven; their number is printed. A
    process that writes signs within a second, and at its end. If the private key is next to the ledger and can be
    read, it proves that its holder wrote them.
    """
    ledger = ledger_in(state)
    if file is not None:
        file = file / "ledger.sqlite" if os.path.isdir(file) else file
    path = ledger if file is None else file
    try:
        # What should be a ledger and is no database was overwritten; it is no pack.
        database = is_ledger(path) or file is None or path.suffix == ".sqlite"
        held_to = public_key(key, path if database else ledger)
        checkpoints = [checkpoint for one in kept for checkpoint in checkpoints_in(one)]
        if not database:
            if checkpoints:
                raise click.UsageError("--head is for ledgers: a pack has its own", ctx)
            tell_pack(path, verify_pack(path, held_to), held_to, as_json)
        with _progress(path, as_json) as progress:
            outcome = verify_ledger(path, held_to, checkpoints, progress)
    except NoKey as wrong:
        if key is None:  # the default was missing, so no option is wrong
            raise click.UsageError(f"{wrong}; it is the `ledger.pub` of the ledger that wrote this", ctx) from None
        raise click.BadParameter(str(wrong), ctx, param_hint="--key") from None
    except Unsound as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--head") from None
    except LedgerUnavailable as wrong:
        fail(f"{wrong}{_elsewhere(path, state or file)}", as_json)
    tell_ledger(path, outcome, held_to, key, bool(checkpoints), as_json)


@command.command(name="head")
@key_option
@state_option
@json_option
def head_command(key: str | None, state: Path | None, as_json: bool) -> None:
    """Print the last signed checkpoint (tree head), one line to store elsewhere.

    With it, `licet receipts verify --head FILE` proves later that nothing before it was changed or removed. A file may
    hold many, one per line.
    """
    with _reading(state, as_json) as reader:
        try:
            held_to = public_key(key, Path(reader.path))
        except NoKey as wrong:
            raise click.BadParameter(str(wrong), param_hint="--key") from None
        checkpoint, size = last_checkpoint(reader, held_to), reader.size
    click.echo(checkpoint_line(checkpoint))
    if size > checkpoint.size:
        show(f"not signed yet: {entries(size - checkpoint.size)} after it", err=True)


@command.command(name="export")
@click.argument("receipts", metavar="[RECEIPT]...", nargs=-1)
@click.option("--session", metavar="ID", help="Everything of this session.")
@click.option("--agent", metavar="NAME", help="The agent of the session, if several have one of that name.")
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, help="Write the pack into this file; `-` is stdout, the default."
)
@click.option("--force", is_flag=True, help="Replace a file that is there and is no pack.")
@state_option
@json_option
@click.pass_context
def export_command(
    ctx: click.Context,
    receipts: tuple[str, ...],
    session: str | None,
    agent: str | None,
    output: Path | None,
    force: bool,
    state: Path | None,
    as_json: bool,
) -> None:
    """Write an evidence pack: receipts that can be checked without the ledger.

    It is an in-toto Statement in a DSSE envelope, signed with the key of the ledger. It holds the entries byte for
    byte, a signed checkpoint, and for each entry the proof that it is in the tree of that checkpoint. The same
    receipts give the same bytes. `licet receipts verify PACK --key ed25519:…` checks it anywhere.

    A pack shows that its entries are in the ledger, not that there are no others; of a whole session the links show
    that nothing between its entries was left out.
    """
    if bool(receipts) == (session is not None):
        raise click.UsageError("name receipts, or a session with --session", ctx)
    if output is not None and not force and os.path.isfile(output) and not (is_output(output) or is_pack(output)):
        fail(f"{output} is there already and is no evidence pack: --force replaces it; -o - only prints", as_json)
    with _reading(state, as_json) as reader:
        rows: list[Row] = []
        for receipt in dict.fromkeys(receipts):
            rows += reader.show(receipt) or _unknown(receipt, ledger_in(state), as_json)
        if session is not None:
            rows = list(reader.list(session=session, agent=agent, kind=None, limit=-1))
            agents = sorted({_entry(row, reader, as_json)["agent"] for row in rows})
            if len(agents) > 1:
                raise click.UsageError(f"several agents have a session `{session}`: add --agent {agents[0]}", ctx)
            if not rows:
                fail(f"there is no session `{session}` in {reader.path}", as_json)
        pack = evidence_pack(reader, rows)
    if output is None or is_output(output):
        click.echo(pack.text, nl=False)
        return
    write_file(output, pack.text, replace=True)
    if as_json:
        show_json({"file": str(output), **pack_document(pack.pack)})
    else:
        show(f"{output}: {entries(len(pack.pack.entries))}, checked with {pack.pack.key}")


# What a ledger has, or why it cannot be told -------------------------------------------------------------------------


@contextmanager
def _reading(state: Path | None, as_json: bool) -> Iterator[LedgerReader]:
    path = ledger_in(state)
    try:
        with LedgerReader(path) as reader:
            yield reader
    except LedgerUnavailable as wrong:
        fail(f"{wrong}{_elsewhere(path, state)}", as_json)


def _elsewhere(path: Path, state: Path | None) -> str:
    """Where else a ledger may be, if no place was named."""
    if state is not None:
        return ""
    try:
        path.lstat()
    except FileNotFoundError:
        return _ELSEWHERE
    except OSError:  # it may well be there
        pass
    return ""


def call_of(receipt: str, state: Path | None, as_json: bool) -> tuple[Entry | None, Entry | None]:
    """The decision and the receipt of one call; the command ends with 1 if there are none, or if they were changed."""
    with _reading(state, as_json) as reader:
        rows = reader.show(receipt) or _unknown(receipt, ledger_in(state), as_json)
        found = {entry["kind"]: entry for entry in (_entry(row, reader, as_json) for row in rows)}
    return found.get("decision"), found.get("receipt")


def _entry(row: Row, reader: LedgerReader, as_json: bool) -> Entry:
    """What an entry says; one that is not what was written is not shown as if it were."""
    try:
        return check_row(row)
    except Unsound as wrong:
        name = row.id if isinstance(row.id, str) else ascii(row.id)[:_MOST_OF_A_NAME]
        fail(f"entry {row.number} ({name}) was changed: {wrong}; {run_verify(reader)}", as_json)


def _unknown(receipt: str, ledger: Path, as_json: bool) -> NoReturn:
    where = "`licet receipts list` has those that are; calls of another manifest are kept apart: go to its directory"
    named = "or name it with `--manifest FILE`, or its state with `--state DIR`"
    fail(f"there is no receipt `{receipt}` in {ledger}; {where}, {named}", as_json)


@contextmanager
def _progress(path: Path, as_json: bool) -> Iterator[Callable[[int], None] | None]:
    """How far it is, on a terminal, for ledgers that take a while."""
    if as_json or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with LedgerReader(path) as reader:
        size = reader.size

    def progress(seen: int) -> None:
        if not seen % 10_000:
            click.echo(f"\r{seen:,} of {entries(size)} … ", err=True, nl=False)

    try:
        yield progress
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)  # the line belongs to the outcome again
