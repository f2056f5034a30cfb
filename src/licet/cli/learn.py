"""`licet learn`: drafts the least policy that allows what recordings show, for a person to review."""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import click

from licet.assemble.never_writable import closed_to_grants
from licet.cli.discovery import find_policy
from licet.cli.limits import LEARNED_ITEMS_SHOWN
from licet.cli.options import FILE, PLACE, Setting, json_option, read_sound, refuse
from licet.cli.output import counted, fail, make_folder, print_report, shortened, show, write_file
from licet.cli.surface import print_surface
from licet.core.algebra.scope import NAME_PATTERN, visible
from licet.core.review.surface import surface
from licet.learn.drafted_policy import Draft, NotDrafted, draft_policy, policy_text, read_recordings, recordings_of
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE


@click.command(name="learn")
@click.argument("recordings", metavar="[RECORDING]...", type=FILE, nargs=-1)
@click.option("--manifest", metavar="FILE", type=FILE, help="The policy to write.  [default: that of the recordings]")
@click.option("--agent", metavar="NAME", help="The agent of a new policy.  [default: the name of the program]")
@click.option("--generalise-hosts", is_flag=True, help="Write `*.domain` for three or more names below one domain.")
@click.option(
    "--ledger",
    metavar="LEDGER",
    type=PLACE,
    help="Propose labels of results (`flow.results`) from a ledger with `record: full` instead.",
)
@click.option("--write", is_flag=True, help="Write the policy; otherwise it is only shown.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    recordings: tuple[Path, ...],
    manifest: Path | None,
    agent: str | None,
    generalise_hosts: bool,
    ledger: Path | str | None,
    write: bool,
) -> None:
    """Draft the least policy that allows what was recorded.

    RECORDING is a file of `licet observe`, or of a gate or gateway that records; if left out, all recordings of this
    directory are read. For a program the policy is the one that `licet run` uses here: .licet/licet.yaml, or
    licet.yaml; for a gate or gateway it is its own. Lines are only added, each with the calls that needed it. Nothing
    is written without --write.

    Three or more siblings that were used become their directory; hosts stay single names. A directory that a command
    made is one line; where the next run finds it, observe that run, too. Sensitive lines (keys and
    credentials, dot-files of the home, secrets, private addresses, deletes) are written as comments. What was refused
    is never taken up.

    No recording has results, so labels of them are learned from a ledger, a `ledger.sqlite` or the state directory with
    it: a field that had nothing but ids, times or numbers is proposed as `trusted`, as a comment for you to review. All
    other strings stay untrusted, and nothing is ever proposed as `authored`. These lines are only about `flow:`.

    \b
      licet observe -- make test     (records what it touches)
      licet learn                    (shows the policy, and what it allows)
      licet learn --write
      licet learn --ledger state     (which fields of results could be trusted)

    \b
    Exit codes:
      0  shown or written
      1  a recording or the policy cannot be read, or the result would not be valid
      2  bad command line
    """
    if agent is not None and not re.fullmatch(NAME_PATTERN, agent):
        raise click.BadParameter("expected 1 to 128 letters, digits, `_`, `.`, `/` or `-`", param_hint="--agent")
    if ledger is not None:
        if recordings or agent is not None or generalise_hosts:
            raise click.UsageError("--ledger takes no RECORDING, --agent and --generalise-hosts", ctx)
        _learn_labels(ledger, manifest, write=write)
        return
    paths = list(recordings) or recordings_of(manifest)
    if not paths:
        fail("there are no recordings of this directory: make one with `licet observe -- CMD`")
    try:
        found = read_recordings(paths, manifest, lambda: find_policy() or Path(POLICY_DIRECTORY, WORKSPACE_FILE))
        for path in (path for one in found for path in one.incomplete):
            show(f"licet: the last line of {path} is incomplete, and left out", err=True, colour="yellow")
        drafts = [draft_policy(one, agent, generalise_hosts) for one in found]
        for draft in drafts:
            if write and draft.text != draft.before:
                _write(draft)
    except NotDrafted as wrong:
        if wrong.problems:
            refuse(wrong.problems)
        fail(str(wrong))

    def text(_: object) -> None:
        for draft in drafts:
            _show(draft, written=write)

    print_report({"policies": (draft.document(written=write) for draft in drafts)}, text)


def _write(draft: Draft) -> None:
    _replace(draft.target, draft.before, draft.text)


def _replace(file: Path, before: str, after: str) -> None:
    target = Path(os.path.realpath(file))  # the file that a link leads to, not the link
    make_folder(target.parent)
    if policy_text(target) != before:
        fail(f"{file} was changed meanwhile, and is left as it is: run this again")
    write_file(target, after, replace=True)


# Labels of results ----------------------------------------------------------------------------------------------------


def _learn_labels(ledger: Path | str, named: Path | None, *, write: bool) -> None:
    """Propose labels in the policy that is there, as comments."""
    from licet.cli.flow import ledger_file, read_calls
    from licet.learn.result_labels import entries_for, proposed_labels
    from licet.policy_files.additions import NotKept, with_labels

    target = named or find_policy()
    if target is None:
        fail("there is no policy here to propose labels for: name it with --manifest, or write one with `licet init`")
    path = ledger_file(ledger)
    try:
        policy, before = read_sound(target, Setting(alone=True)), policy_text(target)
        found = proposed_labels(read_calls(path), policy)
        after = with_labels(before, list(entries_for(found)))
    except NotDrafted as wrong:
        fail(str(wrong))
    except NotKept as wrong:
        fail(f"{target} is not changed, because {wrong}: {wrong.advice}")
    if not found:
        fail(f"{path} has no results of the tools of {target}: make calls with `record: full`, and run this again")
    written = write and after != before
    if written:
        _replace(target, before, after)

    def text(_: object) -> None:
        if after == before:
            show(f"{target}: no label to propose")
        else:
            _show_changes(target, before, after)
        for one in found:
            stays = f"{one.tool}: {', '.join(one.untrusted) or 'a text'}" + (f" ({one.why_not})" if one.why_not else "")
            show(f"stays untrusted  {stays}" if one.untrusted or one.why_not else f"all proposed     {one.tool}")
        if written:
            show(f"wrote {target}: the lines are comments; take out the `# ` of those that you agree with")
        elif after != before:
            show("nothing is written yet: add --write. The lines are comments, and yours to agree with")

    changed = {"changed": after != before, "written": written, "text": after}
    print_report({"file": target, "ledger": path, **changed, "tools": found}, text)


# The report -----------------------------------------------------------------------------------------------------------


def _show(draft: Draft, *, written: bool) -> None:
    short = shortened(Path(draft.where.workdir))
    if draft.text == draft.before:
        show(f"{draft.target} allows all that was recorded: nothing to add")
    elif not draft.before:
        show(f"--- {draft.target}, {'written' if written else 'as it would be'}")
        click.echo("".join(f"{visible(line)}\n" for line in draft.text.splitlines()), nl=False)
    else:
        _show_changes(draft.target, draft.before, draft.text)
    click.echo()
    print_surface(surface(closed_to_grants(draft.manifest, draft.where.workdir)), short)
    click.echo()
    recorded, learned = draft.found.recorded, draft.learned
    uses = counted(recorded.events, "use")
    given = f"; {learned.given} are open to every program" if learned.given else ""
    refused = f"; not taken up: {learned.refused} that were refused" if learned.refused else ""
    show(f"{uses} in {counted(len(draft.found.files), 'recording')}{given}{refused}")
    sensitive = [line for line in learned.lines if line.kind == "sensitive"]
    if sensitive:
        show(f"{counted(len(sensitive), 'line')} left to you, as comments: see `grants`", colour="yellow")
    _list("left out", [f"{short(one.what)}: {one.why}" for one in learned.left_out])
    _list("allowed, and not used", [f"{short(one.text)} ({one.place})" for one in draft.unused])
    _list("still refused", [short(text) for text in draft.still_refused])
    for note in draft.notes:
        show(note, colour="yellow")
    _show_next(draft, written=written)


def _show_changes(file: Path, before: str, after: str) -> None:
    name = str(file)
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm=""):
        show(line, colour={"+": "green", "-": "red"}.get(line[:1]))


def _list(title: str, items: Sequence[str]) -> None:
    if items:
        show(f"{title}:")
        for item in items[:LEARNED_ITEMS_SHOWN]:
            show(f"  {item}")
        if len(items) > LEARNED_ITEMS_SHOWN:
            show(f"  and {len(items) - LEARNED_ITEMS_SHOWN} more: --json lists them")


def _show_next(draft: Draft, *, written: bool) -> None:
    if draft.text != draft.before and not written:
        show("nothing is written yet: `licet learn --write` does that")
    elif written and draft.text != draft.before:
        ask = " --ask" if draft.manifest.max_effect != "read_only" else ""
        way = f", and try it: `licet run{ask} -- CMD`" if draft.found.is_program else ""
        show(f"wrote {draft.target}: review it, accept it with `licet trust`{way}")
