"""`licet receipts`: list, show, verify and export what calls left in the ledger.

Counts calls and denied uses per day and agent.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec import Struct

from licet.assemble.ledger import (
    LedgerPlace,
    NoKey,
    checkpoints_in,
    evidence_pack,
    is_ledger,
    is_pack,
    last_checkpoint,
    ledger_place,
    open_reader,
    public_key,
    run_verify,
    verify_at,
    verify_pack,
)
from licet.assemble.review import state_directory
from licet.assemble.states import LEDGER, DirectoryState, State
from licet.cli.discovery import asked_elsewhere
from licet.cli.limits import ENTRY_NAME_CHARACTERS_SHOWN, USES_IN_JSON, USES_SHOWN
from licet.cli.options import FILE, MANIFEST, PLACE, Command, json_option, state_of_manifest
from licet.cli.output import fail, first_and_others, is_output, print_report, show, show_lines, wants_json, write_file
from licet.cli.receipts_filters import (
    Wanted,
    check_lines,
    check_text,
    checks_document,
    found_receipts,
    in_body,
    search_options,
)
from licet.cli.receipts_text import (
    COLOURS,
    Entry,
    entries,
    listed,
    pack_document,
    report_ledger,
    report_pack,
    so_far,
    story,
    table,
)
from licet.core.algebra.scope import visible
from licet.core.ledger.entry import VERDICTS, Row, Unsound, check_row
from licet.core.ledger.recorded_checks import DENIED, Checks, Tally
from licet.core.ledger.verify import checkpoint_line
from licet.guard.entry_reader import EntryReader
from licet.guard.ports import LedgerUnavailable
from licet.policy_files.policy_paths import NoHome, policy_root, shown_path, state_root
from licet.policy_files.trust import trusted_paths


def days(reader: EntryReader, wanted: Wanted, read: Callable[[Row], Entry]) -> list[dict[str, Any]]:
    """Count calls and denied uses per day and agent; the newest day first.

    Calls are counted by the columns of the ledger, denied uses from the bodies of the receipts.
    """
    counted: dict[tuple[str, str], dict[str, Any]] = {}
    for day, agent, verdict, count in reader.counts(**wanted.columns):
        one = counted.setdefault((str(day), str(agent)), dict.fromkeys(("calls", *VERDICTS), 0))
        one["calls"] += count
        one[str(verdict)] = one.get(str(verdict), 0) + count
    tallies = {key: Tally() for key in counted}
    inside: dict[tuple[str, str], list[int]] = {key: [0, 0] for key in counted}
    checks = Checks(True, wanted.denied_use or "*", wanted.capability)
    for entry in map(read, reader.containing(*in_body(checks), **wanted.columns)):
        key = entry["time"][:10], entry["agent"]
        events = list(checks.of(entry)) if key in tallies else ()
        for event in events:
            tallies[key].add(event)
        if events:
            inside[key][0] += 1
            inside[key][1] += entry["verdict"] == "allow"
    return [
        {
            "day": day,
            "agent": agent,
            **calls,
            "calls_with_denied_uses": inside[day, agent][0],
            "allowed_with_denied_uses": inside[day, agent][1],
            "denied_uses": tally.total,
            "most_denied": [
                {name: one[name] for name in ("capability", "reason", "count")} for one in tally.most(USES_IN_JSON)
            ],
        }
        for (day, agent), calls in counted.items()
        if (tally := tallies[day, agent]).total or wanted.checks is None
    ]


_COLUMNS = {
    "day": "day",
    "agent": "agent",
    "calls": "calls",
    "allow": "allowed",
    "ask": "asked",
    "deny": "denied",
    "calls_with_denied_uses": "with denied uses",
    "allowed_with_denied_uses": "of them allowed",
    "denied_uses": "denied uses",
}


def day_lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Format a summary as a table; the uses that were denied most often are below each line."""
    cells = [list(_COLUMNS.values()), *([visible(str(one[name])) for name in _COLUMNS] for one in found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    below: list[tuple[Sequence[dict[str, Any]], int]] = [
        ((), 0),
        *((one["most_denied"], one["denied_uses"]) for one in found),
    ]
    for line, (uses, total) in zip(cells, below, strict=True):
        yield "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        yield from (f"    {check_text({**use, 'kind': DENIED})}" for use in uses[:USES_SHOWN])
        if rest := total - sum(use["count"] for use in uses[:USES_SHOWN]):
            yield f"    and {rest} more"


_ELSEWHERE = "; go to the directory of the manifest, or name it with --manifest, or its state with --state"


state_option = state_of_manifest("The state with the ledger.  [default: for this directory, below $XDG_STATE_HOME]")


def key_option(command: Command) -> Command:
    """Add `--key` to a command."""
    text = "The public key, or a file with it.  [default: the `ledger.pub` next to the ledger]"
    return click.option("--key", metavar="ed25519:…|FILE", help=text)(command)


@click.group(name="receipts")
def command() -> None:
    """List, show, verify and export receipts. Every call leaves one.

    Receipts are stored in a ledger, in the state directory of the project (see `--state`). Each entry is linked to
    the previous one of its session. Signed checkpoints cover all entries, so a later change is detected.

    \b
      licet receipts list
      licet receipts list --tool http_get --verdict deny --since 7d
      licet receipts list --denied-use 'network:*' --verdict allow
      licet receipts summary --since 7d
      licet receipts show r-9e0f2b41-1
      licet receipts verify
      licet receipts verify backup/ledger.sqlite --key ed25519:… --head checkpoints.txt
      licet receipts head >> /mnt/elsewhere/checkpoints.txt
      licet receipts export r-9e0f2b41-1 -o evidence.json
      licet receipts verify evidence.json
      licet receipts list --json

    \b
    Exit codes:
      0  done, and nothing is wrong
      1  the ledger or the evidence pack was changed, or was not found
      2  bad command line
    """


@command.command(name="list")
@search_options
@click.option("--verdict", type=click.Choice(VERDICTS), help="Only calls with this verdict.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, help="List at most N.  [default: 50]")
@click.option("--all", "everywhere", is_flag=True, help="List those of every policy and directory of this user.")
@state_option
@json_option
def list_command(verdict: str | None, limit: int, everywhere: bool, state: State | None, **searched: Any) -> None:
    """List receipts, the newest first. Times are UTC.

    With `--all`, each has the directory that it is of, where that is known, or else its state.

    A call that has begun and has no receipt is listed too: it still runs, or its process ended before the call did.

    `--denied-use` finds calls in which a use was denied, even if the call succeeded: a tool may catch a refusal.
    `--reason` finds those that were denied for one reason: `SECRET_NOT_DECLARED` has attempts to send a key away.
    PATTERN is the text of a capability, or its beginning up to `:`, `@` or `/`; `*` matches any characters.
    `--capability` finds calls with a check that a rule covers, granted or denied; with `--denied-use`, only denied
    ones.
    """
    wanted = Wanted(**searched)
    checks = wanted.checks
    ctx = click.get_current_context()
    if everywhere and (state is not None or MANIFEST in ctx.meta):
        raise click.UsageError("--all takes no --state and no --manifest", ctx)
    unsearched, every, is_whole = 0, list[Entry](), True
    for title, one in _every_state() if everywhere else [("", state)]:
        try:
            with _reading(one) as reader:
                entries_there, left = _found_in(reader, wanted, verdict, limit)
        except click.exceptions.Exit:  # the others can be listed, and what is wrong with this one was shown
            if not everywhere or wants_json():
                raise
            is_whole = False
            continue
        unsearched += left
        every += ({**entry, "place": title} if title else entry for entry in entries_there)
    every.sort(key=lambda entry: (entry["time"], entry["number"]), reverse=True)
    found, more = every[:limit], len(every) > limit

    def text(_: object) -> None:
        heading, *lines = table(found) if found else [("", "")]
        if found:
            show(heading[0])
        for (line, shown), entry in zip(lines, found, strict=True):
            show(line, colour=COLOURS.get(shown))
            show_lines(check_lines(entry, checks) if checks is not None else ())
        if not found:
            asked = verdict is not None or wanted != Wanted()
            show("no receipt fits" if asked else "no call has left a receipt yet", err=True)
        if more:
            show(f"there are more; `--limit {limit * 10}` shows older ones", err=True)
        if unsearched:
            text = f"calls without a receipt were not looked for in the {entries(unsearched)} before that"
            show(f"{text}; `--since` and `--until` name a shorter time", err=True)

    documents = ({**listed(entry), **checks_document(entry, checks)} for entry in found)
    print_report({"receipts": documents, "more": more, "unsearched": unsearched}, text)
    ctx.exit(0 if is_whole else 1)


def _found_in(reader: EntryReader, wanted: Wanted, verdict: str | None, limit: int) -> tuple[list[Entry], int]:
    """The newest receipts of a ledger that fit, one more than the limit, and how many entries were not looked into."""
    checks, unended, unsearched = wanted.checks, list[Entry](), 0

    def read(row: Row) -> Entry:
        return _entry(row, reader)

    if checks is not None:
        every = list(found_receipts(reader, wanted, checks, verdict, limit + 1, read))
    else:
        every = list(map(read, reader.list(**wanted.columns, verdict=verdict, limit=limit + 1)))
    if verdict in (None, "allow"):  # only an allowed call begins
        oldest = {"since": every[-1]["time"]} if len(every) > limit else {}
        most = limit + 1 if checks is None else -1  # the events of all of them are searched
        rows, unsearched = reader.unended(**{**wanted.columns, **oldest}, limit=most)
        unended = [_so_far(read(row), reader) for row in rows]
        if checks is not None:
            unended = [entry for entry in unended if any(checks.of(entry))]
    return [*every, *unended], unsearched


def _every_state() -> list[tuple[str, State]]:
    """The states of this user that have receipts, each with the directory that it is of, or else its own."""
    root = state_root()
    if not root:
        raise NoHome
    known = {str(state_directory(place)): shown_path(place) for place in map(policy_root, _known_policies())}
    states = [Path(root, name) for name in sorted(os.listdir(root) if os.path.isdir(root) else ())]
    there = [(str(path), DirectoryState(path)) for path in states if DirectoryState(path).has(LEDGER)]
    return [(known.get(path, path), state) for path, state in there]


def _known_policies() -> list[Path]:
    """The policies that this user has accepted, with that of the current directory."""
    return [Path(path) for path in (*trusted_paths(), os.path.abspath("licet.yaml"))]


@command.command(name="summary")
@search_options
@state_option
@json_option
def summary_command(state: State | None, **searched: Any) -> None:
    """Count calls and denied uses per day (UTC) and agent, the newest day first.

    Below each line are the uses that were denied most often, including those in calls that succeeded. With
    `--denied-use` or `--capability`, only matching denied uses are counted, and only days that have one are listed.
    """
    wanted = Wanted(**searched)
    with _reading(state) as reader:
        found = days(reader, wanted, lambda row: _entry(row, reader))

    def text(_: object) -> None:
        show_lines(day_lines(found) if found else ())
        if not found:
            show("no receipt fits", err=True)

    print_report({"days": found}, text)


@command.command(name="show")
@click.argument("receipt")
@state_option
@json_option
def show_command(receipt: str, state: State | None) -> None:
    """Show everything that is stored about one call.

    The result, the rules that decided with file and line, who approved it, the budget before and after, the walls in
    force, and each check in order.
    """
    calls = calls_of(receipt, state)

    def text(_: object) -> None:
        for one in calls:
            heading, *rest = story(one.decision, one.progress, one.receipt)
            show(heading, colour=COLOURS[(one.receipt or one.decision or {})["verdict"]])
            show_lines(rest)
        if len(calls) > 1 and not any("standing" in (one.receipt or one.decision or {}) for one in calls):
            show(f"{len(calls)} calls have this id: processes that were forked from one host made them", err=True)

    print_report(first_and_others(one.document for one in calls), text)


@command.command(name="verify")
@click.argument("file", metavar="[LEDGER|PACK]", type=PLACE, required=False)
@key_option
@click.option(
    "--head", "kept", metavar="FILE", type=FILE, multiple=True, help="Checkpoints that were stored elsewhere."
)
@state_option
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context, file: Path | str | None, key: str | None, kept: tuple[Path, ...], state: State | None
) -> None:
    """Verify a ledger or an evidence pack, and report the first wrong entry.

    Needs only the file and the public key. Every hash, link and signature is computed again.

    \b
    What the two options prove:
      --key   the ledger was not replaced by another one: keep a copy of
              `ledger.pub` elsewhere
      --head  the ledger was not replaced by an older copy: from time to time,
              store the output of `licet receipts head` elsewhere

    Entries after the last checkpoint are linked but not signed yet, so they are not proven; their number is printed. A
    process that writes signs within a second, and when it ends. If the private key is next to the ledger and can be
    read, a MAC proves that a holder of the key wrote those entries.
    """
    if isinstance(file, Path):
        file = file / "ledger.sqlite" if os.path.isdir(file) else file
    place = ledger_place(state) if file is None else LedgerPlace.at(file)
    try:
        # A file named like a ledger that is no database was overwritten; it is not a pack.
        database = place.is_remote or is_ledger(Path(place.path)) or file is None or place.path.endswith(".sqlite")
        public = public_key(key, Path(f"{(place if database or key is not None else ledger_place(state)).keys}.pub"))
        checkpoints = [checkpoint for one in kept for checkpoint in checkpoints_in(one)]
        if not database:
            if checkpoints:
                raise click.UsageError("--head is for ledgers: a pack has its own", ctx)
            path = Path(place.path)
            report_pack(path, verify_pack(path, public), public)
        with _progress(place) as progress:
            outcome = verify_at(place, public, checkpoints, progress)
    except NoKey as wrong:
        if key is None:  # the default file is missing, so no option is wrong
            raise click.UsageError(f"{wrong}; it is the `ledger.pub` of the ledger that wrote this", ctx) from None
        raise click.BadParameter(str(wrong), ctx, param_hint="--key") from None
    except Unsound as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--head") from None
    except LedgerUnavailable as wrong:
        fail(f"{wrong}{_elsewhere(place.path, state or file)}")
    report_ledger(place.shown, outcome, public, key, bool(checkpoints))


@command.command(name="head")
@key_option
@state_option
@json_option
def head_command(key: str | None, state: State | None) -> None:
    """Print the last signed checkpoint as one line, to be stored elsewhere.

    With it, `licet receipts verify --head FILE` proves later that nothing before it was changed or removed. A file may
    have many checkpoints, one per line.
    """
    with _reading(state) as reader:
        try:
            public = public_key(key, Path(f"{reader.keys}.pub"))
        except NoKey as wrong:
            raise click.BadParameter(str(wrong), param_hint="--key") from None
        checkpoint, size = last_checkpoint(reader, public), reader.size
    click.echo(checkpoint_line(checkpoint))
    if size > checkpoint.size:
        show(f"not signed yet: {entries(size - checkpoint.size)} after it", err=True)


@command.command(name="export")
@click.argument("receipts", metavar="[RECEIPT]...", nargs=-1)
@click.option("--session", metavar="ID", help="Export the complete session.")
@click.option("--agent", metavar="NAME", help="The agent of the session, if several agents have one of this name.")
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, help="Write the pack into this file; `-` is stdout, the default."
)
@click.option("--force", is_flag=True, help="Replace an existing file that is not a pack.")
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
    state: State | None,
) -> None:
    """Write an evidence pack: receipts that can be verified without the ledger.

    A pack is an in-toto Statement in a DSSE envelope, signed with the key of the ledger. It has the entries byte for
    byte, a signed checkpoint, and for each entry the proof that it is in the tree of that checkpoint. The same receipts
    give the same bytes. `licet receipts verify PACK --key ed25519:…` verifies it on any machine.

    A pack proves that its entries are in the ledger, not that there are no others. If it has a complete session, the
    links prove that no entry between the first and the last is missing.
    """
    if bool(receipts) == (session is not None):
        raise click.UsageError("name receipts, or a session with --session", ctx)
    if output is not None and not force and os.path.isfile(output) and not (is_output(output) or is_pack(output)):
        fail(f"{output} is there already and is no evidence pack: --force replaces it; -o - only prints")
    with _reading(state) as reader:
        rows: list[Row] = []
        for receipt in dict.fromkeys(receipts):
            rows += reader.show(receipt) or _unknown(receipt, reader.path)
        if session is not None:
            rows = list(reader.list(session=session, agent=agent, kind=None, limit=-1))
            agents = sorted({_entry(row, reader)["agent"] for row in rows})
            if len(agents) > 1:
                raise click.UsageError(f"several agents have a session `{session}`: add --agent {agents[0]}", ctx)
            if not rows:
                fail(f"there is no session `{session}` in {reader.path}")
        pack = evidence_pack(reader, rows)
    if output is None or is_output(output):
        click.echo(pack.text, nl=False)
        return
    write_file(output, pack.text, replace=True)
    text = f"{output}: {entries(len(pack.pack.entries))}, checked with {pack.pack.key}"
    print_report({"file": output, **pack_document(pack.pack)}, lambda _: show(text))


# Reading a ledger ----------------------------------------------------------------------------------------------------


@contextmanager
def _reading(state: State | None) -> Iterator[EntryReader]:
    try:
        place = ledger_place(state)
        with open_reader(place) as reader:
            yield reader
    except LedgerUnavailable as wrong:
        fail(f"{wrong}{_elsewhere(place.path, state)}")


def _elsewhere(path: str, state: State | Path | str | None) -> str:
    """Advice where the ledger may be, if there is none here and no place was named."""
    if state is not None:
        return ""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return _ELSEWHERE + asked_elsewhere()
    except OSError:  # the directory cannot be read, so the ledger may exist
        pass
    return ""


class Recorded(Struct, frozen=True):
    """The entries of one call in a ledger. Only a call that ran for long has some of the kind `progress`."""

    decision: Entry | None
    progress: tuple[Entry, ...]
    receipt: Entry | None

    @property
    def last(self) -> Entry | None:
        """All that is known about the call: its receipt, or what is known without one."""
        return self.receipt or (so_far(self.decision, self.progress) if self.decision is not None else None)

    @property
    def document(self) -> dict[str, Any]:
        """The entries as plain data."""
        progress = {"progress": self.progress} if self.progress else {}
        return {"decision": self.decision, **progress, "receipt": self.receipt}


def calls_of(receipt: str, state: State | None) -> list[Recorded]:
    """Return the entries of a call; exits with 1 if there are none, or if they were changed.

    In an older ledger, several calls may have the same id. They differ in their session, tool or time.
    """
    with _reading(state) as reader:
        rows = reader.show(receipt) or _unknown(receipt, reader.path)
        found = [_entry(row, reader) for row in rows]
    calls: dict[tuple[object, ...], dict[str, list[Entry]]] = {}
    for entry in found:
        same = calls.setdefault(_call_of(entry), {"decision": [], "progress": [], "receipt": []})
        same[entry["kind"] if entry["kind"] in same else "decision"].append(entry)
    return [
        Recorded(decision, tuple(same["progress"]), ended)
        for same in calls.values()
        for decision, ended in zip_longest(same["decision"], same["receipt"])
    ]


def _call_of(entry: Entry) -> tuple[object, ...]:
    """What all entries of one call have in common."""
    return tuple(entry[name] for name in ("id", "agent", "session", "tool", "time", "arguments"))


def _so_far(decision: Entry, reader: EntryReader) -> Entry:
    """A decision without a receipt, with what the call has recorded since."""
    found = (_entry(row, reader) for row in reader.show(decision["id"]) if row.kind == "progress")
    return so_far(decision, [entry for entry in found if _call_of(entry) == _call_of(decision)])


def _entry(row: Row, reader: EntryReader) -> Entry:
    """Parse an entry; exits with 1 if it was changed, so that nothing false is shown."""
    try:
        return check_row(row)
    except Unsound as wrong:
        name = row.id if isinstance(row.id, str) else ascii(row.id)[:ENTRY_NAME_CHARACTERS_SHOWN]
        fail(f"entry {row.number} ({name}) was changed: {wrong}; {run_verify(reader)}")


def _unknown(receipt: str, ledger: str) -> NoReturn:
    where = "`licet receipts list` has those that are; calls of another manifest are kept apart: go to its directory"
    named = "or name it with `--manifest FILE`, or its state with `--state DIR`"
    fail(f"there is no receipt `{receipt}` in {ledger}; {where}, {named}")


@contextmanager
def _progress(place: LedgerPlace) -> Iterator[Callable[[int], None] | None]:
    """Show the progress on a terminal, for large ledgers."""
    if wants_json() or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with open_reader(place) as reader:
        size = reader.size

    def progress(seen: int) -> None:
        if not seen % 10_000:
            click.echo(f"\r{seen:,} of {entries(size)} … ", err=True, nl=False)

    try:
        yield progress
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)  # clear the line
